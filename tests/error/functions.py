def g(x):
    return x


def f(x: float32[4]):
    b = np.sofmax(x)
    c = np.whatever_else(x)
    d = gg(x)
    e = np.sim(x)
    h = np.layer_norm(x)
    return x
