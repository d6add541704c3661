"""ResNet's bottleneck, the first of a stage: 1x1, 3x3 and 1x1 convolutions with batch
normalization, and a 1x1 convolution with stride as the shortcut.

B: batch; C: channels of the input; M: of the bottleneck; N: of the output; Y, X: height and width;
S: stride, in the 3x3 convolution. The defaults are those of ResNet-50's second stage. Means and
variances are the batch's, as in training.
"""

from millrace.numpy import batchnorm, conv2d, float16, relu

B = 32
C = 256
M = C // 2
N = 4 * M
Y = X = 56
S = 2

SIZES = {
    "tiny": {"B": 2, "C": 4, "N": 6, "Y": 6, "X": 4},
    "odd": {"B": 1, "C": 3, "M": 1, "N": 5, "Y": 7, "X": 5},
    "base": {"B": 8},
    "large": {"C": 1024, "Y": 14, "X": 14},  # the fourth stage
}


def resnet_bottleneck(
    x: float16[B, C, Y, X],
    w1: float16[M, C, 1, 1], bn1_weight: float16[M], bn1_bias: float16[M],
    w2: float16[M, M, 3, 3], bn2_weight: float16[M], bn2_bias: float16[M],
    w3: float16[N, M, 1, 1], bn3_weight: float16[N], bn3_bias: float16[N],
    w_shortcut: float16[N, C, 1, 1], bn_shortcut_weight: float16[N], bn_shortcut_bias: float16[N],
):
    reduced = relu(batchnorm(conv2d(x, w1), bn1_weight, bn1_bias))
    spatial = relu(batchnorm(conv2d(reduced, w2, stride=S, padding=1), bn2_weight, bn2_bias))
    expanded = batchnorm(conv2d(spatial, w3), bn3_weight, bn3_bias)
    shortcut = batchnorm(conv2d(x, w_shortcut, stride=S), bn_shortcut_weight, bn_shortcut_bias)
    out = relu(expanded + shortcut)
    return out
