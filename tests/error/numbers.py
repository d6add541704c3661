A = 0x10
B = 1.2.3
C = 99999999999999999999
D = 1e999
E = 12monkeys
F = 1j


def f(x: float32[A]):
    return x
