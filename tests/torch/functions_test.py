"""Compares functions of millrace.numpy with PyTorch's in float64."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

import millrace.torch
from millrace import numpy as mr
from support import TorchTest


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


class TiesTest(TorchTest):
    """Gradients at ties and kinks are PyTorch's."""

    def check(self, expression: str, function, *arguments: list[float]) -> None:
        names = "xyz"[: len(arguments)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "ties.py")
            parameters = ", ".join(f"{name}: float64[A]" for name in names)
            path.write_text(f"import numpy as np\nA = {len(arguments[0])}\n"
                            f"def ties({parameters}):\n    return {expression}\n")
            given = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arguments]
            upstream = torch.arange(1.0, len(arguments[0]) + 1, dtype=torch.float64)
            found, expected = (torch.autograd.grad(f(*given), given, upstream)
                               for f in (millrace.torch.program(path), function))
        for one, other in zip(found, expected):
            self.assertTrue(torch.equal(one, other), f"{expression}: {one} instead of {other}")

    def test_ties(self):
        x, y = [-1.0, 0.0, 1.0, 2.0], [-1.0, 1.0, 1.0, 0.0]
        self.check("np.maximum(x, y)", torch.maximum, x, y)
        self.check("np.minimum(x, y)", torch.minimum, x, y)
        self.check("np.abs(x)", torch.abs, x)
        self.check("relu(x)", torch.relu, x)
        self.check("np.maximum(x, 0)", torch.relu, x)
        self.check("np.clip(x, -1, 1)", functional.hardtanh, x)
        self.check("x * 0 + np.max(y)", lambda x, y: x * 0 + torch.amax(y), x, y)


if __name__ == "__main__":
    unittest.main()
