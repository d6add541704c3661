def f(x: float32[4, 4], y: float32[4, 4]):
    a = x % 2
    b = x if x else y
    c = x < y and y < x
    d = x or y
    e = not x
    g = x is y
    h = ~x
    i = x & y
    j = (x < y) & 1
    k = (x < y) | x
    l = x ^ y
    m = ~4
    n = 1.5 & 2
    o = 4 is 4
    p = (x, x) == (y, y)
    q = (x, x) + [y]
    r = None + 1
    s = (1, 2) - (1, 2)
    t = [k for k in (1, 2) if x]
    u = 1 % 0
    return x
