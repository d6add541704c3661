"""GPT-2's block: pre-norm, causal self-attention, GELU by tanh, three dropouts; batch first.

P: projection size; H: heads; I: embedding; B: batch; J: sequence length; U: width of the MLP. One
matrix, c_attn, projects to queries, keys and values, as in the model.
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
    c_attn_weight: float16[I, 3 * I], c_attn_bias: float16[3 * I],
    wo: float16[I, I], bo: float16[I],
    ln2_weight: float16[I], ln2_bias: float16[I],
    w1: float16[I, U], b1: float16[U],
    w2: float16[U, I], b2: float16[I],
):
    scaler = 1 / np.sqrt(P)

    attn_norm = layernorm(x, ln1_weight, ln1_bias)
    qkv = attn_norm @ c_attn_weight + c_attn_bias
    q, k, v = np.split(qkv, 3, axis=-1)
    qq = q.reshape(B, J, H, P)
    kk = k.reshape(B, J, H, P)
    vv = v.reshape(B, J, H, P)
    beta = scaler * np.einsum("bjhp,bkhp->bhjk", qq, kk)
    weights = softmax(causal_mask(beta))
    alpha = dropout(weights)
    gamma = np.einsum("bhjk,bkhp->bjhp", alpha, vv)
    attn = gamma.reshape(B, J, I) @ wo
    attn_biased = attn + bo
    attn_dropped = dropout(attn_biased)
    attn_residual = x + attn_dropped

    mlp_norm = layernorm(attn_residual, ln2_weight, ln2_bias)
    linear1 = mlp_norm @ w1
    linear1_biased = linear1 + b1
    hidden = gelu_tanh(linear1_biased)
    linear2 = hidden @ w2
    linear2_biased = linear2 + b2
    linear2_dropped = dropout(linear2_biased)
    out = attn_residual + linear2_dropped
    return out
