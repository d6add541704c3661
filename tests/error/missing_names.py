def f(x: float32[4]):
    a = (x).
    b = x.
    c = [x x]
    d = [x, x
    return x
