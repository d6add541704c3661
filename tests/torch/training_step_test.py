"""Tests TrainingStep by calls, on the CPU: the same bits as a loop written by hand."""

from __future__ import annotations

import copy
import unittest

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import millrace.torch
from support import TorchTest

OPTIONS = {"choose": "plan"}


class Model(nn.Module):
    """Two products with dropout between, and a weight that is used twice."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 6), nn.Linear(6, 8)
        self.norm, self.dropout = nn.LayerNorm(8), nn.Dropout(0.25)
        self.head = nn.Linear(8, 5, bias=False)
        self.again = nn.Linear(8, 5)
        self.again.weight = self.head.weight

    def forward(self, x):
        x = self.norm(x + self.dropout(self.down(torch.tanh(self.up(x)))))
        return self.head(x) + self.again(x)


def loss_of(model, x, labels):
    return cross_entropy(model(x), labels)


def batches(count: int, rows: int = 4) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(3)
    return [(torch.randn(rows, 8), torch.randint(0, 5, (rows,))) for _ in range(count)]


def adamw(model: nn.Module, **options) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2, **options)


def schedule_of(optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 1 / (k + 1))


def loop(model, optimizer, given, *, max_norm=None, accumulate=1, scaler=None, schedule=None) -> list[float]:
    """Written by hand."""
    losses = []
    for k, (x, labels) in enumerate(given):
        loss = loss_of(model, x, labels)
        scaled = loss / accumulate
        (scaler.scale(scaled) if scaler else scaled).backward()
        losses.append(loss.item())
        if (k + 1) % accumulate:
            continue
        if max_norm:
            if scaler:
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        optimizer.zero_grad()
        if schedule:
            schedule.step()
    return losses


class TrainingStepTest(TorchTest):
    def check(self, given, *, make_optimizer=adamw, make_scaler=lambda: None, make_schedule=lambda optimizer: None,
              **options) -> millrace.torch.TrainingStep:
        """Compares losses, weights and the optimizer's state with a loop's."""
        torch.manual_seed(0)
        theirs = Model()
        ours = copy.deepcopy(theirs)
        outcomes = []
        for model, run in ((theirs, loop), (ours, self.by_steps)):
            torch.manual_seed(7)
            optimizer, scaler = make_optimizer(model), make_scaler()
            losses = run(model, optimizer, given, scaler=scaler, schedule=make_schedule(optimizer), **options)
            outcomes.append((losses, model.state_dict(), optimizer.state_dict()["state"]))
        torch.testing.assert_close(*outcomes, rtol=0, atol=0, equal_nan=True)
        return self.step

    def by_steps(self, model, optimizer, given, *, schedule=None, **options) -> list[float]:
        self.step = millrace.torch.TrainingStep(model, optimizer, loss_of, **options)
        losses = []
        for x, labels in given:
            losses.append(self.step(x, labels).item())
            if schedule and self.step.updated:
                schedule.step()
        return losses

    def test_a_loop(self):
        step = self.check(batches(4))
        self.assertEqual(step.runs, "calls: the weights are on cpu, and CUDA graphs need one GPU")

    def test_clipping(self):
        step = self.check(batches(4), max_norm=0.1)
        self.assertGreater(step.gradient_norm.item(), 0.1)

    def test_accumulation(self):
        self.check(batches(6), accumulate=3, max_norm=0.1, make_schedule=schedule_of)

    def test_a_schedule(self):
        self.check(batches(4), make_schedule=schedule_of)

    def test_a_scaler(self):
        self.check(batches(4), make_scaler=lambda: torch.amp.GradScaler("cpu", init_scale=2.0**10), max_norm=0.1)

    def test_a_scaler_skips_steps_that_overflow(self):
        given = batches(3)
        given[1] = (given[1][0] * float("inf"), given[1][1])
        self.check(given, make_scaler=lambda: torch.amp.GradScaler("cpu", init_scale=2.0**10),
                   make_optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1))

    def test_resume(self):
        """Two steps, a checkpoint, and two more steps in new objects give the same as four steps."""
        given = batches(4)
        torch.manual_seed(0)
        whole = Model()
        first = copy.deepcopy(whole)
        torch.manual_seed(7)
        expected = loop(whole, adamw(whole), given)
        torch.manual_seed(7)
        optimizer = adamw(first)
        found = self.by_steps(first, optimizer, given[:2])
        kept = copy.deepcopy((first.state_dict(), optimizer.state_dict(), torch.get_rng_state()))
        second = Model()
        resumed = adamw(second)
        second.load_state_dict(kept[0])
        resumed.load_state_dict(kept[1])
        torch.set_rng_state(kept[2])
        found += self.by_steps(second, resumed, given[2:])
        self.assertEqual(found, expected)
        torch.testing.assert_close(second.state_dict(), whole.state_dict(), rtol=0, atol=0)

    def test_the_models_own_loss_and_more_results(self):
        model = Model().eval()
        (x, labels), = batches(1)
        step = millrace.torch.TrainingStep(model, adamw(model), lambda model, x: (model(x).square().mean(), model(x)))
        expected = model(x)
        loss, logits = step(x)
        self.assertTrue(torch.equal(logits, expected))
        self.assertFalse(loss.requires_grad or logits.requires_grad)

        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = Model().eval()

            def forward(self, x, labels):
                return {"loss": loss_of(self.inner, x, labels)}

        own = Own()
        expected = own(x, labels)["loss"].item()
        self.assertEqual(millrace.torch.TrainingStep(own, adamw(own))(x, labels=labels).item(), expected)

    def test_working_weights(self):
        """The same as master weights written by hand: backward in bfloat16, the optimizer in float32."""
        torch.manual_seed(0)
        model = Model().eval()
        masters = copy.deepcopy(model)
        optimizer, theirs = adamw(model), adamw(masters)
        step = millrace.torch.TrainingStep(model, optimizer, loss_of, weights=torch.bfloat16, accumulate=2)
        for k, (x, labels) in enumerate(batches(6)):
            x = x.bfloat16()
            working = copy.deepcopy(masters).bfloat16()
            loss = loss_of(working, x, labels)
            (loss / 2).backward()
            for master, weight in zip(masters.parameters(), working.parameters()):
                master.grad = weight.grad.float() + (0 if master.grad is None else master.grad)
            if k % 2:
                theirs.step()
                theirs.zero_grad()
            self.assertEqual(step(x, labels).item(), loss.item())
        torch.testing.assert_close(model.state_dict(), masters.state_dict(), rtol=0, atol=0)
        self.assertIs(model.head.weight, model.again.weight)
        with step.working_weights():
            self.assertEqual(model.head.weight.dtype, torch.bfloat16)
            self.assertIs(model.head.weight, model.again.weight)
            self.assertTrue(torch.equal(model.head.weight, masters.head.weight.bfloat16()))
        model.load_state_dict({name: value + 1 for name, value in masters.state_dict().items()})
        with step.working_weights():
            self.assertTrue(torch.equal(model.head.weight, (masters.head.weight + 1).bfloat16()))

    def test_a_compiled_model(self):
        torch._dynamo.reset()
        model = Model()
        run = torch.compile(model, backend="millrace", options=OPTIONS)
        given = batches(3)
        torch.manual_seed(7)
        start = copy.deepcopy(model.state_dict())
        expected = loop(run, adamw(model), given)
        model.load_state_dict(start)
        torch.manual_seed(7)
        self.assertEqual(self.by_steps(run, adamw(model), given), expected)

    def test_wrong_arguments(self):
        model = Model()
        with self.assertRaisesRegex(ValueError, "run is 'graph' or 'calls', not 'fast'"):
            millrace.torch.TrainingStep(model, adamw(model), run="fast")
        with self.assertRaisesRegex(ValueError, "accumulate is a number of batches, not 0"):
            millrace.torch.TrainingStep(model, adamw(model), accumulate=0)


if __name__ == "__main__":
    unittest.main()
