A = 4
def f(x: float32[A]):
  a = (x, (x, x))
  return a
