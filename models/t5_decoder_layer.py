"""T5's decoder layer, version 1.1: causal self-attention with relative bias, attention to the
encoder's output, gated GELU; pre-norm by RMSNorm, no biases.

P: projection size; H: heads; I: embedding; B: batch; J: the decoder's sequence length; K: the
encoder's; U: width of the MLP; N: buckets of relative positions. The defaults are T5 v1.1 base's.

buckets[j, k] is the bucket of the distance from position j back to position k; its row of
bias_table has the number that each head adds to the score. Scores are not scaled, and those of the
attention to the encoder's output have no bias.
"""

import numpy as np
from millrace.numpy import bfloat16, causal_mask, dropout, gelu_tanh, int32, rmsnorm, softmax

P = 64
H = 12
I = 768
B = 8
J = 128
K = 512
U = 2048
N = 32

SIZES = {
    "tiny": {"P": 4, "H": 2, "I": 6, "B": 2, "J": 6, "K": 8, "U": 10, "N": 8},
    "odd": {"P": 3, "H": 5, "I": 7, "B": 1, "J": 11, "K": 1, "U": 13, "N": 6},
    "small": {"H": 6, "I": 512, "U": 1024},
    "base": {"B": 4, "J": 64, "K": 128},
    "large": {"H": 16, "I": 1024, "U": 2816},
    "xl": {"H": 32, "I": 2048, "U": 5120},
}


def t5_decoder_layer(
    x: bfloat16[B, J, I],
    memory: bfloat16[B, K, I],
    buckets: int32[J, J],
    bias_table: bfloat16[N, H],
    self_norm_weight: bfloat16[I],
    self_wq: bfloat16[I, H * P],
    self_wk: bfloat16[I, H * P],
    self_wv: bfloat16[I, H * P],
    self_wo: bfloat16[H * P, I],
    cross_norm_weight: bfloat16[I],
    cross_wq: bfloat16[I, H * P],
    cross_wk: bfloat16[I, H * P],
    cross_wv: bfloat16[I, H * P],
    cross_wo: bfloat16[H * P, I],
    mlp_norm_weight: bfloat16[I],
    w_gate: bfloat16[I, U],
    w_up: bfloat16[I, U],
    w_down: bfloat16[U, I],
):
    self_norm = rmsnorm(x, self_norm_weight)
    self_qq = (self_norm @ self_wq).reshape(B, J, H, P)
    self_kk = (self_norm @ self_wk).reshape(B, J, H, P)
    self_vv = (self_norm @ self_wv).reshape(B, J, H, P)
    bias = bias_table[buckets].transpose(2, 0, 1)
    self_beta = np.einsum("bjhp,bkhp->bhjk", self_qq, self_kk) + bias
    self_alpha = dropout(softmax(causal_mask(self_beta)))
    self_gamma = np.einsum("bhjk,bkhp->bjhp", self_alpha, self_vv)
    self_attn = self_gamma.reshape(B, J, H * P) @ self_wo
    self_residual = x + dropout(self_attn)

    cross_norm = rmsnorm(self_residual, cross_norm_weight)
    cross_qq = (cross_norm @ cross_wq).reshape(B, J, H, P)
    cross_kk = (memory @ cross_wk).reshape(B, K, H, P)
    cross_vv = (memory @ cross_wv).reshape(B, K, H, P)
    cross_beta = np.einsum("bjhp,bkhp->bhjk", cross_qq, cross_kk)
    cross_alpha = dropout(softmax(cross_beta))
    cross_gamma = np.einsum("bhjk,bkhp->bjhp", cross_alpha, cross_vv)
    cross_attn = cross_gamma.reshape(B, J, H * P) @ cross_wo
    cross_residual = self_residual + dropout(cross_attn)

    mlp_norm = rmsnorm(cross_residual, mlp_norm_weight)
    hidden = dropout(gelu_tanh(mlp_norm @ w_gate) * (mlp_norm @ w_up))
    out = cross_residual + dropout(hidden @ w_down)
    return out
