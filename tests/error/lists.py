def append(xs, x):
    xs.append(x)
    return xs


def f(x: float32[4]):
    a = []
    b = a
    a.append(x)
    c = append([x], x)
    d = [x]
    d.append(d)
    e = (x, x)
    e.append(x)
    x.append(x)
    nothing.append(x)
    g = []
    g.append(wrong)
    h = [x]
    i = h
    h += [x]
    h -= [x]
    j = []
    for k in range(4096):
        j.append(k)
    j.append(1)
    return x
