A = 4


def f(x: float32[A], s: float32 = 0.5, mask: float32[A] = None, n: int = 3):
    return x * s
