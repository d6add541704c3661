# --size tiny
A = 2


def f(x: float32[A]):
    return x
