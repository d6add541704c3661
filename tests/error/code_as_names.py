def f(x: float32[4]):
    a = __import__('os').system('x')
    b = eval("x")(x)
    c = x.__class__.__base__()[0]
    d = [x for x in x]
    e = f"{x}"
    g = (lambda: x)()
    h = {x: x}[x]
    return x
