def g(x: float32[4], y, z=1):
    return x + y


def f(x: float32[4], w: float32[4, 5]):
    a = g(x)
    b = g(x, x, x, x)
    c = g(x, q=x)
    d = g(x, x, x=x)
    e = g(w, x)
    h = g(4, x)
    y, z = g(x, x)
    return x
