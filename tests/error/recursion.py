def g(x):
    return h(x)


def h(x):
    return g(x)


def f(x: float32[4]):
    a = f(x)
    b = g(x)
    return x
