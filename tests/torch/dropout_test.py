"""Tests dropout masks: their statistics, forward and backward with the same mask, and PyTorch's generator."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

import millrace.numpy
import millrace.torch
from millrace.torch import operator, programs
from support import TorchTest, pair

DROPOUT = """
N = 4

def dropped(x: float32[N, N]):
    return dropout(x, 0.3)
"""


class DropoutTest(TorchTest):
    def setUp(self):
        super().setUp()
        self.ours, _ = pair(8, 2, 12, dropout=0.25, batch_first=True, dtype=torch.float64)
        self.x = torch.randn(3, 5, 8, dtype=torch.float64, requires_grad=True)

    def test_statistics(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name, "dropped.py")
        path.write_text(DROPOUT)
        dropped = millrace.torch.program(path)
        x = torch.ones(100, 100, requires_grad=True)
        y = dropped(x)
        kept = (y != 0).double()
        self.assertTrue(torch.allclose(y[y != 0], torch.tensor(1 / 0.7)))
        deviation = (0.3 * 0.7 / kept.numel()) ** 0.5
        self.assertLess(abs(kept.mean().item() - 0.7), 4 * deviation)
        for axis in (0, 1):  # rows and columns are as independent as elements
            spread = kept.mean(axis).std().item()
            self.assertLess(abs(spread / (0.3 * 0.7 / 100) ** 0.5 - 1), 0.3)
        y.backward(torch.ones_like(y))
        self.assertTrue(torch.equal(x.grad, y.detach()), "the masks of forward and backward are the same")
        self.assertFalse(torch.equal(dropped(x), y), "the next call draws others")

    def test_masks_are_those_of_the_program_under_numpy(self):
        torch.manual_seed(5)
        y = self.ours(self.x)
        torch.manual_seed(5)
        seed, step = operator.draw_random(self.x.device).tolist()
        spec = programs.EncoderLayer(programs.Attention(*self.ours._attention_spec("", False, False)),
                                     *self.ours._layer_spec())
        text = programs.encoder_layer_text(spec)
        for name, size in {"B": 3, "J": 5, "K": 5, "H": 2, "P": 4, "I": 8, "U": 12}.items():
            text = text.replace(f"\n{name} = 4\n", f"\n{name} = {size}\n")
        scope: dict = {}
        exec(compile(text, "encoder_layer.py", "exec", dont_inherit=True), scope)
        parameters, pieces = self.ours._parameters_in_order()
        arguments = [self.x.detach().numpy()]
        for tensor, count in zip(parameters, pieces):
            arguments += list(tensor.detach().numpy().reshape(count, -1)) if count == 3 else [tensor.detach().numpy()]
        names = list(scope["encoder_layer"].__annotations__.values())
        arguments = [array.reshape(annotation.shape) for array, annotation in zip(arguments, names)]
        millrace.numpy.seed(seed, step % 2**32)
        expected = scope["encoder_layer"](*arguments)
        np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-10, atol=1e-10)

    def test_gradients_are_those_of_the_same_masks(self):
        def layer(x, weight):
            torch.manual_seed(3)
            return torch.func.functional_call(self.ours, {"linear1.weight": weight}, (x,))

        weight = self.ours.linear1.weight.detach().clone().requires_grad_()
        self.assertTrue(torch.autograd.gradcheck(layer, (self.x, weight), fast_mode=True))

    def test_the_generators_state_gives_the_step_again(self):
        state = torch.get_rng_state()
        first = self.ours(self.x)
        other = self.ours(self.x)
        torch.set_rng_state(state)
        self.assertTrue(torch.equal(self.ours(self.x), first))
        self.assertFalse(torch.equal(first, other))

    def test_checkpointing_draws_the_same_masks(self):
        torch.manual_seed(7)
        expected = torch.autograd.grad(self.ours(self.x).square().sum(), self.x)[0]
        for reentrant in (False, True):
            torch.manual_seed(7)
            y = checkpoint(self.ours, self.x, use_reentrant=reentrant)
            torch.rand(3)  # the generator moves on before backward
            x_grad = torch.autograd.grad(y.square().sum(), self.x)[0] if not reentrant else self._backward(y)
            self.assertTrue(torch.equal(x_grad, expected))

    def _backward(self, y):
        self.x.grad = None
        y.square().sum().backward()
        return self.x.grad


if __name__ == "__main__":
    unittest.main()
