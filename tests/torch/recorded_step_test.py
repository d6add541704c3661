"""Tests a recorded TrainingStep without a GPU: a recorder that calls the recorded function again stands in for CUDA
graphs. What a real graph cannot follow (addresses, numbers in Python) is checked where it changes."""

from __future__ import annotations

import copy
import unittest
import unittest.mock
import warnings

import torch
from torch.utils import _pytree

import millrace.torch
from millrace.torch import step_graphs
from millrace.torch.cuda_recorder import CudaRecorder, NotRecorded
from millrace.torch.recorded_step import RecordedStep
from support import TorchTest
from training_step_test import Model, adamw, batches, loop, loss_of, schedule_of


class CallingRecorder:
    """Replays by calling. Recording leaves no trace, as with CUDA graphs."""

    def __init__(self, model, optimizer, waits=None, fails=None):
        self.model, self.optimizer, self.waits, self.fails = model, optimizer, waits, fails
        self.recorded = self.replayed = 0

    def call(self, function):
        return function()

    def call_and_watch(self, function):
        return function(), self.waits

    def record(self, function):
        if self.fails:
            raise NotRecorded(self.fails)
        self.recorded += 1
        outputs = self.without_effects(function)

        def replay():
            self.replayed += 1
            for mine, made in zip(_pytree.tree_leaves(outputs), _pytree.tree_leaves(function())):
                if mine is not None:
                    mine.copy_(made)

        return replay, outputs

    def without_effects(self, function):
        tensors = [*self.model.parameters(), *_pytree.tree_leaves(list(self.optimizer.state.values()))]
        tensors += [one.grad for one in self.model.parameters() if one.grad is not None]
        before = [one.detach().clone() for one in tensors]
        with torch.random.fork_rng([]):
            outputs = function()
        with torch.no_grad():
            for one, value in zip(tensors, before):
                one.copy_(value)
        return outputs


def fused(model):
    """An optimizer that can be recorded, and that runs on the CPU in that mode."""
    return adamw(model, fused=True)


