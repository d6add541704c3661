# --size tny
SIZES = {"tiny": {"A": 4}, "large": {"A": 8}}
A = 2


def f(x: float32[A]):
    return x
