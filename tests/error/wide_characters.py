def f(x: float32[4]):
    "größer → Größe"; y = wrong  # schön
    return x
