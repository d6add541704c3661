import numpy as np
B, I = 2, 3
def norm(x: np.float32[B, I], scale: np.float32[I], bias: np.float32[I]):
  centred = x - np.mean(x, axis=-1, keepdims=True)
  y = relu(centred * scale + bias[None, :])
  return layernorm(x + y, scale, bias), np.sum(y, axis=0)
