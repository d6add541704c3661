def g(x):
    return x


def f(x: float32[4]):
    a = x.sum()
    b = np.sofmax(x)
    c = np.matmul(x, x)
    d = gg(x)
    return x
