"""AlphaFold's triangle multiplicative update with outgoing edges, of the pairs of residues.

N: residues; C: channels of a pair; H: hidden channels. The edge from i to j is updated from all
edges i to k and j to k. mask is one for pairs of known residues and zero for others.
"""

import numpy as np
from millrace.numpy import bfloat16, fixed, layernorm, sigmoid

N = 256
C = 128
H = 128

SIZES = {
    "tiny": {"N": 6, "C": 4, "H": 8},
    "odd": {"N": 5, "C": 7, "H": 3},
    "base": {"N": 128},
    "large": {"N": 384},
}


def triangle_update(
    pairs: bfloat16[N, N, C],
    mask: fixed.bfloat16[N, N],
    ln_in_weight: bfloat16[C], ln_in_bias: bfloat16[C],
    a_weight: bfloat16[C, H], a_bias: bfloat16[H],
    a_gate_weight: bfloat16[C, H], a_gate_bias: bfloat16[H],
    b_weight: bfloat16[C, H], b_bias: bfloat16[H],
    b_gate_weight: bfloat16[C, H], b_gate_bias: bfloat16[H],
    ln_out_weight: bfloat16[H], ln_out_bias: bfloat16[H],
    out_weight: bfloat16[H, C], out_bias: bfloat16[C],
    gate_weight: bfloat16[C, C], gate_bias: bfloat16[C],
):
    z = layernorm(pairs, ln_in_weight, ln_in_bias)
    a = mask[..., None] * sigmoid(z @ a_gate_weight + a_gate_bias) * (z @ a_weight + a_bias)
    b = mask[..., None] * sigmoid(z @ b_gate_weight + b_gate_bias) * (z @ b_weight + b_bias)
    products = np.einsum("ikh,jkh->ijh", a, b)
    update = layernorm(products, ln_out_weight, ln_out_bias) @ out_weight + out_bias
    out = update * sigmoid(z @ gate_weight + gate_bias)
    return out
