"""Copies of a model's float32 weights in a smaller type, for forward and backward; the optimizer keeps the float32
weights. So a step has no casts of weights. Test: tests/torch/training_step_test.py"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import torch
from torch.distributed.tensor import DTensor


class _Place(NamedTuple):
    """Where a module keeps a weight."""

    module: torch.nn.Module
    name: str
    weight: torch.nn.Parameter


class WorkingWeights:
    """One copy of each float32 parameter. A weight that several modules share has one copy."""

    def __init__(self, model: torch.nn.Module, dtype: torch.dtype):
        if any(isinstance(parameter, DTensor) for parameter in model.parameters()):
            raise ValueError("TrainingStep: weights= does not work with sharded weights; give fully_shard a "
                             "MixedPrecisionPolicy")
        self._places = [_Place(module, name, weight) for module in model.modules()
                        for name, weight in module._parameters.items()
                        if weight is not None and weight.dtype == torch.float32]
        self._copies = {place.weight: torch.nn.Parameter(place.weight.detach().to(dtype), place.weight.requires_grad)
                        for place in self._places}
        self._known = self._versions()

    @contextlib.contextmanager
    def in_model(self):
        """The model has the copies inside, and its own weights again afterwards."""
        self._refresh_if_changed()
        for module, name, weight in self._places:
            module._parameters[name] = self._copies[weight]
        try:
            yield
        finally:
            for module, name, weight in self._places:
                module._parameters[name] = weight

    @torch.no_grad()
    def take_gradients(self) -> None:
        """Adds the copies' gradients to those of the weights, in float32."""
        taken = [(weight, copy.grad) for weight, copy in self._copies.items() if copy.grad is not None]
        if not taken:
            return
        made = [torch.empty_like(weight, memory_format=torch.contiguous_format) for weight, _ in taken]
        torch._foreach_copy_(made, [gradient for _, gradient in taken])
        later = [(weight.grad, gradient) for (weight, _), gradient in zip(taken, made) if weight.grad is not None]
        for (weight, _), gradient in zip(taken, made):
            weight.grad = gradient if weight.grad is None else weight.grad
        if later:
            torch._foreach_add_([total for total, _ in later], [gradient for _, gradient in later])
        for copy in self._copies.values():
            copy.grad = None

    @torch.no_grad()
    def refresh(self) -> None:
        """Rounds the weights to the copies."""
        torch._foreach_copy_(list(self._copies.values()), list(self._copies))
        self._known = self._versions()

    def _versions(self) -> int:
        return sum(weight._version for weight in self._copies)

    def _refresh_if_changed(self) -> None:
        """Weights may have been loaded from a checkpoint."""
        if self._versions() != self._known:
            self.refresh()
