A = 4


def g(x):
    return x + first


def f(x: float32[A]):
    a = g(x)
    b = second
    c = np.einsum("ij->i", x)
    d = b + c
    e = d + third
    return e