class RecordedStepTest(TorchTest):
    def step_of(self, model, optimizer, *, waits=None, fails=None, **options):
        step = millrace.torch.TrainingStep(model, optimizer, loss_of, **options)
        self.recorder = CallingRecorder(model, optimizer, waits, fails)
        step._way = RecordedStep(step._parts, self.recorder)
        return step

    def check(self, given, *, make_optimizer=fused, make_schedule=lambda optimizer: None, tolerance=1e-5, **options):
        """A recorded step is compared with a loop. The tolerance is for learning rates, which are float32 in a graph."""
        torch.manual_seed(0)
        theirs = Model()
        ours = copy.deepcopy(theirs)
        torch.manual_seed(7)
        optimizer = make_optimizer(theirs)
        named = {name: options[name] for name in ("max_norm", "accumulate") if name in options}
        expected = loop(theirs, optimizer, given, schedule=make_schedule(optimizer), **named)
        torch.manual_seed(7)
        optimizer = make_optimizer(ours)
        step, schedule = self.step_of(ours, optimizer, **options), make_schedule(optimizer)
        found = []
        for x, labels in given:
            found.append(step(x, labels))
            if schedule and step.updated:
                schedule.step()
        torch.testing.assert_close(torch.stack(found), torch.tensor(expected), rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=tolerance, atol=tolerance)
        return step

    def test_one_graph_for_all_batches(self):
        step = self.check(batches(7), max_norm=0.1, make_schedule=schedule_of)
        self.assertEqual((self.recorder.recorded, self.recorder.replayed), (1, 4))
        self.assertEqual(step.runs, "a CUDA graph")
        self.assertGreater(step.gradient_norm.item(), 0)

    def test_the_users_optimizer_looks_as_before(self):
        model = Model()
        optimizer = fused(model)
        schedule = schedule_of(optimizer)
        step = self.step_of(model, optimizer)
        for x, labels in batches(5):
            step(x, labels)
            schedule.step()
        (group,) = optimizer.param_groups
        self.assertIsInstance(group["lr"], float)
        self.assertFalse(group["capturable"])
        self.assertTrue(all(one.grad is None for one in model.parameters()))

    def test_accumulation_shares_gradients(self):
        self.check(batches(18), accumulate=3, max_norm=0.1, make_schedule=schedule_of)
        self.assertEqual((self.recorder.recorded, self.recorder.replayed), (2, 12))

    def test_an_optimizer_that_cannot_be_recorded(self):
        with self.assertWarnsRegex(UserWarning, "SGD has no option 'capturable'"):
            step = self.check(batches(6), make_optimizer=lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=.9),
                              make_schedule=schedule_of)
        self.assertEqual(self.recorder.replayed, 3)
        self.assertIn("then calls of the optimizer: SGD", step.runs)

    def test_a_scaler_needs_a_fused_optimizer(self):
        model = Model()
        with self.assertWarnsRegex(UserWarning, "make the optimizer with fused=True"):
            self.step_of(model, adamw(model), scaler=torch.amp.GradScaler("cpu"))

    def test_a_scaler(self):
        model = Model().eval()
        step = self.step_of(model, fused(model), scaler=torch.amp.GradScaler("cpu", init_scale=4.0), max_norm=1.0)
        losses = [step(x, labels) for x, labels in batches(1) * 8]
        self.assertLess(losses[-1], losses[0])
        self.assertEqual(self.recorder.replayed, 5)

    def test_a_step_that_waits_is_called(self):
        with self.assertWarnsRegex(UserWarning, "it waits for the GPU at train.py:7") as caught:
            step = self.check(batches(6), waits="it waits for the GPU at train.py:7")
        self.assertEqual(caught.filename, __file__)
        self.assertEqual(self.recorder.recorded, 0)
        self.assertEqual(step.runs, "calls: it waits for the GPU at train.py:7")

    def test_a_recording_that_fails_is_called(self):
        with self.assertWarnsRegex(UserWarning, "operation not permitted"):
            self.check(batches(6), fails="operation not permitted when stream is capturing")

    def test_shapes_have_their_own_graphs_and_not_too_many(self):
        self.check([*batches(4, 3), *batches(4, 2), *batches(1, 3)])
        self.assertEqual((self.recorder.recorded, self.recorder.replayed), (2, 3))
        with unittest.mock.patch.object(step_graphs, "_MOST_GRAPHS", 1), \
                self.assertWarnsRegex(UserWarning, "more than 1 shapes"):
            self.check([*batches(4, 3), *batches(4, 2), *batches(1, 3)])
        self.assertEqual((self.recorder.recorded, self.recorder.replayed), (1, 2))

    def test_what_a_graph_cannot_follow_is_recorded_again(self):
        model = Model().eval()
        optimizer = fused(model)
        step = self.step_of(model, optimizer)
        (x, labels), = batches(1)

        def recordings() -> int:
            for _ in range(4):
                step(x, labels)
            return self.recorder.recorded

        self.assertEqual(recordings(), 1)
        optimizer.param_groups[0]["lr"] *= 0.5
        self.assertEqual(recordings(), 1)
        optimizer.param_groups[0]["weight_decay"] = 0.5
        self.assertEqual(recordings(), 2)
        model.train()
        self.assertEqual(recordings(), 3)
        model.head.weight.data = model.head.weight.data.clone()  # at another address
        self.assertEqual(recordings(), 4)
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        self.assertEqual(recordings(), 5)
        model.up.requires_grad_(False)
        self.assertEqual(recordings(), 6)
        with torch.autocast("cpu"):
            self.assertEqual(recordings(), 7)

    def test_gradients_that_the_user_removes(self):
        model = Model().eval()
        step = self.step_of(model, fused(model), accumulate=2)
        given = batches(1) * 8
        for x, labels in given:
            step(x, labels)
        model.zero_grad(set_to_none=True)
        for x, labels in given:
            step(x, labels)
        self.assertTrue(all(not one.grad.any() for one in model.parameters()))

    def test_working_weights(self):
        torch.manual_seed(0)
        model = Model().eval()
        other = copy.deepcopy(model)
        step = self.step_of(model, fused(model), weights=torch.bfloat16, max_norm=0.5)
        called = millrace.torch.TrainingStep(other, fused(other), loss_of, weights=torch.bfloat16, max_norm=0.5)
        for x, labels in batches(6):
            found, expected = (one(x.bfloat16(), labels) for one in (step, called))
            self.assert_close(found, expected)
        torch.testing.assert_close(model.state_dict(), other.state_dict(), rtol=1e-4, atol=1e-4)
        self.assertEqual(self.recorder.replayed, 3)


class WatchTest(TorchTest):
    def watched(self, *messages) -> tuple[str | None, list[str]]:
        """What call_and_watch reports, and the warnings that the user sees, if a call gives these."""
        recorder = CudaRecorder.__new__(CudaRecorder)

        def call(function):
            for message in messages:
                warnings.warn(message)

        recorder.call = call
        notice = "Synchronization debug mode is a prototype feature and does not yet detect all synchronizing operations"
        with unittest.mock.patch.object(torch.cuda, "set_sync_debug_mode", lambda mode: warnings.warn(notice)), \
                unittest.mock.patch.object(torch.cuda, "get_sync_debug_mode", lambda: 0), \
                warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            _, waits = recorder.call_and_watch(None)
        return waits, [str(one.message) for one in seen]

    def test_a_step_that_waits(self):
        waits, seen = self.watched("called a synchronizing CUDA operation (Triggered internally at …)")
        self.assertRegex(waits, "it waits for the GPU at .*recorded_step_test.py:[0-9]+")
        self.assertEqual(seen, [])

    def test_pytorchs_notice_about_its_mode_is_no_wait(self):
        self.assertEqual(self.watched("the user's"), (None, ["the user's"]))


if __name__ == "__main__":
    unittest.main()
