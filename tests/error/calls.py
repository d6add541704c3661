def f(x: float32[4]):
    y = (x)(x)
    z = f(x)(x)
    w = np.sum(axis=0, x)
    return y
