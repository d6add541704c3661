def f(x: float32[4], y: float32[4, 5]):
    a = np.zeros((4, 0))
    b = np.ones(2.5)
    c = np.zeros_like(x < 1)
    d = np.tril(x)
    e = np.arange(3, 1)
    g = np.arange(0, 1e9)
    h = np.eye(0)
    i = np.eye(3, k=0.5)
    j = np.tril(y, k=x)
    k = np.cumsum(x < 1)
    l = np.cumsum(y, axis=2)
    m = np.cumsum(3)
    return x
