"""PyTorch's flop counter and profiler see plans."""

from __future__ import annotations

import unittest

import torch
from torch.utils.flop_counter import FlopCounterMode

import millrace.torch
from compile_backend_test import OPTIONS, Model
from support import TorchTest, pair


class ObservationTest(TorchTest):
    def test_the_flop_counter_counts_the_products_of_plans(self):
        ours, theirs = pair(8, 2, 12, dropout=0.0, batch_first=True)
        x = torch.randn(3, 5, 8, requires_grad=True)
        counted = []
        for layer in (ours, theirs):
            with FlopCounterMode(display=False) as counter:
                layer(x).sum().backward()
            counted.append(counter.get_total_flops())
        scores_again = 2 * 3 * 2 * 5 * 5 * 4  # PyTorch's fused attention computes them in backward, too
        self.assertEqual(counted[0], counted[1] - scores_again)

    def test_the_profiler_names_regions(self):
        torch._dynamo.reset()
        run = torch.compile(Model(2), backend="millrace", options=OPTIONS)
        given = torch.randn(2, 3, 8, requires_grad=True), torch.tensor([0, 1, -100, 3, 4, 2])
        run(*given)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            run(*given).backward()
        names = [event.name for event in profile.events()]
        self.assertEqual(names.count("millrace::forward"), 3)
        self.assertEqual(names.count("millrace::backward"), 3)
        self.assertLessEqual({"millrace: blocks.0", "millrace: blocks.1", "millrace: the rest of the model"},
                             set(names))

    def test_the_flop_counter_counts_compiled_models(self):
        torch._dynamo.reset()
        model = Model(2)
        run = torch.compile(model, backend="millrace", options=OPTIONS)
        given = torch.randn(2, 3, 8, requires_grad=True), torch.tensor([0, 1, -100, 3, 4, 2])
        run(*given)
        counted = []
        for one in (run, model):
            with FlopCounterMode(display=False) as counter:
                one(*given).backward()
            counted.append(counter.get_total_flops())
        self.assertEqual(*counted)


if __name__ == "__main__":
    unittest.main()
