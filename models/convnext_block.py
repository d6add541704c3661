"""ConvNeXt's block: a depthwise 7x7 convolution, layernorm over channels, an MLP of each pixel, and
a factor for each channel.

B: batch; C: channels; Y, X: height and width; K: side of the convolution's window; U: width of the
MLP. The defaults are the first stage of ConvNeXt-B.
"""

import numpy as np
from millrace.numpy import bfloat16, depthwise, gelu, layernorm

B = 16
C = 128
Y = X = 56
K = 7
U = 4 * C

SIZES = {
    "tiny": {"B": 2, "C": 4, "Y": 6, "X": 5},
    "odd": {"B": 1, "C": 3, "Y": 5, "X": 1, "K": 3, "U": 7},
    "base": {"B": 4},
    "large": {"C": 192},
}


def convnext_block(
    x: bfloat16[B, C, Y, X],
    conv_weight: bfloat16[C, K, K], conv_bias: bfloat16[C],
    ln_weight: bfloat16[C], ln_bias: bfloat16[C],
    w1: bfloat16[C, U], b1: bfloat16[U],
    w2: bfloat16[U, C], b2: bfloat16[C],
    layer_scale: bfloat16[C],
):
    conv = depthwise(x, conv_weight, conv_bias, padding=K // 2)
    norm = layernorm(conv.transpose(0, 2, 3, 1), ln_weight, ln_bias, eps=1e-6)
    hidden = gelu(norm @ w1 + b1)
    scaled = layer_scale * (hidden @ w2 + b2)
    out = x + scaled.transpose(0, 3, 1, 2)
    return out
