"""A training step as CUDA graphs, with the optimizer inside if it can be recorded.
Test: tests/torch/recorded_step_test.py"""

from __future__ import annotations

import contextlib

import torch

from millrace.torch import capturable, plans
from millrace.torch.step_graphs import Batch, StepGraphs
from millrace.torch.step_parts import StepParts


class RecordedStep:
    """`recorder`: a CudaRecorder.

    With one batch for each step of the optimizer, gradients exist only inside a graph. Otherwise several graphs, or
    graphs and calls, add to the same gradients; these stay at their addresses and are set to zero.
    """

    def __init__(self, parts: StepParts, recorder):
        self._parts, self._recorder, self._graphs = parts, recorder, StepGraphs(recorder)
        self._rates = capturable.LearningRates(parts.optimizer, parts.parameters()[0].device)
        self._outside = capturable.why_not(parts.optimizer, parts.scaler)
        self._kept: dict[torch.nn.Parameter, torch.Tensor] | None = None
        if self._outside is not None or parts.accumulate > 1:
            self._kept = {}
        if self._outside is not None:
            plans.warn(f"TrainingStep calls the optimizer outside of its CUDA graph: {self._outside}")
        self._addresses: tuple[int, ...] = ()
        parts.optimizer.register_load_state_dict_post_hook(lambda _: self._graphs.forget())

    @property
    def runs(self) -> str:
        if self._graphs.why_not is not None:
            return f"calls: {self._graphs.why_not}"
        return "a CUDA graph" if self._outside is None else (
            f"a CUDA graph, then calls of the optimizer: {self._outside}")

    def run(self, batch: Batch, last: bool) -> tuple[object, torch.Tensor | None]:
        """What the loss function returns, and the gradients' norm if they are clipped."""
        self._forget_if_moved()
        self._rates.update()
        self._attach()
        kind = (last, batch.kind(), *self._conditions())
        if self._outside is None:
            return self._graphs.run(kind, batch, lambda one: self._compute(one, last))
        made = self._graphs.run(kind, batch, lambda one: self._parts.backward(*one.arguments(), last))
        return made, self._recorder.call(self._update) if last else None

    def _compute(self, batch: Batch, last: bool):
        self._begin()
        made = self._parts.backward(*batch.arguments(), last)
        return made, self._update() if last else None

    def _begin(self) -> None:
        """A recording that failed may have left something."""
        torch.clear_autocast_cache()
        if self._kept is None:
            self._parts.clear()
        if self._parts.scaler is not None:
            self._parts.scaler._per_optimizer_states.clear()

    def _update(self) -> torch.Tensor | None:
        self._keep_gradients()
        with contextlib.nullcontext() if self._outside is not None else self._rates.in_optimizer():
            norm = self._parts.update()
        if self._kept is None:
            self._parts.clear()
        elif self._kept:
            torch._foreach_zero_(list(self._kept.values()))
        return norm

    def _keep_gradients(self) -> None:
        """Gradients of a first call stay."""
        if self._kept is not None:
            self._kept.update({one: one.grad for one in self._parts.parameters() if one.grad is not None})

    def _attach(self) -> None:
        """Puts gradients back that the user has removed."""
        for parameter, gradient in (self._kept or {}).items():
            if parameter.grad is None:
                parameter.grad = gradient.zero_()
            elif parameter.grad is not gradient:
                parameter.grad = gradient.copy_(parameter.grad)

    def _conditions(self) -> tuple:
        """All but the batch that the computation depends on."""
        device = self._parts.parameters()[0].device.type
        return (tuple(module.training for module in self._parts.model.modules()), plans.validity(),
                torch.is_autocast_enabled(device), torch.get_autocast_dtype(device),
                capturable.settings(self._parts.optimizer),
                tuple(parameter.requires_grad for parameter in self._parts.parameters()))

    def _forget_if_moved(self) -> None:
        found = tuple(parameter.data_ptr() for parameter in self._parts.parameters())
        if found != self._addresses:
            self._graphs.forget()
        self._addresses = found
