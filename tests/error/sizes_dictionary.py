A = 4
SIZES = {
    "tiny": 4,
    5: {"A": 4},
    "small": {"A": 1.5, 6: 7, "B": "b"},
}
OTHER = {"a": {"A": 4}}


def f(x: float32[A]):
    return x
