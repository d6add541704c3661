import numpy as np
H, J, K, P = 2, 4, 4, 3
def attention(q: np.float32[P, H, J], k: np.float32[P, H, K], v: np.float32[P, H, K]):
  scores = np.einsum("phj,phk->hjk", q, k) / 2
  weights = dropout(softmax(causal_mask(scores)))
  return np.einsum("phk,hjk->phj", v, weights)
