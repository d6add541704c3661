import numpy as np


@np.vectorize
A = 4


def f(x: float32[A]):
    return x
