"""bench/models.py: each model at its tiny size makes a step, of training and of its layers alone."""

from __future__ import annotations

import argparse
import math
import sys
import unittest
from pathlib import Path

import torch

from support import TorchTest

try:
    import transformers
except ImportError:
    transformers = None

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
if transformers is not None:
    import models
    from whole_models.configurations import SIZES


@unittest.skipIf(transformers is None, "transformers is not installed")
class BenchModelsTest(TorchTest):
    def test_a_step_of_each_model(self):
        for model in SIZES:
            for task in ("training", "layers"):
                options = argparse.Namespace(model=model, size="tiny", task=task, layers=2, device="cpu",
                                             dtype="float32", dropout=0.1, budget=None)
                step = models.step_of(models.contestants(options)["eager"], options)
                with self.subTest(model=model, task=task):
                    loss = step()
                    self.assertTrue(math.isfinite(loss.item()))
                    self.assertEqual(loss.shape, torch.Size())

    def test_tokens(self):
        self.assertEqual(SIZES["bert"]["large"].tokens("bert"), 8 * 512)
        self.assertEqual(SIZES["vit"]["large"].tokens("vit"), 32 * 197)


if __name__ == "__main__":
    unittest.main()
