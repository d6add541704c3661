A = 1048576


def f(x: float32[A, 2048], y: float32[A, 2048], z: float32[2048, A]):
    a = x[:, :, None, None] + y[None, None, :, :]
    b = np.einsum("ij,jk->ik", x, z)
    return b
