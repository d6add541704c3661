A = 4


def f(x: float32[A]):
    return np.einsum("i->, x)
