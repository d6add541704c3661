def f(table: float32[5, 4], ids: int32[3], other: int64[3], flags: bool_[4], y: float32[3], x: float32[3, 4]):
    a = ids + 1
    b = -ids
    c = ids * y
    d = np.sum(ids)
    e = softmax(ids)
    g = np.einsum("a,a->", ids, y)
    h = table[y]
    i = table[ids, other]
    j = table[0, ids]
    k = x[flags]
    l = y.astype(int32)
    m = y.astype(bool_)
    n = np.take(table, ids)
    o = np.take(table, ids, axis=2)
    p = np.take_along_axis(table, ids, 0)
    q = np.take_along_axis(x, table.astype(float32)[:, None, None], 0)
    r = np.take_along_axis(x, ids[None, :], 1)
    s = cross_entropy(x, ids[:2])
    t = cross_entropy(x, y)
    u = flags + y
    v = np.where(ids, y, 0)
    w = y[None][ids]
    z = np.take(3, ids, axis=0)
    return ids
