# --size batch=4 --size Z=4
BATCH = 2
A = 4
batches = 3


def f(x: float32[BATCH, A]):
    return x
