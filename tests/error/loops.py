def f(x: float32[4], n: float32):
    for k in 4:
        x = x + k
    for k in n:
        x = x + k
    for k in range(n):
        x = x + k
    for k in range(100000):
        x = x + k
    for a, b in range(3):
        x = x + a
    for a in zip((1, 2), 3):
        x = x + a
    if x > 0:
        x = x + 1
    elif wrong:
        x = x + 2
    if wrong:
        return x
    y = [k for k in None]
    z = [k for k in (1, 2) if x]
    a, b = x
    c, (d, e) = (1, 2)
    y += wrong
