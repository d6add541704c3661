def f(x: float16[4], y: bfloat16[4], z: float32[4], keep: float16[4]):
    a = x * 1e9
    b = x + (keep - 1) * 1e5
    c = 70000 - x
    d = y * 1e9 + 1e39
    e = z * 1e39
    g = x * 65504 + np.where(x > 0, x, -1e9) + np.maximum(x, -1e30) - np.inf
    return a, b, c, d, e, g
