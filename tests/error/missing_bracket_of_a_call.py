def f(x: float32[4]):
    y = np.exp(x
    return y
