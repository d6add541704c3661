A = 4
B = AA * 2
C = softmax(A)
D = np.exp(1, 2)
E, G = 4
H = None
I = A < 4
J = A // 0
K = 2 ** 64
L = 9223372036854775807 + 1
M = np.exp(1000)
N = np.log(-1)
O = "four"
P = 1 / 0
Q = 2.0 ** 5000
R = (4, 4)


def f(x: float32[A]):
    return x
