def f(x: float32[4, 4]):
    a = x.sort()
    b = x.argmax(axis=-1)
    c = x.nonzero()
    d = x.item()
    e = x.tolist()
    g = x.fill(0)
    h = x.any()
    i = x.cumprod()
    j = x.round()
    k = x.trace()
    l = x.view(2, 8)
    m = x.permute(1, 0)
    n = x.unsqueeze(0)
    o = x.cuda()
    p = x.backward()
    q = x.dtype
    r = x.real
    s = x.tofile("x")
    t = x.matmul(x)
    u = x.take(0)
    return x
