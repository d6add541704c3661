"""Tests torch.compile, without graph breaks."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
from peers import environment  # noqa: E402  (the path above comes first)
from support import TorchTest, pair  # noqa: E402


class CompileTest(TorchTest):
    def setUp(self):
        super().setUp()
        if lacking := environment.why_not_compile():
            self.skipTest(f"torch.compile does not run here: {lacking}")

    def test_whole_graphs_of_several_shapes(self):
        ours, theirs = pair(8, 2, 12, dropout=0.0, batch_first=True)
        whole = torch.compile(lambda x: ours(x) * 2, fullgraph=True)
        for shape in ((3, 5, 8), (2, 3, 8)):
            x = torch.randn(shape, requires_grad=True)
            found = whole(x)
            expected = theirs(x) * 2
            self.assert_close(found, expected)
            gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (found, expected)]
            self.assert_close(*gradients, tolerance=1e-4)

    def test_layers_of_several_dropout_probabilities(self):
        x = torch.randn(2, 3, 8)
        for p in (0.0, 0.1, 0.2, 0.25):
            ours, _ = pair(8, 2, 12, dropout=p, batch_first=True, layer_norm_eps=1e-5 + p / 1000)
            whole = torch.compile(ours, fullgraph=True, backend="aot_eager")
            torch.manual_seed(3)
            found = whole(x)
            torch.manual_seed(3)
            self.assert_close(found, ours(x))

    def test_masks_of_forward_and_backward_agree(self):
        ours, _ = pair(8, 2, 12, dropout=0.25, batch_first=True, dtype=torch.float64)
        whole = torch.compile(ours, fullgraph=True, backend="aot_eager")

        def layer(x):
            torch.manual_seed(3)
            return whole(x)

        x = torch.randn(3, 5, 8, dtype=torch.float64, requires_grad=True)
        self.assertTrue(torch.equal(layer(x), layer(x)))
        self.assertTrue(torch.autograd.gradcheck(layer, x, fast_mode=True))


if __name__ == "__main__":
    unittest.main()
