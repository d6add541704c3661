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
    return ids
