"""Lets an optimizer run inside a CUDA graph: learning rates are tensors on the GPU, so that a schedule changes them
between replays. The user's optimizer looks as before. Test: tests/torch/training_step_test.py"""

from __future__ import annotations

import contextlib

import torch

_FREE = ("params", "lr", "capturable", "initial_lr")  # may change between replays, or never do


def why_not(optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler | None) -> str | None:
    """Why the optimizer cannot run inside a graph."""
    name = type(optimizer).__name__
    if any("capturable" not in group or "lr" not in group for group in optimizer.param_groups):
        return f"{name} has no option 'capturable'"
    if scaler is not None and scaler.is_enabled() and not getattr(optimizer, "_step_supports_amp_scaling", False):
        return f"GradScaler waits for the GPU before it calls {name}; make the optimizer with fused=True"
    return None


def settings(optimizer: torch.optim.Optimizer) -> tuple:
    """What a recorded optimizer cannot change: all options but the learning rate."""
    return tuple((name, repr(value)) for group in optimizer.param_groups for name, value in group.items()
                 if name not in _FREE)


class LearningRates:
    """One tensor on the device for each parameter group."""

    def __init__(self, optimizer: torch.optim.Optimizer, device: torch.device):
        self._optimizer, self._device = optimizer, device
        self._tensors: list[torch.Tensor] = []
        self._known: list[float | None] = []

    def update(self) -> None:
        """Takes over the rates that the user or a schedule has set."""
        for k, group in enumerate(self._optimizer.param_groups):
            if k == len(self._tensors):
                self._tensors.append(torch.zeros((), device=self._device))
                self._known.append(None)
            if isinstance(group["lr"], torch.Tensor):
                self._tensors[k].copy_(group["lr"])
            elif group["lr"] != self._known[k]:
                self._tensors[k].fill_(group["lr"])
                self._known[k] = group["lr"]

    @contextlib.contextmanager
    def in_optimizer(self):
        """The optimizer uses the tensors inside, and has the user's settings again afterwards."""
        groups = self._optimizer.param_groups
        before = [(group["lr"], group["capturable"]) for group in groups]
        for group, tensor in zip(groups, self._tensors):
            group["lr"], group["capturable"] = tensor, True
        self._move_counters()
        try:
            yield
        finally:
            for group, (rate, capturable) in zip(groups, before):
                group["lr"], group["capturable"] = rate, capturable

    def _move_counters(self) -> None:
        """Moves the step counters that a non-capturable optimizer keeps on the CPU."""
        for parameter, state in self._optimizer.state.items():
            counter = state.get("step")
            if isinstance(counter, torch.Tensor) and counter.device != parameter.device:
                state["step"] = counter.to(parameter.device, torch.float32)
