SIZES = {"tiny" {"A": 4}}
SIZES = {"tiny": {"A": 4} "large": {"A": 8}}


def f(x: float32[4]):
    return x
