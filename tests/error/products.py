def f(x: float32[4], y: float32[4, 5], s: float32, v: float32[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2]):
    a = y @ y
    b = np.dot(y, y)
    c = np.tensordot(v, v, axes=0)
    d = np.tensordot(y, y, axes=3)
    e = np.tensordot(y, y, axes=((0, 1), (0,)))
    g = np.tensordot(y, y, axes=((0, 0), (0, 1)))
    h = s @ y
    i = np.vdot(x, y)
    j = np.outer(x, y)
    k = (x < 1) @ y
    return x
