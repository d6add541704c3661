"""Runs a training step as CUDA graphs, one for each kind of batch: the first calls of a kind run as they are, then one
is recorded and replayed on new batches. Test: tests/torch/training_step_test.py"""

from __future__ import annotations

from typing import Callable, NamedTuple

import torch
from torch.utils import _pytree

from millrace.torch import plans
from millrace.torch.cuda_recorder import NotRecorded

_CALLS_UNTIL_RECORDED = 3  # libraries, compilers and the optimizer's state are then ready
_MOST_GRAPHS = 8


class Batch(NamedTuple):
    """The arguments of a step, as a list."""

    leaves: list
    structure: object

    @staticmethod
    def of(arguments: tuple, named: dict) -> Batch:
        return Batch(*_pytree.tree_flatten((arguments, named)))

    def kind(self) -> tuple:
        """What all batches that one graph can run have in common."""
        return repr(self.structure), *(_kind(leaf) for leaf in self.leaves)

    def tensors(self) -> list[torch.Tensor]:
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def with_tensors(self, tensors: list[torch.Tensor]) -> Batch:
        rest = iter(tensors)
        return Batch([next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves], self.structure)

    def arguments(self) -> tuple[tuple, dict]:
        return _pytree.tree_unflatten(self.leaves, self.structure)


def _kind(leaf) -> object:
    if isinstance(leaf, torch.Tensor):
        return tuple(leaf.shape), leaf.dtype, leaf.device
    return type(leaf), repr(leaf)


class _Recorded(NamedTuple):
    replay: Callable[[], None]
    inputs: list[torch.Tensor]  # of a replay
    outputs: object


class StepGraphs:
    """`recorder`: a CudaRecorder. `why_not`: why new kinds of batches are not recorded; None if they are."""

    def __init__(self, recorder):
        self._recorder = recorder
        self._graphs: dict[tuple, _Recorded] = {}
        self._calls: dict[tuple, int] = {}
        self.why_not: str | None = None

    def forget(self) -> None:
        """Tensors that the graphs use have moved."""
        self._graphs.clear()

    def run(self, kind: tuple, batch: Batch, compute: Callable[[Batch], object]):
        """The result of `compute`. `kind`: all that its computation depends on, besides the numbers in the batch."""
        if kind not in self._graphs and self._is_ready(kind):
            self._record(kind, batch, compute)
        made = self._replay(kind, batch) if kind in self._graphs else self._call(kind, batch, compute)
        # copies on the caller's stream: the next replay overwrites these
        return _pytree.tree_map(lambda one: one.clone() if isinstance(one, torch.Tensor) else one, made)

    def _replay(self, kind: tuple, batch: Batch):
        recorded = self._graphs[kind]
        for mine, given in zip(recorded.inputs, batch.tensors()):
            mine.copy_(given, non_blocking=True)
        recorded.replay()
        return recorded.outputs

    def _is_ready(self, kind: tuple) -> bool:
        return self.why_not is None and self._calls.get(kind, 0) >= _CALLS_UNTIL_RECORDED

    def _call(self, kind: tuple, batch: Batch, compute: Callable[[Batch], object]):
        if self.why_not is None and kind not in self._calls and len(self._calls) >= _MOST_GRAPHS:
            self._give_up(f"there are more than {_MOST_GRAPHS} shapes and settings; pad batches to fewer lengths")
        if self.why_not is not None:
            return self._recorder.call(lambda: compute(batch))
        self._calls[kind] = self._calls.get(kind, 0) + 1
        if self._calls[kind] < _CALLS_UNTIL_RECORDED:
            return self._recorder.call(lambda: compute(batch))
        result, waits = self._recorder.call_and_watch(lambda: compute(batch))
        if waits is not None:
            self._give_up(waits)
        return result

    def _record(self, kind: tuple, batch: Batch, compute: Callable[[Batch], object]) -> None:
        inputs = [tensor.clone() for tensor in batch.tensors()]
        own = batch.with_tensors(inputs)
        try:
            replay, outputs = self._recorder.record(lambda: compute(own))
            self._graphs[kind] = _Recorded(replay, inputs, outputs)
        except NotRecorded as why:
            self._give_up(str(why))

    def _give_up(self, why: str) -> None:
        self.why_not = why
        plans.warn(f"TrainingStep calls each operator instead of a CUDA graph: {why}")
