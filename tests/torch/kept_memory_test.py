"""Tests that training steps on the CPU reuse the memory of large tensors: a fresh page of 4 KiB costs a page fault."""

from __future__ import annotations

import gc
import resource
import tempfile
import unittest
from pathlib import Path

import torch

import millrace.torch
from support import TorchTest

PROGRAM = """
B = 4
I = 1024
O = 10240

def layer(x: float32[B, I], w: float32[O, I]):
    return relu(np.einsum("bi,oi->bo", x, w))
"""
PAGES = 10240 * 1024 * 4 // 4096  # of the gradient of w, which glibc always maps anew
IS_KEPT = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) >= (2, 11)


def page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@unittest.skipUnless(IS_KEPT, "PyTorch 2.10 has no tensors with a deleter")
class KeptMemoryTest(TorchTest):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name, "kept.py")
        path.write_text(PROGRAM)
        self.program = millrace.torch.program(path)
        self.x = torch.randn(4, 1024)
        self.w = torch.randn(10240, 1024, requires_grad=True)

    def step(self) -> torch.Tensor:
        self.w.grad = None
        self.program(self.x, self.w).sum().backward()
        return self.w.grad

    def test_steps_touch_no_fresh_memory(self):
        for _ in range(3):
            self.step()
        before = page_faults()
        for _ in range(10):
            self.step()
        self.assertLess(page_faults() - before, PAGES)

    def test_a_gradient_that_somebody_keeps_stays_as_it_is(self):
        first = self.step()
        copy = first.clone()
        with torch.no_grad():
            self.w.mul_(-1)
        second = self.step()
        self.assertNotEqual(first.data_ptr(), second.data_ptr())
        self.assertTrue(torch.equal(first, copy))

    def test_gradients_accumulate(self):
        first = self.step().clone()
        self.program(self.x, self.w).sum().backward()
        self.assert_close(self.w.grad, 2 * first)

    def test_memory_of_tensors_that_lived_at_once_is_reused(self):
        gradients = [self.step() for _ in range(3)]
        self.w.grad = None
        del gradients
        gc.collect()
        before = page_faults()
        again = [self.step() for _ in range(3)]
        self.assertLess(page_faults() - before, PAGES)
        del again


if __name__ == "__main__":
    unittest.main()
