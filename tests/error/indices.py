def f(x: float32[4, 4], s: float32):
    a = 4[:]
    b = x[0]
    c = x[s]
    d = x[:, :, :]
    e = x[..., ...]
    g = x[None, None, None, None, None, None, None, None, None, None, None, None, None, None, None, None, None, None,
          None, None, None, None, None, None, None, None, None, None, None, None, None]
    h = (x, x)[:]
    return x
