A = 4


def f(a: int32, b: int8[A], c: bool[A], d: bool_, e: uint8[A], g: int[A], h: float32[A]):
    return h
