"""Shared by the tests: pairs of our and PyTorch's layers, and tolerances."""

from __future__ import annotations

import copy
import unittest
import warnings

import torch

import millrace.torch

# Relative to the largest element, by dtype; gradients accumulate many rounding errors.
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.float16: 1e-2, torch.bfloat16: 6e-2}


class TorchTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        context = warnings.catch_warnings()
        context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        warnings.filterwarnings("error", message="millrace:.*")  # every call must run a plan

    def assert_close(self, found, expected, what="", tolerance=None):
        self.assertEqual(found.shape, expected.shape, what)
        self.assertEqual(found.dtype, expected.dtype, what)
        tolerance = tolerance or TOLERANCE[expected.dtype]
        largest = max(expected.abs().max().item(), 1e-3)
        self.assertLessEqual((found - expected).abs().max().item(), tolerance * largest, what)

    def assert_same_step(self, ours, theirs, inputs, call=None, tolerance=None, result=lambda y: y):
        """Compares results and all gradients of one step of `ours` and `theirs`."""
        call = call or (lambda module, *tensors: module(*tensors))
        outcomes = []
        for module in (ours, theirs):
            tensors = [x.detach().clone().requires_grad_() for x in inputs]
            module.zero_grad()
            y = result(call(module, *tensors))
            torch.manual_seed(1)
            y.backward(torch.randn(y.shape, dtype=y.dtype))  # strides do not matter
            outcomes.append((y.detach(), tensors, dict(module.named_parameters())))
        (y, tensors, parameters), (y_theirs, tensors_theirs, parameters_theirs) = outcomes
        self.assert_close(y, y_theirs, "the result", tolerance)
        for k, (x, x_theirs) in enumerate(zip(tensors, tensors_theirs)):
            self.assert_close(x.grad, x_theirs.grad, f"gradient of input {k}", tolerance)
        self.assertEqual(list(parameters), list(parameters_theirs))
        scale = max(p.grad.abs().max().item() for p in parameters_theirs.values() if p.grad is not None)
        for name, parameter in parameters.items():
            theirs_grad = parameters_theirs[name].grad
            self.assertEqual(parameter.grad is None, theirs_grad is None, name)
            if theirs_grad is not None:
                # The bias of the keys has no effect: its gradient is rounding error only.
                within = (tolerance or TOLERANCE[theirs_grad.dtype]) * scale
                self.assertLessEqual((parameter.grad - theirs_grad).abs().max().item(), within, name)


def pair(*arguments, seed=0, **named):
    """Our encoder layer and PyTorch's with the same random parameters."""
    torch.manual_seed(seed)
    theirs = torch.nn.TransformerEncoderLayer(*arguments, **named)
    for parameter in theirs.parameters():
        torch.nn.init.uniform_(parameter, -0.4, 0.4)
    ours = millrace.torch.TransformerEncoderLayer(*arguments, **named)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    return ours, theirs


def accelerated(module):
    copied = copy.deepcopy(module)
    return copied, millrace.torch.accelerate(copied)
