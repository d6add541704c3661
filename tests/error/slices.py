def f(x: float32[4, 4]):
    y = x[1:2]
    z = x[:2]
    w = x[1:]
    return y
