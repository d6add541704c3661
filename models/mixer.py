"""MLP-Mixer's block: an MLP across the tokens of each channel, then one across the channels of
each token.

B: batch; J: tokens; I: channels; T: width of the MLP across tokens; U: of the one across channels.
The defaults are Mixer-B/16's.
"""

import numpy as np
from millrace.numpy import bfloat16, gelu_tanh, layernorm

B = 32
J = 196
I = 768
T = I // 2
U = 4 * I

SIZES = {
    "tiny": {"B": 2, "J": 6, "I": 8},
    "odd": {"B": 1, "J": 5, "I": 7, "T": 3, "U": 11},
    "base": {"B": 8},
    "large": {"I": 1024},
}


def mixer(
    x: bfloat16[B, J, I],
    ln1_weight: bfloat16[I], ln1_bias: bfloat16[I],
    token_w1: bfloat16[J, T], token_b1: bfloat16[T],
    token_w2: bfloat16[T, J], token_b2: bfloat16[J],
    ln2_weight: bfloat16[I], ln2_bias: bfloat16[I],
    channel_w1: bfloat16[I, U], channel_b1: bfloat16[U],
    channel_w2: bfloat16[U, I], channel_b2: bfloat16[I],
):
    tokens = np.swapaxes(layernorm(x, ln1_weight, ln1_bias, eps=1e-6), 1, 2)
    token_hidden = gelu_tanh(tokens @ token_w1 + token_b1)
    token_mixed = token_hidden @ token_w2 + token_b2
    mixed = x + np.swapaxes(token_mixed, 1, 2)

    channels = layernorm(mixed, ln2_weight, ln2_bias, eps=1e-6)
    channel_hidden = gelu_tanh(channels @ channel_w1 + channel_b1)
    out = mixed + channel_hidden @ channel_w2 + channel_b2
    return out
