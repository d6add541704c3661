def f(x: float32[4, 4]):
    i = x in y
    m = x not in y
    l = lambda: x
    a = x < y < z
    b = 1 < 2 is None
    e = x <
    k = yield x
    g = x if x
    h = await x
    c = x << 2
    d = x := y
    n = (x for x in y)
    o = {x for x in y}
    p = {x: x for x in y}
    q = [x for x in y for z in x]
    r = [x for f(x) in y]
    s = [x for x of y]
    t = f(x, x for x in y)
    u = f(*x)
    return y
