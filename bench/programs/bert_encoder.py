"""models/bert_encoder.py with PyTorch's order of axes, so that all frameworks get the same layouts in memory.

--layout could change the layouts, but not the order in which masks are drawn, which is the order of the axes. Arguments
and operands have the order of millrace.torch's program, so that both share measurements.
"""

import numpy as np
from millrace.numpy import dropout, float16, layernorm, relu, softmax

P = W = 64
H = 16
I = P * H
B = 8
J = 512
K = J
U = 4 * I

SIZES = {
    "tiny": {"P": 4, "W": 4, "H": 2, "B": 2, "J": 8},
    "odd": {"P": 3, "W": 5, "H": 1, "B": 2, "J": 7, "U": 11},
    "base": {"H": 12, "B": 4, "J": 128},
    "large": {"H": 16, "B": 8, "J": 512},
    "b96": {"B": 96, "J": 128},
}


def bert_encoder(
    x: float16[B, J, I],
    wq: float16[H, P, I], wk: float16[H, P, I], wv: float16[H, W, I],
    bq: float16[H, P], bk: float16[H, P], bv: float16[H, W],
    wo: float16[I, H, W], bo: float16[I],
    w1: float16[U, I], b1: float16[U],
    w2: float16[I, U], b2: float16[I],
    ln1_weight: float16[I], ln1_bias: float16[I],
    ln2_weight: float16[I], ln2_bias: float16[I],
):
    scaler = 1 / np.sqrt(P)

    q_projected = np.einsum("bji,hpi->bhjp", x, wq)
    k_projected = np.einsum("bki,hpi->bhkp", x, wk)
    v_projected = np.einsum("bki,hwi->bhkw", x, wv)
    qq = q_projected + bq[None, :, None, :]
    kk = k_projected + bk[None, :, None, :]
    vv = v_projected + bv[None, :, None, :]
    beta = scaler * np.einsum("bhjp,bhkp->bhjk", qq, kk)
    weights = softmax(beta)
    alpha = dropout(weights)
    gamma = np.einsum("bhjk,bhkw->bhjw", alpha, vv)
    attn = np.einsum("bhjw,ihw->bji", gamma, wo)
    attn_biased = attn + bo
    attn_dropped = dropout(attn_biased)
    attn_residual = attn_dropped + x
    attn_norm = layernorm(attn_residual, ln1_weight, ln1_bias)

    linear1 = np.einsum("bji,ui->bju", attn_norm, w1)
    linear1_biased = linear1 + b1
    activated = relu(linear1_biased)
    hidden = dropout(activated)
    linear2 = np.einsum("bju,iu->bji", hidden, w2)
    linear2_biased = linear2 + b2
    linear2_dropped = dropout(linear2_biased)
    linear2_residual = linear2_dropped + attn_norm
    out = layernorm(linear2_residual, ln2_weight, ln2_bias)
    return out
