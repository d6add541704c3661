"""A mixture of experts with dense routing: every expert runs on every token, and the router's
softmax weights their sum. The experts are Mixtral's: SwiGLU with gate and up weights as one matrix.

B: batch; J: sequence length; I: embedding; E: experts; U: width of an expert. The defaults are
Mixtral 8x7B's sizes and number of experts. Mixtral runs two experts for each token; this layer runs all of them.
"""

import numpy as np
from millrace.numpy import bfloat16, silu, softmax

B = 1
J = 512
I = 4096
E = 8
U = 14336

SIZES = {
    "tiny": {"B": 2, "J": 4, "I": 6, "E": 3, "U": 8},
    "odd": {"B": 1, "J": 5, "I": 7, "E": 1, "U": 3},
    "base": {"I": 768, "U": 3072},
    "large": {"I": 6144, "U": 16384},  # Mixtral 8x22B
}


def moe(
    x: bfloat16[B, J, I],
    router: bfloat16[I, E],
    w_gate_up: bfloat16[E, I, 2 * U],
    w_down: bfloat16[E, U, I],
):
    shares = softmax(x @ router)
    gate_up = np.einsum("bji,eiu->bjeu", x, w_gate_up)
    hidden = silu(gate_up[..., :U]) * gate_up[..., U:]
    experts = np.einsum("bjeu,eui->bjei", hidden, w_down)
    out = np.einsum("bje,bjei->bji", shares, experts)
    return out
