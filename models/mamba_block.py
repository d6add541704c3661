"""Mamba's block over a short sequence: RMSNorm, a causal depthwise convolution, a selective state
space model with its scan unrolled, and a gate.

B: batch; T: sequence length; I: embedding; E: inner channels; N: states of a channel; R: rank of
the step sizes; K: window of the convolution. The defaults are Mamba-130m's, but for the length.

The first half of in_weight's columns makes the channels and the second half the gate; the columns
of x_weight make step sizes, input factors and output factors.
"""

import numpy as np
from millrace.numpy import bfloat16, depthwise, rmsnorm, silu, softplus

B = 8
T = 8
I = 768
E = 2 * I
N = 16
R = I // 16
K = 4

SIZES = {
    "tiny": {"B": 2, "T": 5, "I": 4, "N": 3, "R": 2},
    "odd": {"B": 1, "T": 3, "I": 5, "E": 7, "N": 1, "R": 1, "K": 3},
    "base": {"B": 4},
    "large": {"I": 1536},  # Mamba-790m
}


def mamba_block(
    x: bfloat16[B, T, I],
    norm_weight: bfloat16[I],
    in_weight: bfloat16[I, 2 * E],
    conv_weight: bfloat16[E, K], conv_bias: bfloat16[E],
    x_weight: bfloat16[E, R + 2 * N],
    dt_weight: bfloat16[R, E], dt_bias: bfloat16[E],
    a_log: bfloat16[E, N],
    d: bfloat16[E],
    out_weight: bfloat16[E, I],
):
    projected = rmsnorm(x, norm_weight, eps=1e-5) @ in_weight
    channels, gate = np.split(projected, 2, axis=-1)
    padded = np.pad(channels.transpose(0, 2, 1), ((0, 0), (0, 0), (K - 1, 0)))
    u = silu(depthwise(padded, conv_weight, conv_bias)).transpose(0, 2, 1)

    parameters = u @ x_weight
    dt = softplus(parameters[..., :R] @ dt_weight + dt_bias)
    inputs = parameters[..., R:R + N]
    outputs = parameters[..., R + N:]
    decay = np.exp(-dt[..., None] * np.exp(a_log))
    added = (dt * u)[..., None] * inputs[:, :, None, :]

    state = added[:, 0]
    steps = [np.einsum("ben,bn->be", state, outputs[:, 0])]
    for t in range(1, T):
        state = decay[:, t] * state + added[:, t]
        steps.append(np.einsum("ben,bn->be", state, outputs[:, t]))
    scanned = np.stack(steps, axis=1)

    gated = (scanned + d * u) * silu(gate)
    out = x + gated @ out_weight
    return out
