"""BERT's encoder layer as the paper trains it: post-norm, ReLU, four dropouts.

P, W: key and value projection size; H: heads; I: embedding; B: batch; J: sequence length; U: width
of the feed-forward network. The keys are the queries' own sequence, so K is J.
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
    x: float16[I, B, J],
    wq: float16[P, H, I], bq: float16[P, H],
    wk: float16[P, H, I], bk: float16[P, H],
    wv: float16[W, H, I], bv: float16[W, H],
    wo: float16[W, H, I], bo: float16[I],
    ln1_weight: float16[I], ln1_bias: float16[I],
    w1: float16[U, I], b1: float16[U],
    w2: float16[I, U], b2: float16[I],
    ln2_weight: float16[I], ln2_bias: float16[I],
):
    scaler = 1 / np.sqrt(P)

    q_projected = np.einsum("phi,ibj->phbj", wq, x)
    k_projected = np.einsum("phi,ibk->phbk", wk, x)
    v_projected = np.einsum("whi,ibk->whbk", wv, x)
    qq = q_projected + bq[:, :, None, None]
    kk = k_projected + bk[:, :, None, None]
    vv = v_projected + bv[:, :, None, None]
    beta = scaler * np.einsum("phbk,phbj->hbjk", kk, qq)
    weights = softmax(beta)
    alpha = dropout(weights)
    gamma = np.einsum("whbk,hbjk->whbj", vv, alpha)
    attn = np.einsum("whi,whbj->ibj", wo, gamma)
    attn_biased = attn + bo[:, None, None]
    attn_dropped = dropout(attn_biased)
    attn_residual = attn_dropped + x
    attn_norm = layernorm(attn_residual, ln1_weight, ln1_bias, axis=0)

    linear1 = np.einsum("ui,ibj->ubj", w1, attn_norm)
    linear1_biased = linear1 + b1[:, None, None]
    activated = relu(linear1_biased)
    hidden = dropout(activated)
    linear2 = np.einsum("iu,ubj->ibj", w2, hidden)
    linear2_biased = linear2 + b2[:, None, None]
    linear2_dropped = dropout(linear2_biased)
    linear2_residual = linear2_dropped + attn_norm
    out = layernorm(linear2_residual, ln2_weight, ln2_bias, axis=0)
    return out
