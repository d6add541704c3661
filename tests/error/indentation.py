def f(x: float32[4]):
        y = x
    return y
