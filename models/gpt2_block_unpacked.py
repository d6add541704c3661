"""GPT-2's block: pre-norm, causal self-attention, GELU by tanh, three dropouts; batch first.

P: projection size; H: heads; I: embedding; B: batch; J: sequence length; U: width of the MLP. The
model and gpt2_block.py keep wq, wk and wv as one matrix; they are separate here, and stacking them is
a candidate.
"""

import numpy as np
from millrace.numpy import causal_mask, dropout, float16, gelu_tanh, layernorm, softmax

P = 64
H = 12
I = P * H
B = 8
J = 1024
U = 4 * I

SIZES = {
    "tiny": {"P": 4, "H": 2, "B": 2, "J": 8},
    "odd": {"P": 3, "H": 5, "B": 1, "J": 7, "U": 13},
    "base": {"H": 12, "B": 4, "J": 128},
    "medium": {"H": 16},
    "large": {"H": 20},
    "xl": {"H": 25, "B": 4},
}


def gpt2_block(
    x: float16[B, J, I],
    ln1_weight: float16[I], ln1_bias: float16[I],
    wq: float16[I, H, P], bq: float16[H, P],
    wk: float16[I, H, P], bk: float16[H, P],
    wv: float16[I, H, P], bv: float16[H, P],
    wo: float16[H, P, I], bo: float16[I],
    ln2_weight: float16[I], ln2_bias: float16[I],
    w1: float16[I, U], b1: float16[U],
    w2: float16[U, I], b2: float16[I],
):
    scaler = 1 / np.sqrt(P)

    attn_norm = layernorm(x, ln1_weight, ln1_bias)
    q_projected = np.einsum("bji,ihp->bjhp", attn_norm, wq)
    k_projected = np.einsum("bki,ihp->bkhp", attn_norm, wk)
    v_projected = np.einsum("bki,ihp->bkhp", attn_norm, wv)
    qq = q_projected + bq
    kk = k_projected + bk
    vv = v_projected + bv
    beta = scaler * np.einsum("bjhp,bkhp->bhjk", qq, kk)
    weights = softmax(causal_mask(beta))
    alpha = dropout(weights)
    gamma = np.einsum("bhjk,bkhp->bjhp", alpha, vv)
    attn = np.einsum("bjhp,hpi->bji", gamma, wo)
    attn_biased = attn + bo
    attn_dropped = dropout(attn_biased)
    attn_residual = x + attn_dropped

    mlp_norm = layernorm(attn_residual, ln2_weight, ln2_bias)
    linear1 = np.einsum("bji,iu->bju", mlp_norm, w1)
    linear1_biased = linear1 + b1
    hidden = gelu_tanh(linear1_biased)
    linear2 = np.einsum("bju,ui->bji", hidden, w2)
    linear2_biased = linear2 + b2
    linear2_dropped = dropout(linear2_biased)
    out = attn_residual + linear2_dropped
    return out
