def f(x: float32[4]):
    y = x[None None]
    return y
