def f(x: float32[4, 4]):
    a = np.einsum(x, x)
    b = np.einsum()
    c = np.einsum("ij->ji", x, out=x)
    d = np.einsum("ij->ji", None)
    e = np.einsum("ij->ji", x < x)
    g = np.einsum("ij->ji", (x, x))
    return x
