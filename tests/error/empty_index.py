def f(x: float32[4]):
    return x[]
