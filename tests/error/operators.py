def f(x: float32[4, 4]):
    y = x @ x
    z = x % 2
    v = x if x else y
    w = x < y and y < x
    o = x or y
    i = x in y
    s = x is y
    n = not x
    l = lambda: x
    a = x < y < z
    t = ~x
    e = x <
    k = yield x
    return y
