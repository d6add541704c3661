"""A vision transformer (ViT) with one encoder layer: from an image to the scores of its classes.

B: batch; C: colours; S: side of a patch; E, F: rows and columns of patches; Y, X: height and width
of the image; J: tokens, a class token and one per patch; P: projection size; H: heads;
I: embedding; U: width of the MLP; N: classes. The defaults are ViT-B/16's.

Patches are embedded by one matrix, as the convolution with stride S that ViT uses. One matrix
projects to queries, keys and values.
"""

import numpy as np
from millrace.numpy import bfloat16, gelu, layernorm, softmax

B = 32
C = 3
S = 16
E = 14
F = 14
Y = E * S
X = F * S
J = E * F + 1
P = 64
H = 12
I = P * H
U = 4 * I
N = 1000

SIZES = {
    "tiny": {"B": 2, "S": 2, "E": 2, "F": 3, "P": 4, "H": 2, "N": 6},
    "odd": {"B": 1, "C": 1, "S": 3, "E": 1, "F": 5, "P": 3, "H": 1, "U": 11, "N": 7},
    "base": {"B": 8},
    "large": {"H": 16},
}


def vit(
    image: bfloat16[B, C, Y, X],
    patch_weight: bfloat16[C * S * S, I], patch_bias: bfloat16[I],
    class_token: bfloat16[I],
    positions: bfloat16[J, I],
    ln1_weight: bfloat16[I], ln1_bias: bfloat16[I],
    w_qkv: bfloat16[I, 3 * I], b_qkv: bfloat16[3 * I],
    wo: bfloat16[I, I], bo: bfloat16[I],
    ln2_weight: bfloat16[I], ln2_bias: bfloat16[I],
    w1: bfloat16[I, U], b1: bfloat16[U],
    w2: bfloat16[U, I], b2: bfloat16[I],
    ln3_weight: bfloat16[I], ln3_bias: bfloat16[I],
    head_weight: bfloat16[I, N], head_bias: bfloat16[N],
):
    scaler = 1 / np.sqrt(P)

    patches = image.reshape(B, C, E, S, F, S).transpose(0, 2, 4, 1, 3, 5)
    embedded = patches.reshape(B, E * F, C * S * S) @ patch_weight + patch_bias
    first = np.broadcast_to(class_token, (B, 1, I))
    x = np.concatenate([first, embedded], axis=1) + positions

    attn_norm = layernorm(x, ln1_weight, ln1_bias, eps=1e-12)
    qkv = (attn_norm @ w_qkv + b_qkv).reshape(B, J, 3, H, P)
    qq, kk, vv = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    beta = scaler * np.einsum("bjhp,bkhp->bhjk", qq, kk)
    alpha = softmax(beta)
    gamma = np.einsum("bhjk,bkhp->bjhp", alpha, vv)
    attn_residual = x + gamma.reshape(B, J, I) @ wo + bo

    mlp_norm = layernorm(attn_residual, ln2_weight, ln2_bias, eps=1e-12)
    hidden = gelu(mlp_norm @ w1 + b1)
    out = attn_residual + hidden @ w2 + b2

    out_norm = layernorm(out[:, 0], ln3_weight, ln3_bias, eps=1e-12)
    scores = out_norm @ head_weight + head_bias
    return scores
