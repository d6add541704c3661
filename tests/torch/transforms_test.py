"""Tests torch.func: transforms of plans are right, or raise an error that names Millrace."""

from __future__ import annotations

import tempfile
import unittest
import warnings
from pathlib import Path

import torch
from torch import func
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

import millrace.torch
from support import TorchTest, pair

TEXT = """
import numpy as np

A = 3
B = 2

def f(x: float64[B, A], w: float64[A], s: float64):
    y = np.tanh(x * w)
    return y * s, np.sum(y, axis=0)
"""


class TransformsTest(TorchTest):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name, "transformed.py")
        path.write_text(TEXT)
        program = millrace.torch.program(path)
        self.x, self.w = torch.randn(2, 3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
        self.many = torch.randn(4, 2, 3, dtype=torch.float64)
        self.ours = lambda x, w: program(x, w, 0.5)[0]
        self.theirs = lambda x, w: torch.tanh(x * w) * 0.5
        self.sums = lambda x: program(x, self.w, 0.5)[1]

    def assert_same(self, transformed, *arguments):
        found, expected = transformed(self.ours)(*arguments), transformed(self.theirs)(*arguments)
        for one, other in zip(torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(expected)):
            self.assert_close(one, other)

    def test_reverse_mode(self):
        self.assert_same(lambda f: func.grad(lambda x, w: f(x, w).square().sum(), argnums=(0, 1)), self.x, self.w)
        self.assert_same(lambda f: func.jacrev(f, argnums=(0, 1)), self.x, self.w)
        self.assert_same(lambda f: lambda x, w: func.vjp(f, x, w)[1](x), self.x, self.w)
        jacobian = func.jacrev(self.sums)(self.x)
        self.assert_close(jacobian, func.jacrev(lambda x: torch.tanh(x * self.w).sum(0))(self.x))

    def test_vmap(self):
        self.assert_same(lambda f: func.vmap(f, in_dims=(0, None)), self.many, self.w)
        self.assert_same(lambda f: func.vmap(f, in_dims=(2, None), out_dims=1), self.many.movedim(0, 2), self.w)
        self.assert_same(lambda f: func.vmap(func.vmap(f, in_dims=(0, None)), in_dims=(0, None)),
                         torch.stack([self.many, self.many + 1]), self.w)

    def test_vmap_over_nothing(self):
        with self.assertRaisesRegex(ValueError, "millrace: vmap .* skip empty batches"):
            func.vmap(self.ours, in_dims=(0, None))(self.many[:0], self.w)

    def test_gradients_of_each_example(self):
        of_one = lambda f: func.grad(lambda x, w: f(x, w).square().sum(), argnums=1)  # noqa: E731
        self.assert_same(lambda f: func.vmap(of_one(f), in_dims=(0, None)), self.many, self.w)

    def test_forward_mode_is_refused(self):
        def dual():
            with forward_ad.dual_level():
                return self.ours(forward_ad.make_dual(self.x, self.x), self.w)

        for call in (lambda: func.jvp(lambda x: self.ours(x, self.w), (self.x,), (self.x,)),
                     lambda: func.jacfwd(self.ours)(self.x, self.w), dual):
            with self.assertRaisesRegex(RuntimeError, "millrace: a plan has no forward-mode derivatives.*jacrev"):
                call()

    def test_second_derivatives_are_refused(self):
        inner = func.grad(lambda x: self.ours(x, self.w).sum())
        with self.assertRaisesRegex(RuntimeError, "millrace: a plan has no second derivatives"):
            func.grad(lambda x: inner(x).sum())(self.x)

    def test_layers_compute_forward_mode_in_pytorch(self):
        ours, theirs = pair(8, 2, 12, dropout=0.0, batch_first=True, dtype=torch.float64)
        x = torch.randn(2, 3, 8, dtype=torch.float64)
        found = []
        with warnings.catch_warnings(record=True) as caught, sdpa_kernel(SDPBackend.MATH):
            warnings.simplefilter("always")
            for layer in (ours, theirs):  # PyTorch's flash attention has no forward mode on the CPU
                found.append(func.jvp(layer, (x,), (torch.ones_like(x) * x,))[1])
        self.assert_close(*found)
        self.assertIn("forward-mode derivatives", "".join(str(one.message) for one in caught))
        parameters = dict(ours.named_parameters())
        gradients = [func.grad(lambda p: func.functional_call(layer, p, (x,)).square().sum())(parameters)
                     for layer in (ours, theirs)]
        for name, gradient in gradients[0].items():
            self.assert_close(gradient, gradients[1][name], name, tolerance=1e-10)


if __name__ == "__main__":
    unittest.main()
