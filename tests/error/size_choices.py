# --size A=four --size A=-4 --size A=0 --size A=99999999999999999999 --size =4 --size A=
A = 2


def f(x: float32[A]):
    return x
