"""Tests TrainingStep on a GPU, where it is one CUDA graph. Skipped, with a message, without a GPU."""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
import unittest
from pathlib import Path

import torch

import millrace.torch
from millrace.torch import operator
from support import TorchTest
from training_step_test import Model, OPTIONS, adamw, batches, loop, loss_of, schedule_of


@unittest.skipUnless(torch.cuda.is_available(), "NEEDS A GPU: there is none here")
class CudaStepTest(TorchTest):
    def check(self, *, compiled=False, tolerance=1e-4, count=12, **options) -> millrace.torch.TrainingStep:
        """The same as the loop, without dropout."""
        torch.manual_seed(0)
        theirs = Model().cuda().eval()
        ours = copy.deepcopy(theirs)
        given = [tuple(one.cuda() for one in batch) for batch in batches(count)]
        named = {name: options[name] for name in ("max_norm", "accumulate") if name in options}
        optimizer = adamw(theirs, fused=True)
        expected = loop(theirs, optimizer, given, schedule=schedule_of(optimizer), **named)
        torch._dynamo.reset()
        optimizer = adamw(ours, fused=True)
        schedule = schedule_of(optimizer)
        model = torch.compile(ours, backend="millrace", options=OPTIONS) if compiled else ours
        step = millrace.torch.TrainingStep(model, optimizer, loss_of, **options)
        found = []
        for x, labels in given:
            found.append(step(x, labels))
            if step.updated:
                schedule.step()
        torch.testing.assert_close(torch.stack(found).cpu(), torch.tensor(expected), rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=tolerance, atol=tolerance)
        self.assertEqual(step.runs, "a CUDA graph")
        return step

    def test_a_loop(self):
        step = self.check(max_norm=0.1)
        self.assertGreater(step.gradient_norm.item(), 0.1)

    def test_plans(self):
        self.check(compiled=True)

    def test_accumulation(self):
        self.check(compiled=True, accumulate=2, max_norm=0.1, count=16)

    def test_other_masks_in_every_replay(self):
        torch._dynamo.reset()
        model = Model().cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0, fused=True)
        step = millrace.torch.TrainingStep(torch.compile(model, backend="millrace", options=OPTIONS), optimizer,
                                           loss_of)
        x, labels = (one.cuda() for one in batches(1)[0])
        losses = [step(x, labels).item() for _ in range(8)]
        self.assertEqual(len(set(losses[4:])), 4, losses)

    def test_a_step_that_waits_is_called(self):
        model = Model().cuda()

        def waits(model, x, labels):
            loss = loss_of(model, x, labels)
            return loss if loss.item() > -1 else -loss

        step = millrace.torch.TrainingStep(model, adamw(model), waits)
        with self.assertWarnsRegex(UserWarning, "it waits for the GPU at .*cuda_step_test.py"):
            for x, labels in batches(5):
                step(x.cuda(), labels.cuda())

    def test_many_plans_after_a_recording(self):
        """A recorded plan stays loaded."""
        torch._dynamo.reset()
        model = Model().cuda().eval()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0, fused=True)
        step = millrace.torch.TrainingStep(torch.compile(model, backend="millrace", options=OPTIONS), optimizer,
                                           loss_of)
        x, labels = (one.cuda() for one in batches(1)[0])
        expected = [step(x, labels).item() for _ in range(5)][-1]
        text = "A = 3\n\ndef f(x: float32[A]):\n    return x * 2\n"
        plan = millrace.find_plan(text, {}, "float32", device="cuda", hardware=torch.cuda.get_device_name())
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o700)
            for k in range(70):  # more than the operator keeps
                operator.run(str(shutil.copytree(plan, Path(folder, str(k)))), [torch.ones(3, device="cuda")], [1], [],
                             None)
        self.assertEqual(step(x, labels).item(), expected)


if __name__ == "__main__":
    unittest.main()
