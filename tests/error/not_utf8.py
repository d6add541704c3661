def f(x: float32[4]):
    y = x  # café
    return y
