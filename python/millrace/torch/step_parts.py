"""The parts of a training step, as a training loop calls them. Test: tests/torch/training_step_test.py"""

from __future__ import annotations

import contextlib
from typing import Callable

import torch
from torch.utils import _pytree

from millrace.torch.working_weights import WorkingWeights


def own_loss(model: torch.nn.Module, *arguments, **named) -> torch.Tensor:
    """The loss that the model itself returns."""
    made = model(*arguments, **named)
    if isinstance(made, torch.Tensor):
        return made
    return made["loss"] if isinstance(made, dict) else made.loss if hasattr(made, "loss") else made[0]


class StepParts:
    """The arguments are those of TrainingStep."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, loss: Callable,
                 max_norm: float | None, accumulate: int, scaler: torch.amp.GradScaler | None,
                 weights: torch.dtype | None):
        self.model, self.optimizer, self.scaler, self.accumulate = model, optimizer, scaler, accumulate
        self._loss, self._max_norm = loss, max_norm
        self.weights = None if weights is None else WorkingWeights(model, weights)

    def parameters(self) -> list[torch.nn.Parameter]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def backward(self, arguments: tuple, named: dict, last: bool):
        """Forward, loss and backward. Returns what the loss function returns, detached."""
        with self.working_weights(), self._exchange(last):
            made = self._loss(self.model, *arguments, **named)
            loss = made[0] if isinstance(made, (tuple, list)) else made
            scaled = loss if self.accumulate == 1 else loss / self.accumulate
            (scaled if self.scaler is None else self.scaler.scale(scaled)).backward()
        if self.weights is not None:
            self.weights.take_gradients()
        return _pytree.tree_map(lambda one: one.detach() if isinstance(one, torch.Tensor) else one, made)

    def update(self) -> torch.Tensor | None:
        """Clips the gradients and calls the optimizer. Returns the norm before clipping, if they are clipped."""
        norm = self._clip()
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        if self.weights is not None:
            self.weights.refresh()
        return norm

    def clear(self) -> None:
        """Without gradients, the next backward writes them instead of adding to zeros."""
        self.optimizer.zero_grad(set_to_none=True)

    def working_weights(self):
        return contextlib.nullcontext() if self.weights is None else self.weights.in_model()

    def _clip(self) -> torch.Tensor | None:
        if self._max_norm is None:
            return None
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        return torch.nn.utils.clip_grad_norm_(self.parameters(), self._max_norm)

    def _exchange(self, last: bool):
        """Processes of DistributedDataParallel exchange only the sum of all batches' gradients."""
        model = getattr(self.model, "_orig_mod", self.model)
        return contextlib.nullcontext() if last or not hasattr(model, "no_sync") else model.no_sync()
