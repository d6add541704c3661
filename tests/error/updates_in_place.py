def f(x: float32[4]):
    x += 1
    x *= 2
    x @= x
    return x
