A = 4 ? 2
B = $A
C = π


def f(x: float32[A]):
    return x
