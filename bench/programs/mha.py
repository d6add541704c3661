"""models/mha.py with PyTorch's order of axes, for the reasons in bench/programs/bert_encoder.py."""

import numpy as np
from millrace.numpy import dropout, float16, softmax

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


def mha_forward(
    wq: float16[H, P, I], bq: float16[H, P],
    q: float16[B, J, I],
    wk: float16[H, P, I], bk: float16[H, P],
    k: float16[B, K, I],
    wv: float16[H, W, I], bv: float16[H, W],
    v: float16[B, K, I],
    wo: float16[I, H, W], bo: float16[I],
    scaler: float16,
):
    qq = np.einsum("bji,hpi->bhjp", q, wq) + bq[None, :, None, :]
    kk = np.einsum("bki,hpi->bhkp", k, wk) + bk[None, :, None, :]
    vv = np.einsum("bki,hwi->bhkw", v, wv) + bv[None, :, None, :]
    beta = scaler * np.einsum("bhjp,bhkp->bhjk", qq, kk)
    alpha = dropout(softmax(beta))
    gamma = np.einsum("bhjk,bhkw->bhjw", alpha, vv)
    out = np.einsum("bhjw,ihw->bji", gamma, wo) + bo
    return out
