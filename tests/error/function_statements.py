def f(x: float32[4]):
    for k in range(4):
        x = x + k
    if x: return x
    import os
    pass
    del x
    np.exp(x)
    x
    return


def g(x: float32[4]):
    return x
