def f(x: float32[4], ids: float32[4]):
    while True:
        x = x + 1
    for k in range(4):
        break
    for k in range(4):
        continue
    with np.errstate():
        x = x + 1
    try:
        x = x + 1
    except:
        x = x + 2
    raise ValueError
    global y
    nonlocal z
    yield x
    def g(y):
        return y
    class Layer:
        pass
    del x
    import os
    from numpy import exp
    async def h(): pass
    print(x)
    np.save("x.npy", x)
    np.add.at(x, ids, 1)
    return x
