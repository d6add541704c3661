"""CLIP's loss: every image must find its own text among the batch's, and every text its image.

B: batch; I: embedding. log_scale is the logarithm of the scores' factor. The defaults are those
of ViT-B/32's embedding, with a batch of one GPU.
"""

import numpy as np
from millrace.numpy import cross_entropy, float32

B = 1024
I = 512

SIZES = {
    "tiny": {"B": 4, "I": 6},
    "odd": {"B": 3, "I": 5},
    "base": {"B": 256},
    "large": {"B": 4096, "I": 768},
}


def clip_loss(
    image: float32[B, I],
    text: float32[B, I],
    log_scale: float32[1],
):
    image_unit = image / np.linalg.norm(image, axis=-1, keepdims=True)
    text_unit = text / np.linalg.norm(text, axis=-1, keepdims=True)
    scores = np.exp(log_scale) * (image_unit @ text_unit.T)
    own = np.arange(B)
    loss = (cross_entropy(scores, own) + cross_entropy(scores.T, own)) / 2
    return loss
