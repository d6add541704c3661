"""Loads the operators millrace::forward and millrace::backward, and defines their fake kernels and gradients. Their
kernels are in bindings/torch/operator.cpp.

`pieces` gives for each tensor the number of plan arguments that it holds: 3 for in_proj_weight, mostly 1."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

from millrace import _library
from millrace.plan import Plan
from millrace.torch import backward_thread
from millrace.torch.build import operator_library

_library.library()  # before the operator, so that it links to this one
torch.ops.load_library(str(operator_library()))

_NUMBERS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
DTYPE_NAMES = {dtype: name for name, dtype in _NUMBERS.items()}
DTYPES = {**_NUMBERS, "int32": torch.int32, "int64": torch.int64, "bool": torch.bool}


@functools.cache
def plan_at(path: str) -> Plan:
    """The plan, for its tensors' shapes only: the operator loads its own copy."""
    return Plan(path)


def entries_of(plan: Plan, pieces: list[int]) -> list[list[int]]:
    """For each tensor, the plan's arguments that it holds."""
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


class Call(NamedTuple):
    """The properties that all calls of a plan on tensors of the same shapes share."""

    path: str
    pieces: list[int]
    ranks: list[int]
    sizes: list[int]
    kept_tensors: list[int]  # read by backward
    kept_results: list[int]
    differentiable: list[bool]  # for each tensor


@functools.lru_cache(1024)
def call_of(path: str, pieces: tuple[int, ...], shapes: tuple[tuple[int, ...], ...]) -> Call:
    plan = plan_at(path)
    entries = entries_of(plan, list(pieces))
    return Call(path, list(pieces), [len(shape) for shape in shapes], [size for shape in shapes for size in shape],
                [k for k, held in enumerate(entries) if any(plan.arguments[one].read_by_backward for one in held)],
                [k for k, info in enumerate(plan.results) if info.read_by_backward],
                [is_differentiable(plan, held) for held in entries])


def _keep(ctx, call: Call, numbers, random, tensors, results, saved) -> None:
    ctx.save_for_backward(saved, random, *[tensors[k] for k in call.kept_tensors],
                          *[results[k] for k in call.kept_results])
    ctx.call, ctx.numbers = call, numbers


def _gradients(ctx, gradients) -> list[torch.Tensor | None]:
    saved, random, *kept = ctx.saved_tensors
    path, pieces, ranks, sizes, _, _, differentiable = ctx.call
    made = _backward(path, [gradient.contiguous() for gradient in gradients], kept, saved, pieces, ranks, sizes,
                     ctx.numbers, random)
    if len(made) == len(differentiable):
        return made
    rest = iter(made)
    return [next(rest) if has_gradient else None for has_gradient in differentiable]


def _setup(ctx, inputs, output) -> None:
    path, tensors, pieces, numbers, random = inputs
    call = call_of.__wrapped__(path, pieces, [tensor.shape for tensor in tensors])  # traced values may not be hashable
    _keep(ctx, call, numbers, random, tensors, *output)


def _differentiate(ctx, gradients, _):
    # PyTorch treats an empty list as a list of tensors.
    return None, _gradients(ctx, gradients), None, None if ctx.numbers else [], None


def _refuse(ctx, *gradients):
    raise RuntimeError("millrace: a plan has no second derivatives; differentiate once, or use PyTorch's own layer")


torch.library.register_autograd("millrace::forward", _differentiate, setup_context=_setup)
torch.library.register_autograd("millrace::backward", _refuse)
_forward, _backward = torch.ops.millrace.forward.default, torch.ops.millrace.backward.default
_below_autograd = torch._C._AutoDispatchBelowAutograd


class _Run(torch.autograd.Function):
    """The same gradient as register_autograd's, without its overhead per call: for eager mode."""

    @staticmethod
    def forward(ctx, call, numbers, random, *tensors):
        with _below_autograd():
            results, saved = _forward(call.path, tensors, call.pieces, numbers, random)
        _keep(ctx, call, numbers, random, tensors, results, saved)
        return tuple(results)

    @staticmethod
    def backward(ctx, *gradients):
        if torch.is_grad_enabled():  # for a second derivative, which _refuse reports
            return None, None, None, *_gradients(ctx, gradients)
        with _below_autograd():
            return None, None, None, *_gradients(ctx, gradients)


def is_plain() -> bool:
    """Whether calls run eagerly: not traced or transformed."""
    return not (torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active())


def run(path: str, tensors: list[torch.Tensor], pieces: list[int], numbers: list[float],
        random: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    """The differentiable results of the plan's program."""
    if not is_plain():
        return tuple(torch.ops.millrace.forward(path, tensors, pieces, numbers, random)[0])
    return run_call(call_of(path, tuple(pieces), tuple([tensor.shape for tensor in tensors])), tensors, numbers, random)


def run_call(call: Call, tensors: list[torch.Tensor], numbers: list[float],
             random: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    """As run, if is_plain(), for a call that call_of returned for tensors of these shapes."""
    if torch.is_grad_enabled():
        backward_thread.before_call(tensors[0].device)
    return _Run.apply(call, numbers, random, *tensors)


def draw_random(device: torch.device) -> torch.Tensor:
    """A seed and a step for the dropouts of one call, from PyTorch's generator. Restoring the generator's state
    reproduces the masks."""
    return torch.randint(0, 2**63 - 1, (2,), dtype=torch.int64, device=device)
