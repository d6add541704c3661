"""Compares functions of millrace.numpy with PyTorch's in float64."""

from __future__ import annotations

import unittest

import numpy as np
import torch
from torch.nn import functional

from millrace import numpy as mr


class FunctionsTest(unittest.TestCase):
    def setUp(self):
        self.rng = np.random.default_rng(23)

    def draw(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape)

    def check(self, found: np.ndarray, function, *arguments, **options) -> None:
        given = [torch.from_numpy(a) if isinstance(a, np.ndarray) else a for a in arguments]
        np.testing.assert_allclose(found, function(*given, **options).numpy(), rtol=1e-12, atol=1e-13)

    def test_elementwise(self):
        x = self.draw(7, 5) * 4
        for ours, theirs in ((mr.sigmoid, torch.sigmoid), (mr.softplus, functional.softplus), (mr.erf, torch.erf)):
            self.check(ours(x), theirs, x)

    def test_logarithms_of_sums(self):
        x = self.draw(3, 4, 5)
        self.check(mr.logsumexp(x, axis=(0, 2)), torch.logsumexp, x, (0, 2))
        self.check(mr.log_softmax(x, axis=1), torch.log_softmax, x, 1)

    def test_norms(self):
        x, weight, bias = self.draw(3, 6, 5, 2), self.draw(6), self.draw(6)
        self.check(mr.batchnorm(x, weight, bias), functional.batch_norm, x, None, None, weight, bias, True)
        self.check(mr.groupnorm(x, 3, weight, bias), functional.group_norm, x, 3, weight, bias)
        self.check(mr.layernorm(x, axis=(2, 3)), functional.layer_norm, x, (5, 2))

    def test_cross_entropy(self):
        logits, labels = self.draw(6, 5), self.rng.integers(5, size=6)
        self.check(mr.cross_entropy(logits, labels), functional.cross_entropy, logits, labels)

    def test_convolutions(self):
        line, image, bias = self.draw(2, 4, 9), self.draw(2, 4, 7, 8), self.draw(4)
        for stride, padding in ((1, 0), (2, 1), (3, 2)):
            options = {"stride": stride, "padding": padding}
            weight = self.draw(4, 4, 3)
            self.check(mr.conv1d(line, weight, bias, **options), functional.conv1d, line, weight, bias, **options)
            weight = self.draw(4, 4, 3, 2)
            self.check(mr.conv2d(image, weight, **options), functional.conv2d, image, weight, **options)
            weight = self.draw(4, 3)
            self.check(mr.depthwise(line, weight, **options), functional.conv1d, line, weight[:, None], groups=4,
                       **options)
            weight = self.draw(4, 3, 2)
            self.check(mr.depthwise(image, weight, bias, **options), functional.conv2d, image, weight[:, None], bias,
                       groups=4, **options)

    def test_pooling(self):
        x = self.draw(2, 3, 7, 8)
        for ours, theirs in ((mr.max_pool2d, functional.max_pool2d), (mr.avg_pool2d, functional.avg_pool2d)):
            self.check(ours(x, 2), theirs, x, 2)
            self.check(ours(x, 3, stride=2, padding=1), theirs, x, 3, stride=2, padding=1)


if __name__ == "__main__":
    unittest.main()
