"""A training run that the examples share: compiled model, TrainingStep, learning rates, checkpoints that continue with
the same bits, loss plots, several processes."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Callable

import torch
import torch.distributed as distributed
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
import loss_plot  # noqa: E402  (the path above comes first)
import millrace.torch  # noqa: E402
import processes  # noqa: E402

Batch = Callable[[int, int], dict[str, Tensor]]  # the sequences first, first + 1, …: arguments of the model


def add_options(parser: argparse.ArgumentParser, rate: float) -> None:
    """`rate`: the default of the learning rate."""
    parser.add_argument("--out", type=Path, required=True, help="folder of checkpoints and loss plots")
    parser.add_argument("--steps", type=int, default=100, help="steps of the optimizer, counted from the first")
    parser.add_argument("--batch", type=int, default=8, help="sequences for each process and call (default: 8)")
    parser.add_argument("--accumulate", type=int, default=1, help="calls for each step of the optimizer (default: 1)")
    parser.add_argument("--lr", type=float, default=rate)
    parser.add_argument("--warm-up", type=float, default=0.1, help="share of --schedule (default: 0.1)")
    parser.add_argument("--schedule", type=int, help="steps until the rate is zero (default: --steps)")
    parser.add_argument("--save-every", type=int, default=1000, metavar="STEPS")
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", choices=("millrace", "inductor", "eager"), default="millrace")
    parser.add_argument("--budget", help="time to explore each plan, such as 60s (default: none)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")


def rate(step: int, options: argparse.Namespace) -> float:
    """A linear warm-up, then a linear decay."""
    steps = options.schedule or options.steps
    warm_up = max(1, round(options.warm_up * steps))
    return min((step + 1) / warm_up, max(0.0, (steps - step) / max(1, steps - warm_up)))


def read(file: Path, device: str) -> dict:
    if not file.exists():
        raise SystemExit(f"error: there is no {file}; run what writes it first, without --resume")
    return torch.load(file, map_location=device, weights_only=True)


class Run:
    """A model that returns its loss, its optimizer, the losses so far, and the number of steps done. `name`: of the
    checkpoint and the plot; `stream`: another one has other dropout masks."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, options: argparse.Namespace, name: str,
                 title: str, stream: int = 0):
        self.model, self.optimizer, self.options = model, optimizer, options
        self.schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, options))
        self.done, self.losses = 0, []
        self.file, self._name, self._title, self._stream = options.out / f"{name}.pt", name, title, stream

    def resume(self) -> None:
        kept = read(self.file, self.options.device)
        self.model.load_state_dict(kept["model"], strict=False)  # frozen weights are not in the file
        self.optimizer.load_state_dict(kept["optimizer"])
        self.schedule.load_state_dict(kept["schedule"])
        self.done, self.losses = kept["done"], kept["losses"]

    def save(self) -> None:
        """Others see the file only when it is complete."""
        self.losses = [float(loss) for loss in self.losses]
        if processes.rank() != 0:
            return
        states = {"model": trained_state(self.model), "optimizer": self.optimizer.state_dict(),
                  "schedule": self.schedule.state_dict()}
        torch.save({**states, "done": self.done, "losses": self.losses}, self.file.with_suffix(".new"))
        os.replace(self.file.with_suffix(".new"), self.file)
        loss_plot.write(self.losses, self.file.with_suffix(".svg"), self._title)

    def train(self, batch: Batch) -> None:
        options = self.options
        called = _compiled(self.model, options)
        if distributed.is_initialized():
            called = DistributedDataParallel(called)
        weights = torch.bfloat16 if torch.device(options.device).type == "cuda" else None
        step = millrace.torch.TrainingStep(called, self.optimizer, max_norm=1.0, accumulate=options.accumulate,
                                           weights=weights)
        began = time.monotonic()
        while self.done < options.steps:
            self.losses.append(self._step(step, batch))
            self.done += 1
            self.schedule.step()
            if self.done % options.save_every == 0 or self.done == options.steps:
                self.save()
        if processes.rank() == 0 and self.losses:
            print(f"{self._name}: loss {self.losses[-1]:.4f} after {self.done} steps, "
                  f"{time.monotonic() - began:.1f} s; {step.runs}")

    def _step(self, step: millrace.torch.TrainingStep, batch: Batch) -> Tensor:
        """The mean loss of the batches of one step. Masks and sequences depend on its number alone."""
        losses = []
        for k in range(self.options.accumulate):
            number = (self.done * self.options.accumulate + k) * processes.count() + processes.rank()
            torch.manual_seed(self.options.seed * 1_000_003 + self._stream * 500_009 + number)
            given = batch(number * self.options.batch, self.options.batch)
            losses.append(step(**{name: one.to(self.options.device) for name, one in given.items()}))
        return torch.stack(losses).mean()


def trained_state(model: torch.nn.Module) -> dict[str, Tensor]:
    """The state dict without frozen weights."""
    frozen = {name for name, one in model.named_parameters(remove_duplicate=False) if not one.requires_grad}
    return {name: one for name, one in model.state_dict().items() if name not in frozen}


def _compiled(model: torch.nn.Module, options: argparse.Namespace) -> torch.nn.Module:
    if options.backend == "eager":
        return model
    ours = {"options": {"budget": options.budget}} if options.backend == "millrace" and options.budget else {}
    return torch.compile(model, backend=options.backend, **ours)
