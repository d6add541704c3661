def f(x: float32[4, 4], y: float32[5]):
    a = np.einsum("i1->i", x)
    b = np.einsum("ij->ji")
    c = np.einsum("ij,jk->ik", x)
    d = np.einsum("ijk->i", x)
    e = np.einsum("i...->i", x)
    g = np.einsum("ij->ii", x)
    h = np.einsum("ij->ik", x)
    i = np.einsum("ij,j->i", x, y)
    j = np.einsum("ijk...->i", x)
    k = np.einsum("i......j->ij", x)
    l = np.einsum("ij->->ij", x)
    return x
