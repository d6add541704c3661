"""Tests linear_cross_entropy against PyTorch's linear and cross_entropy in float64; no tensor has all logits."""

from __future__ import annotations

import unittest

import torch
from torch.nn.functional import cross_entropy, linear
from torch.utils._python_dispatch import TorchDispatchMode

from millrace.torch import linear_cross_entropy
from support import TorchTest

ROWS, FEATURES, CLASSES = 11, 6, 9


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that an operator returns."""

    elements = 0

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        made = function(*arguments, **(named or {}))
        for one in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(one, torch.Tensor):
                self.elements = max(self.elements, one.numel())
        return made


class FusedLossTest(TorchTest):
    def setUp(self):
        super().setUp()
        self.x, self.weight, self.bias = (torch.randn(*shape, dtype=torch.float64, requires_grad=True)
                                          for shape in ((ROWS, FEATURES), (CLASSES, FEATURES), (CLASSES,)))
        self.target = torch.randint(0, CLASSES, (ROWS,))
        self.target[::4] = -100

    def check(self, x, weight, target, bias, tolerance=1e-13, **options):
        """Loss and gradients, for a loss whose gradient is not one."""
        given = [one for one in (x, weight, bias) if one is not None and one.requires_grad]
        named = {name: value for name, value in options.items() if name != "rows"}
        exact = [None if one is None else one.double() for one in (x, weight, bias)]
        losses = [linear_cross_entropy(x, weight, target, bias, **options),
                  cross_entropy(linear(*exact).flatten(0, -2), target.flatten(), **named)]
        found, expected = (torch.autograd.grad(loss * 3, given, retain_graph=True) for loss in losses)
        torch.testing.assert_close(losses[0].double(), losses[1], rtol=tolerance, atol=tolerance)
        for one, other, tensor in zip(found, expected, given):
            self.assertEqual(one.dtype, tensor.dtype)
            torch.testing.assert_close(one.double(), other.double(), rtol=tolerance, atol=tolerance)

    def test_as_pytorch(self):
        for rows in (1, 4, 11, 100, None):
            for bias in (self.bias, None):
                for reduction in ("mean", "sum"):
                    self.check(self.x, self.weight, self.target, bias, rows=rows, reduction=reduction)

    def test_more_axes_and_another_ignored_class(self):
        self.check(torch.randn(2, 3, FEATURES, dtype=torch.float64, requires_grad=True), self.weight,
                   torch.randint(0, CLASSES, (2, 3)), self.bias, ignore_index=2, rows=4)

    def test_frozen_tensors(self):
        self.check(self.x, self.weight.detach(), self.target, self.bias.detach(), rows=4)
        self.check(self.x.detach(), self.weight, self.target, None, rows=4)

    def test_half_precision(self):
        """The logits are rounded to 8 bits, and so are the parts of the gradients."""
        self.check(*(one.detach().bfloat16().requires_grad_() if one.is_floating_point() else one
                     for one in (self.x, self.weight, self.target, self.bias)), tolerance=6e-2, rows=4)
        self.check(*(one.detach().float().requires_grad_() if one.is_floating_point() else one
                     for one in (self.x, self.weight, self.target, self.bias)), tolerance=1e-5, rows=4)

    def test_no_row_counts(self):
        loss = linear_cross_entropy(self.x, self.weight, torch.full((ROWS,), -100))
        self.assertTrue(loss.isnan())  # as cross_entropy
        (gradient,) = torch.autograd.grad(loss, self.x)
        self.assertFalse(gradient.nan_to_num().any())

    def test_nan_and_infinity_pass(self):
        self.assertTrue(linear_cross_entropy(self.x * float("nan"), self.weight, self.target).isnan())
        self.assertTrue(linear_cross_entropy(self.x * float("inf"), self.weight, self.target).isnan())

    def test_logits_are_never_whole(self):
        x = torch.randn(64, 4, requires_grad=True)
        weight = torch.randn(50, 4, requires_grad=True)
        with Largest() as largest:
            linear_cross_entropy(x, weight, torch.randint(0, 50, (64,)), rows=8).backward()
        self.assertLessEqual(largest.elements, 8 * 50)

    def test_without_gradients(self):
        with torch.no_grad():
            loss = linear_cross_entropy(self.x, self.weight, self.target, rows=4)
        torch.testing.assert_close(loss, cross_entropy(linear(self.x, self.weight), self.target).detach())

    def test_autocast(self):
        x, weight = self.x.detach().float(), self.weight.detach().float().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = linear_cross_entropy(x, weight, self.target)
            expected = cross_entropy(linear(x, weight), self.target)
        torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2, check_dtype=False)
        found.backward()
        self.assertEqual(weight.grad.dtype, torch.float32)

    def test_second_derivatives_are_refused(self):
        (gradient,) = torch.autograd.grad(linear_cross_entropy(self.x, self.weight, self.target), self.x,
                                          create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "no second derivatives"):
            gradient.sum().backward()

    def test_wrong_arguments(self):
        with self.assertRaisesRegex(ValueError, r"x is \[11, 6\], weight \[9, 6\] and target \[10\]"):
            linear_cross_entropy(self.x, self.weight, self.target[1:])
        with self.assertRaisesRegex(ValueError, "reduction is 'mean' or 'sum', not 'none'"):
            linear_cross_entropy(self.x, self.weight, self.target, reduction="none")


if __name__ == "__main__":
    unittest.main()
