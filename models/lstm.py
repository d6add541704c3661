"""An LSTM layer over a few steps, with the weights of its four gates as one matrix.

B: batch; T: steps; I: input; H: hidden state. The columns of the weights are those of the input
gate, the forget gate, the candidate and the output gate, in PyTorch's order.
"""

import numpy as np
from millrace.numpy import float32, sigmoid

B = 64
T = 8
I = 512
H = 1024

SIZES = {
    "tiny": {"B": 2, "I": 4, "H": 6},
    "odd": {"B": 1, "T": 3, "I": 1, "H": 5},
    "base": {"B": 16},
    "large": {"H": 2048},
}


def lstm(
    x: float32[B, T, I],
    h_initial: float32[B, H], c_initial: float32[B, H],
    w_input: float32[I, 4 * H], b_input: float32[4 * H],
    w_hidden: float32[H, 4 * H], b_hidden: float32[4 * H],
):
    h = h_initial
    c = c_initial
    steps = []
    for t in range(T):
        gates = x[:, t] @ w_input + b_input + h @ w_hidden + b_hidden
        i, f, g, o = np.split(gates, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        steps.append(h)
    out = np.stack(steps, axis=1)
    return out, c
