def f(x: float32[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]):
    return np.einsum("abcdefghijklmnopq,ABCDEFGHIJKLMNOPQ->abcdefghijklmnopqABCDEFGHIJKLMNOPQ", x, x)
