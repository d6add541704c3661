"""The operators millrace::forward and millrace::backward in PyTorch: loading them, what they give for tensors without
data, and their gradient. bindings/torch/operator.cpp has the kernels."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

from millrace import _library
from millrace.plan import Plan
from millrace.torch.build import operator_library

_library.library()  # before the operator, which then takes the same one
torch.ops.load_library(str(operator_library()))

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@functools.cache
def plan_at(path: str) -> Plan:
    """What a plan's tensors are. For asking only: the operator has plans of its own."""
    return Plan(path)


def entries_of(plan: Plan, pieces: list[int]) -> list[list[int]]:
    """For each tensor the arguments of the plan that it stands for."""
    tensors = iter(k for k, info in enumerate(plan.arguments) if not info.scalar)
    return [[next(tensors) for _ in range(count)] for count in pieces]


def is_differentiable(plan: Plan, entries: list[int]) -> bool:
    return not plan.argument_gradients[entries[0]].scalar


@torch.library.register_fake("millrace::forward")
def _(path, tensors, pieces, numbers, random):
    plan = plan_at(path)
    results = [tensors[0].new_empty(info.shape, dtype=DTYPES[info.dtype]) for info in plan.results]
    return results, tensors[0].new_empty([plan.saved_bytes], dtype=torch.uint8)


@torch.library.register_fake("millrace::backward")
def _(path, gradients, kept, saved, pieces, ranks, sizes, numbers, random):
    plan = plan_at(path)
    made, begin = [], 0
    for rank, entries in zip(ranks, entries_of(plan, pieces)):
        shape, begin = sizes[begin : begin + rank], begin + rank
        if is_differentiable(plan, entries):
            made.append(saved.new_empty(shape, dtype=DTYPES[plan.arguments[entries[0]].dtype]))
    return made


class Kept(NamedTuple):
    """Which of a call's tensors and results backward reads, and which tensors have a gradient."""

    tensors: list[int]
    results: list[int]
    differentiable: list[bool]


@functools.cache
def kept_of(path: str, pieces: tuple[int, ...]) -> Kept:
    plan = plan_at(path)
    entries = entries_of(plan, list(pieces))
    return Kept([k for k, of in enumerate(entries) if any(plan.arguments[entry].read_by_backward for entry in of)],
                [k for k, info in enumerate(plan.results) if info.read_by_backward],
                [is_differentiable(plan, of) for of in entries])


def _keep_call(ctx, path, tensors, pieces, numbers, random, results, saved) -> None:
    kept = kept_of(path, tuple(pieces))
    ctx.save_for_backward(saved, random, *[tensors[k] for k in kept.tensors], *[results[k] for k in kept.results])
    ctx.path, ctx.pieces, ctx.numbers, ctx.differentiable = path, pieces, numbers, kept.differentiable
    ctx.ranks = [tensor.dim() for tensor in tensors]
    ctx.sizes = [size for tensor in tensors for size in tensor.shape]


def _gradients(ctx, gradients) -> list[torch.Tensor | None]:
    saved, random, *kept = ctx.saved_tensors
    made = iter(torch.ops.millrace.backward(ctx.path, [gradient.contiguous() for gradient in gradients], kept, saved,
                                            ctx.pieces, ctx.ranks, ctx.sizes, ctx.numbers, random))
    return [next(made) if there else None for there in ctx.differentiable]


def _setup(ctx, inputs, output) -> None:
    _keep_call(ctx, *inputs, *output)


def _differentiate(ctx, gradients, _):
    # An empty list counts as a list of tensors.
    return None, _gradients(ctx, gradients), None, None if ctx.numbers else [], None


def _refuse(ctx, *gradients):
    raise RuntimeError("millrace: a plan has no second derivatives; differentiate once, or use PyTorch's own layer")


torch.library.register_autograd("millrace::forward", _differentiate, setup_context=_setup)
torch.library.register_autograd("millrace::backward", _refuse)


class _Run(torch.autograd.Function):
    """What register_autograd made of the operator, without its costs in every call: for eager mode."""

    @staticmethod
    def forward(ctx, path, pieces, numbers, random, *tensors):
        with torch._C._AutoDispatchBelowAutograd():
            results, saved = torch.ops.millrace.forward(path, tensors, pieces, numbers, random)
        _keep_call(ctx, path, tensors, pieces, numbers, random, results, saved)
        return tuple(results)

    @staticmethod
    def backward(ctx, *gradients):
        if torch.is_grad_enabled():  # second derivatives are asked for: autograd says that there are none
            return None, None, None, None, *_gradients(ctx, gradients)
        with torch._C._AutoDispatchBelowAutograd():
            return None, None, None, None, *_gradients(ctx, gradients)


def run(path: str, tensors: list[torch.Tensor], pieces: list[int], numbers: list[float],
        random: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    """The results of the plan's program, differentiable."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return tuple(torch.ops.millrace.forward(path, tensors, pieces, numbers, random)[0])
    return _Run.apply(path, pieces, numbers, random, *tensors)


def draw_random(device: torch.device) -> torch.Tensor:
    """A seed and a step for one call's dropouts, from PyTorch's generator: its state, saved and restored, gives the same
    masks again."""
    return torch.randint(0, 2**63 - 1, (2,), dtype=torch.int64, device=device)
