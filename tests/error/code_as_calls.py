def f(x: float32[4]):
    a = eval("x")
    b = exec("import os")
    c = __import__("os")
    d = os.system("x")
    e = np.load("x")
    g = np.lib.npyio.os.system("x")
    h = open("x")
    return x
