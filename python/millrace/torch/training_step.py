"""A training step: forward, loss, backward, gradient clipping and optimizer. On a GPU it is one CUDA graph; elsewhere
it makes the calls that a loop makes. Test: tests/torch/training_step_test.py"""

from __future__ import annotations

from typing import Callable

import torch
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from millrace.torch.cuda_recorder import CudaRecorder
from millrace.torch.recorded_step import RecordedStep
from millrace.torch.step_graphs import Batch
from millrace.torch.step_parts import StepParts, own_loss

_RUNS = ("graph", "calls")


class TrainingStep:
    """Does for each batch what a training loop does:

        step = millrace.torch.TrainingStep(model, optimizer, lambda model, x, y: cross_entropy(model(x), y))
        for x, y in batches:
            loss = step(x, y)
            schedule.step()

    `loss`: a function of the model and the batch; by default the model returns its loss. It may return a tuple whose
    first element is the loss. `max_norm`: clips the norm of the gradients. `accumulate`: batches for each step of the
    optimizer; their losses are averaged. `weights`: the type that the model computes with, such as torch.bfloat16, while
    the optimizer keeps float32 weights. `run`: "graph", or "calls" to record nothing.
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer,
                 loss: Callable[..., torch.Tensor | tuple] = own_loss, *, max_norm: float | None = None,
                 accumulate: int = 1, scaler: torch.amp.GradScaler | None = None, weights: torch.dtype | None = None,
                 run: str = "graph"):
        if run not in _RUNS:
            raise ValueError(f"TrainingStep: run is 'graph' or 'calls', not {run!r}")
        if accumulate < 1:
            raise ValueError(f"TrainingStep: accumulate is a number of batches, not {accumulate}")
        self._parts = StepParts(model, optimizer, loss, max_norm, accumulate, scaler, weights)
        why = "as asked" if run == "calls" else _why_not(self._parts)
        self._way = _Called(self._parts, why) if why is not None else RecordedStep(
            self._parts, CudaRecorder(self._parts.parameters()[0].device))
        self._done = 0  # batches since the last step of the optimizer
        self._norm: torch.Tensor | None = None

    def __call__(self, *batch, **named):
        """The loss of this batch, detached; with it whatever else the loss function returns."""
        last = self._done + 1 == self._parts.accumulate
        made, norm = self._way.run(Batch.of(batch, named), last)
        self._norm = norm if last else self._norm
        self._done = 0 if last else self._done + 1
        return made

    @property
    def updated(self) -> bool:
        """Whether the last call ended with a step of the optimizer. If not, it added to the gradients."""
        return self._done == 0

    @property
    def gradient_norm(self) -> torch.Tensor | None:
        """The norm of the gradients before they were clipped the last time; None without max_norm."""
        return self._norm

    @property
    def runs(self) -> str:
        """What a call runs: "a CUDA graph", or "calls" with the reason."""
        return self._way.runs

    def working_weights(self):
        """A context in which the model has the weights that it trains with, of the type `weights`: for validation."""
        return self._parts.working_weights()


class _Called:
    """A step that makes the calls of a loop."""

    def __init__(self, parts: StepParts, why: str):
        self._parts, self.runs = parts, f"calls: {why}"

    def run(self, batch: Batch, last: bool) -> tuple[object, torch.Tensor | None]:
        made = self._parts.backward(*batch.arguments(), last)
        if not last:
            return made, None
        norm = self._parts.update()
        self._parts.clear()
        return made, norm


def _why_not(parts: StepParts) -> str | None:
    """Why nothing can be recorded."""
    if any(isinstance(parameter, DTensor) for parameter in parts.parameters()):
        return "the weights are sharded (FSDP), and processes exchange them between the kernels"
    devices = {parameter.device for parameter in parts.parameters()}
    if len(devices) != 1 or next(iter(devices)).type != "cuda":
        return f"the weights are on {', '.join(sorted(map(str, devices)))}, and CUDA graphs need one GPU"
    if isinstance(getattr(parts.model, "_orig_mod", parts.model), DistributedDataParallel):
        return "DistributedDataParallel exchanges gradients between the kernels"
    return None
