def f(x: float32[4]):
    a = "text"
    b = x + "text"
    c = ...
    d = {1: 2}
    return x
