"""The operators millrace::forward and millrace::backward in PyTorch: loading them, what they give for tensors without
data, and their gradient. bindings/torch/operator.cpp has the kernels."""

from __future__ import annotations

import functools

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


def _keep(ctx, inputs, output) -> None:
    path, tensors, pieces, numbers, random = inputs
    results, saved = output
    plan = plan_at(path)
    entries = entries_of(plan, pieces)
    kept = [tensor for tensor, of in zip(tensors, entries) if any(plan.arguments[k].read_by_backward for k in of)]
    kept += [result for result, info in zip(results, plan.results) if info.read_by_backward]
    ctx.save_for_backward(saved, *([] if random is None else [random]), *kept)
    ctx.has_random = random is not None
    ctx.path, ctx.pieces, ctx.numbers = path, pieces, numbers
    ctx.ranks = [tensor.dim() for tensor in tensors]
    ctx.sizes = [size for tensor in tensors for size in tensor.shape]
    ctx.differentiable = [is_differentiable(plan, of) for of in entries]


def _differentiate(ctx, gradients, _):
    saved, *kept = ctx.saved_tensors
    random = kept.pop(0) if ctx.has_random else None
    gradients = [gradient.contiguous() for gradient in gradients]
    made = iter(torch.ops.millrace.backward(ctx.path, gradients, kept, saved, ctx.pieces, ctx.ranks, ctx.sizes,
                                            ctx.numbers, random))
    # An empty list counts as a list of tensors.
    return None, [next(made) if there else None for there in ctx.differentiable], None, None if ctx.numbers else [], None


def _refuse(ctx, *gradients):
    raise RuntimeError("millrace: a plan has no second derivatives; differentiate once, or use PyTorch's own layer")


torch.library.register_autograd("millrace::forward", _differentiate, setup_context=_keep)
torch.library.register_autograd("millrace::backward", _refuse)


def run(path: str, tensors: list[torch.Tensor], pieces: list[int], numbers: list[float],
        random: torch.Tensor | None) -> list[torch.Tensor]:
    """The results of the plan's program, differentiable."""
    return torch.ops.millrace.forward(path, tensors, pieces, numbers, random)[0]


def draw_random(device: torch.device) -> torch.Tensor:
    """A seed and a step for one call's dropouts, from PyTorch's generator: its state, saved and restored, gives the same
    masks again."""
    return torch.randint(0, 2**63 - 1, (2,), dtype=torch.int64, device=device)
