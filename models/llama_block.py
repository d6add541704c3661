"""Llama 3's block: RMSNorm, rotary embedding, grouped heads, SwiGLU, no biases.

P: projection size; G: key/value groups; R: query heads of a group; I: embedding; B: batch;
J: sequence length; U: width of the MLP. The defaults are the 8B model's.

The rotary embedding turns the pair of channels p and p + P/2 by an angle, as Hugging Face writes
it: the halves of an axis are swapped. cos and sin are the angles' for each position, repeated for
both halves. The weights of the MLP's gate and of its other factor are one matrix.
"""

import numpy as np
from millrace.numpy import bfloat16, causal_mask, fixed, rmsnorm, silu, softmax

P = 128
G = 8
R = 4
I = P * G * R
B = 1
J = 2048
U = 14336

SIZES = {
    "tiny": {"P": 2, "G": 2, "R": 2, "B": 2, "J": 6, "U": 8},
    "odd": {"P": 6, "G": 1, "R": 5, "B": 1, "J": 7, "U": 11},
    "base": {"P": 64, "U": 8192},  # Llama 3.2 1B
    "large": {"R": 8, "U": 28672},  # Llama 3 70B
}


def rotate_half(x):
    half = x.shape[-1] // 2
    return np.concatenate([-x[..., half:], x[..., :half]], axis=-1)


def llama_block(
    x: bfloat16[B, J, I],
    cos: fixed.bfloat16[J, P],
    sin: fixed.bfloat16[J, P],
    attn_norm_weight: bfloat16[I],
    wq: bfloat16[I, G, R, P],
    wk: bfloat16[I, G, P],
    wv: bfloat16[I, G, P],
    wo: bfloat16[G, R, P, I],
    mlp_norm_weight: bfloat16[I],
    w_gate_up: bfloat16[I, 2 * U],
    w_down: bfloat16[U, I],
):
    scaler = 1 / np.sqrt(P)

    attn_norm = rmsnorm(x, attn_norm_weight, eps=1e-5)
    q_projected = np.einsum("bji,igrp->bjgrp", attn_norm, wq)
    k_projected = np.einsum("bki,igp->bkgp", attn_norm, wk)
    vv = np.einsum("bki,igp->bkgp", attn_norm, wv)
    qq = q_projected * cos[:, None, None] + rotate_half(q_projected) * sin[:, None, None]
    kk = k_projected * cos[:, None] + rotate_half(k_projected) * sin[:, None]
    beta = scaler * np.einsum("bjgrp,bkgp->bgrjk", qq, kk)
    alpha = softmax(causal_mask(beta))
    gamma = np.einsum("bgrjk,bkgp->bjgrp", alpha, vv)
    attn = np.einsum("bjgrp,grpi->bji", gamma, wo)
    attn_residual = x + attn

    mlp_norm = rmsnorm(attn_residual, mlp_norm_weight, eps=1e-5)
    gate_up = mlp_norm @ w_gate_up
    hidden = silu(gate_up[..., :U]) * gate_up[..., U:]
    down = hidden @ w_down
    out = attn_residual + down
    return out
