def (x: float32[4]):
    return x


def f x:
    return x


def g(4):
    return x


def h(x: float32[4] y: float32[4]):
    return x


def i(x: float32[4])
    return x


def j(x: float32[4]):


def k(x: float32[4]): return x
