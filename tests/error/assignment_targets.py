def f(x: float32[4]):
    x[:] = x
    x.shape = x
    4 = x
    a, None = x
    f(x) = x
    return x
