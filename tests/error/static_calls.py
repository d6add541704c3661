A = 4


def g(x, *, n=[1]):
    return x


def h(x, *, n=1):
    return x


def f(x: float32[A]):
    a = g(x)
    b = h(x, 2)
    c = math.sqrt(x)
    d = int(x)
    e = range(x)
    i = sum([x, (x, x)])
    j = list(x)
    k = np.where(x > 0)
    l = np.prod((x, x))
    m = float("nan")
    n = [[[[[[[[[[[[[[[[[x]]]]]]]]]]]]]]]]]
    o = [0] * 5000
    assert x
    assert A == 5
    p = x.sum(axis="last")
    return x
