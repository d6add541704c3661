"""Encoder/decoder attention: the decoder's queries attend to the encoder's output.

P, W: key and value projection size; H: heads; I: embedding; B: batch; J: the decoder's sequence
length; K: the encoder's. Keys and values come from one tensor, so two projections can be stacked.
"""

import numpy as np
from millrace.numpy import dropout, float16, softmax

P = W = 64
H = 16
I = P * H
B = 8
J = 384
K = 512

SIZES = {
    "tiny": {"P": 4, "W": 4, "H": 2, "B": 2, "J": 6, "K": 8},
    "odd": {"P": 5, "W": 3, "H": 1, "B": 3, "J": 1, "K": 7},
    "base": {"H": 8, "B": 32, "J": 64, "K": 96},
    "large": {"H": 16, "B": 8, "J": 384, "K": 512},
}


def encoder_decoder_attention(
    x: float16[I, B, J],
    memory: float16[I, B, K],
    wq: float16[P, H, I], bq: float16[P, H],
    wk: float16[P, H, I], bk: float16[P, H],
    wv: float16[W, H, I], bv: float16[W, H],
    wo: float16[W, H, I], bo: float16[I],
):
    scaler = 1 / np.sqrt(P)
    q_projected = np.einsum("phi,ibj->phbj", wq, x)
    k_projected = np.einsum("phi,ibk->phbk", wk, memory)
    v_projected = np.einsum("whi,ibk->whbk", wv, memory)
    qq = q_projected + bq[:, :, None, None]
    kk = k_projected + bk[:, :, None, None]
    vv = v_projected + bv[:, :, None, None]
    beta = scaler * np.einsum("phbk,phbj->hbjk", kk, qq)
    weights = softmax(beta)
    alpha = dropout(weights)
    gamma = np.einsum("whbk,hbjk->whbj", vv, alpha)
    attn = np.einsum("whi,whbj->ibj", wo, gamma)
    out = attn + bo[:, None, None]
    return out
