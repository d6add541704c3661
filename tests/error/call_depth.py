def f0(x):
    return -x


def f1(x):
    return f0(x)


def f2(x):
    return f1(x)


def f3(x):
    return f2(x)


def f4(x):
    return f3(x)


def f5(x):
    return f4(x)


def f6(x):
    return f5(x)


def f7(x):
    return f6(x)


def f8(x):
    return f7(x)


def f9(x):
    return f8(x)


def f10(x):
    return f9(x)


def f11(x):
    return f10(x)


def f12(x):
    return f11(x)


def f13(x):
    return f12(x)


def f14(x):
    return f13(x)


def f15(x):
    return f14(x)


def f16(x):
    return f15(x)


def f(x: float32[4]):
    return f16(x)
