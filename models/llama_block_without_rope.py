"""Llama 3's block, without its rotary embedding: RMSNorm, grouped heads, SwiGLU, no biases.

P: projection size; G: key/value groups; R: query heads of a group; I: embedding; B: batch;
J: sequence length; U: width of the MLP. The defaults are the 8B model's.

llama_block.py has the rotary embedding and one matrix for gate and up; `millrace fuse` of both files
shows what they cost. Sizes and everything else of the block are the model's.
"""

import numpy as np
from millrace.numpy import bfloat16, causal_mask, rmsnorm, silu, softmax

P = 128
G = 8
R = 4
I = P * G * R
B = 1
J = 2048
U = 14336

SIZES = {
    "tiny": {"P": 2, "G": 2, "R": 2, "B": 2, "J": 6, "U": 8},
    "odd": {"P": 3, "G": 1, "R": 5, "B": 1, "J": 7, "U": 11},
    "base": {"P": 64, "U": 8192},  # Llama 3.2 1B
    "large": {"R": 8, "U": 28672},  # Llama 3 70B
}


def llama_block(
    x: bfloat16[B, J, I],
    attn_norm_weight: bfloat16[I],
    wq: bfloat16[I, G, R, P],
    wk: bfloat16[I, G, P],
    wv: bfloat16[I, G, P],
    wo: bfloat16[G, R, P, I],
    mlp_norm_weight: bfloat16[I],
    w_gate: bfloat16[I, U],
    w_up: bfloat16[I, U],
    w_down: bfloat16[U, I],
):
    scaler = 1 / np.sqrt(P)

    attn_norm = rmsnorm(x, attn_norm_weight, eps=1e-5)
    qq = np.einsum("bji,igrp->bjgrp", attn_norm, wq)
    kk = np.einsum("bki,igp->bkgp", attn_norm, wk)
    vv = np.einsum("bki,igp->bkgp", attn_norm, wv)
    beta = scaler * np.einsum("bjgrp,bkgp->bgrjk", qq, kk)
    alpha = softmax(causal_mask(beta))
    gamma = np.einsum("bgrjk,bkgp->bjgrp", alpha, vv)
    attn = np.einsum("bjgrp,grpi->bji", gamma, wo)
    attn_residual = x + attn

    mlp_norm = rmsnorm(attn_residual, mlp_norm_weight, eps=1e-5)
    gate = np.einsum("bji,iu->bju", mlp_norm, w_gate)
    up = np.einsum("bji,iu->bju", mlp_norm, w_up)
    hidden = silu(gate) * up
    down = np.einsum("bju,ui->bji", hidden, w_down)
    out = attn_residual + down
    return out
