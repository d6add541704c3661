def f(
    table: float32[5, 4],
    ids: int32[3],
    flags: bool_[4],
    y: float32[3],
    x: float32[3, 4],
    square: int32[3, 3],
    long: float32[16777217],
    wide: float32[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
):
    n = np.take(table, ids)
    o = np.take(table, ids, axis=2)
    p = np.take_along_axis(table, ids, 0)
    q = np.take_along_axis(x, x, 0)
    r = np.take_along_axis(x, square[:2], 1)
    s = cross_entropy(x, ids[:2])
    t = cross_entropy(x, y)
    u = flags + y
    v = np.where(ids, y, 0)
    z = np.take(3, ids, axis=0)
    w = long[ids]
    zz = wide[square]
    return x
