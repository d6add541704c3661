SIZE = 4


def f(x: float32[SIZE], weight: float32[SIZE]):
    a = wieght
    b = SIZ
    c = q
    d = np.pie
    e = y.T
    g = f
    return x
