A = (1, 2)[4]
B = A[0, 1]
C = range(0, 4, 0)
D = range(10000)
E = [0] * 40
G = math.sqrt(-1)
H = int(1e300)
I = max(())
J = max((1, 2), 3)
K = len(4)
L = zip(4, 5)
M = range(1.5)
N = 4[0]
O = enumerate((1, 2), 9223372036854775807)
P = max(1, key=2)
Q = 4 if X else 5
assert 4 == 5
assert 4 < 5, "never"
R = [4] + (5,)


def f(x: float32[4]):
    return x
