"""Multi-head attention: Fig. 1a of the paper, as printed.

P, W: key and value projection size; H: heads; I: embedding; B: batch; J, K: sequence lengths of
the queries and of the keys.
"""

import numpy as np
from millrace.numpy import dace, dropout, softmax

P = W = 64
H = 16
I = P * H
B = 8
J = K = 512

SIZES = {
    "tiny": {"P": 4, "W": 4, "H": 2, "B": 2, "J": 8, "K": 8},
    "odd": {"P": 3, "W": 5, "H": 2, "B": 1, "J": 7, "K": 11},
    "base": {"H": 12, "B": 4, "J": 128, "K": 128},
    "large": {"H": 16, "B": 8, "J": 512, "K": 512},
    "b96": {"B": 96, "J": 128, "K": 128},
}


@dace.program
def mha_forward(
  wq: dace.float16[P, H, I], bq: dace.float16[P, H],
  q: dace.float16[I, B, J],
  wk: dace.float16[P, H, I], bk: dace.float16[P, H],
  k: dace.float16[I, B, K],
  wv: dace.float16[W, H, I], bv: dace.float16[W, H],
  v: dace.float16[I, B, K],
  wo: dace.float16[W, H, I], bo: dace.float16[I],
  scaler: dace.float16
):
  qq = np.einsum("phi,ibj->phbj", wq, q) + bq[:,:,None,None]
  kk = np.einsum("phi,ibk->phbk", wk, k) + bk[:,:,None,None]
  vv = np.einsum("whi,ibk->whbk", wv, v) + bv[:,:,None,None]
  beta = scaler * np.einsum("phbk,phbj->hbjk", kk, qq)
  alpha = dropout(softmax(beta))
  gamma = np.einsum("whbk,hbjk->whbj", vv, alpha)
  out = np.einsum("whi,whbj->ibj", wo, gamma)+bo[:,None,None]
  return out
