def f(x: float32[4, 5], y: float32[4], s: float32):
    a = x + y
    b = np.where(x < y, x, x)
    c = np.where(x, x, x)
    d = np.where(1, x, x)
    e = np.exp(x < x)
    g = np.where(x < x, x, y)
    return x
