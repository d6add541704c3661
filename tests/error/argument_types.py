A = 4


def f(
    a,
    b: int64[A],
    c: 4,
    d: float32[0],
    e: float32[1.5],
    g: float32[A - 5],
    h: float32[Q],
    i: float32[1125899906842624, 2],
    j: bool[A],
    k: float32[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    l: float32[:, A],
    m: float32,
    m: float32,
):
    return m
