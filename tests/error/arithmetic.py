def pair(x):
    return x, x


def f(x: float32[4], s: float32):
    a = pair(x) + 1
    b = -pair(x)
    c = None + x
    d = 1 < 2
    e = x ** x
    g = x // 2
    h = (x < x) + 1
    i = -(x < x)
    j = (-2) ** x
    k = 1 / 0
    l = x + 1 // 0
    return x
