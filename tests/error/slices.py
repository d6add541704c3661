def f(x: float32[4, 4], n: float32):
    a = x[n:]
    b = x[: x < 1]
    c = x[1.5:]
    d = x["a":]
    e = x[(1, 2) : 3]
    g = x[x > 0]
    h = x[True]
    i = x[x]
    j = x[[0, 1]]
    k = x[1.0]
    l = (x, x)[2]
    m = [x, x][-3]
    o = (x, x)[0, 1]
    p = (x, x)[x]
    q = (x, x)[::0]
    r = n.shape[0]
    s = 4 .shape
    return x
