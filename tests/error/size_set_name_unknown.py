# --size tiny
SIZES = {"tiny": {"B": 4}}
A = 4


def f(x: float32[A]):
    return x
