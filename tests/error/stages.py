A = wrong_size


def f(x: float32[A]):
    y = wrong_name
    return y
