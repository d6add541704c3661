def f(x: float32[4, 4], s: float32):
    a = 4[:]
    b = None[0]
    c = x[s]
    d = x[:, :, :]
    e = x[..., ...]
    g = x[None, None, None, None, None, None, None, None, None, None, None, None, None, None, None, None, None, None,
          None, None, None, None, None, None, None, None, None, None, None, None, None]
    return x
