def f(x: float32[4]):
    for k range(4):
        x = x + 1
    for k in range(4)
        x = x + 1
    for k in range(4):
    y = x
    if x
        y = x
    if True:
    elif False: y = x
    else y = x
    for 4 in range(4): y = x
    for k in range(4): y = x
    else: y = x
    y: float32[4]
    a, *b = x
    (a, 4) = x
    x[0] += 1
    assert
    return x


def g(x, *args):
    return x


def h(x, **kwargs):
    return x
