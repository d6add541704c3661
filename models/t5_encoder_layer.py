"""T5's encoder layer, version 1.1: pre-norm by RMSNorm, relative bias, gated GELU, no biases.

P: projection size; H: heads; I: embedding; B: batch; J: sequence length (of queries and of keys);
U: width of the MLP; N: buckets of relative positions. The defaults are T5 v1.1 base's.

buckets[j, k] is the bucket of the distance from position j to position k; its row of bias_table
has the number that each head adds to the score. Scores are not scaled.
"""

import numpy as np
from millrace.numpy import bfloat16, dropout, gelu_tanh, int32, rmsnorm, softmax

P = 64
H = 12
I = 768
B = 8
J = 512
U = 2048
N = 32

SIZES = {
    "tiny": {"P": 4, "H": 2, "I": 6, "B": 2, "J": 8, "U": 10, "N": 8},
    "odd": {"P": 3, "H": 5, "I": 7, "B": 1, "J": 11, "U": 13, "N": 6},
    "small": {"H": 6, "I": 512, "U": 1024},
    "base": {"B": 4, "J": 128},
    "large": {"H": 16, "I": 1024, "U": 2816},
    "xl": {"H": 32, "I": 2048, "U": 5120},
}


def t5_encoder_layer(
    x: bfloat16[B, J, I],
    buckets: int32[J, J],
    bias_table: bfloat16[N, H],
    attn_norm_weight: bfloat16[I],
    wq: bfloat16[I, H * P],
    wk: bfloat16[I, H * P],
    wv: bfloat16[I, H * P],
    wo: bfloat16[H * P, I],
    mlp_norm_weight: bfloat16[I],
    w_gate: bfloat16[I, U],
    w_up: bfloat16[I, U],
    w_down: bfloat16[U, I],
):
    attn_norm = rmsnorm(x, attn_norm_weight)
    qq = (attn_norm @ wq).reshape(B, J, H, P)
    kk = (attn_norm @ wk).reshape(B, J, H, P)
    vv = (attn_norm @ wv).reshape(B, J, H, P)
    bias = bias_table[buckets].transpose(2, 0, 1)
    beta = np.einsum("bjhp,bkhp->bhjk", qq, kk) + bias
    alpha = dropout(softmax(beta))
    gamma = np.einsum("bhjk,bkhp->bjhp", alpha, vv)
    attn = gamma.reshape(B, J, H * P) @ wo
    attn_residual = x + dropout(attn)

    mlp_norm = rmsnorm(attn_residual, mlp_norm_weight)
    hidden = dropout(gelu_tanh(mlp_norm @ w_gate) * (mlp_norm @ w_up))
    out = attn_residual + dropout(hidden @ w_down)
    return out
