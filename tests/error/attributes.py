def f(x: float32[4, 4], s: float32):
    a = (x + 1).foo
    b = x[:].foo()
    c = x.exp()
    d = x.softmax(axis=-1)
    e = x.sum
    g = x.exp
    h = x.hypot(x)
    i = (x, x).shape
    j = (4).sum()
    k = [x].append(x)
    l = (x, x).index(x)
    m = x.shape.foo
    n = x.astype()
    o = x.astype(int32)
    p = x.astype(softmax)
    q = (x < 1).astype(int32)
    r = np.float32
    t = np.nan
    u = len(s)
    return x
