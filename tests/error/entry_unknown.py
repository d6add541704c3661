# --entry h
def f(x: float32[4]):
    return x


def g(x: float32[4]):
    return x
