def f(x: float32[4, 6]):
    a = x[4]
    b = x[:, -7]
    c = x[0, 0, 0]
    d = x[3:3]
    e = x[::0]
    g = x[..., ..., 0]
    return x
