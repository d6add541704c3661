def f(x: float32[4]):
    return 4, x, x < x, None, (x, x)
