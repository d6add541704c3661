for a in range(4):
    print(a)
if True:
    A = 4
while True: A = 4
class Layer:
    def f(self):
        return self
assert A
4 = A
print("hello")


def f(x: float32[4]):
    return x
