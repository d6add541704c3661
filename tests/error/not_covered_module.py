while True:
    pass
class Layer:
    pass
with open("x") as file:
    pass
try:
    pass
except ImportError:
    pass
raise ValueError
lambda: 4
print("hello")
np.random.seed(0)
A += 4
A.append(4)
for a in range(4):
    pass
if A > 4:
    B = 4
x = f"{A}"
y = b"text"
