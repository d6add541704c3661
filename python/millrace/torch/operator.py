"""Loads the operators millrace::forward and millrace::backward, and defines their fake kernels and gradients. Their
kernels are in bindings/torch/operator.cpp.

`pieces` gives for each tensor the number of plan arguments that it holds: 3 for in_proj_weight, mostly 1."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch.autograd import forward_ad

from millrace import _library
from millrace._library import MillraceError, TensorInfo
from millrace.plan import Plan
from millrace.torch import backward_thread
from millrace.torch.build import operator_library

_library.library()  # before the operator, so that it links to this one
torch.ops.load_library(str(operator_library()))

_NUMBERS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
DTYPE_NAMES = {dtype: name for name, dtype in _NUMBERS.items()}
DTYPES = {**_NUMBERS, "int32": torch.int32, "int64": torch.int64, "bool": torch.bool}


class Shapes(NamedTuple):
    """The tensors of a plan. Keeps no file open, as a loaded plan does."""

    arguments: list[TensorInfo]
    results: list[TensorInfo]
    argument_gradients: list[TensorInfo]
    saved_bytes: int


@functools.cache
def plan_at(path: str) -> Shapes:
    """Loads the plan for a moment; the operator loads it again."""
    plan = Plan(path)
    return Shapes(plan.arguments, plan.results, plan.argument_gradients, plan.saved_bytes)


def entries_of(plan: Shapes, pieces: list[int]) -> list[list[int]]:
    """For each tensor, the plan's arguments that it holds."""
    tensors = iter(k for k, info in enumerate(plan.arguments) if not info.scalar)
    return [[next(tensors) for _ in range(count)] for count in pieces]


def is_differentiable(plan: Shapes, entries: list[int]) -> bool:
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
_CANNOT_LOAD = "millrace: the plan cannot be loaded"  # the start of a message of operator.cpp


_NO_FORWARD_MODE = ("millrace: a plan has no forward-mode derivatives (jvp, jacfwd, dual numbers); use reverse mode "
                    "(vjp, jacrev, grad), or PyTorch's own functions")


def _refuse_forward_mode(ctx, *tangents):
    raise RuntimeError(_NO_FORWARD_MODE)


class _Run(torch.autograd.Function):
    """The same gradient as register_autograd's, without its overhead per call: for eager mode."""

    jvp = staticmethod(_refuse_forward_mode)

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


def _one_by_one(function, info, in_dims, arguments) -> tuple[tuple, tuple]:
    """Runs a function for each element of a vmap: a plan is for one shape."""
    if info.batch_size == 0:
        raise ValueError("millrace: vmap runs a plan for each element, and there is none: skip empty batches")
    outcomes = []
    for k in range(info.batch_size):
        outcomes.append(function(*[value.select(dim, k).contiguous() if isinstance(dim, int) else value
                                   for value, dim in zip(arguments, in_dims)]))
    return tuple(map(torch.stack, zip(*outcomes))), (0,) * len(outcomes[0])


class _TransformedBackward(torch.autograd.Function):
    """The gradients of _Transformed. Its tensors are the results' gradients, `saved` and what was kept."""

    jvp = staticmethod(_refuse_forward_mode)
    backward = staticmethod(_refuse)

    @staticmethod
    def forward(call, numbers, random, *tensors):
        count = len(plan_at(call.path).results)
        gradients = [gradient.contiguous() for gradient in tensors[:count]]
        saved, *kept = tensors[count:]
        return tuple(_backward(call.path, gradients, kept, saved, call.pieces, call.ranks, call.sizes, numbers, random))

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, *arguments):
        return _one_by_one(_TransformedBackward.apply, info, in_dims, arguments)


class _Transformed(torch.autograd.Function):
    """The same as _Run, for calls that torch.func transforms. Returns the results and `saved`."""

    jvp = staticmethod(_refuse_forward_mode)

    @staticmethod
    def forward(call, numbers, random, *tensors):
        results, saved = _forward(call.path, list(tensors), call.pieces, numbers, random)
        return *results, saved

    @staticmethod
    def setup_context(ctx, inputs, output):
        call, numbers, random, *tensors = inputs
        ctx.mark_non_differentiable(output[-1])
        _keep(ctx, call, numbers, random, tensors, output[:-1], output[-1])

    @staticmethod
    def backward(ctx, *gradients):
        saved, random, *kept = ctx.saved_tensors
        made = iter(_TransformedBackward.apply(ctx.call, ctx.numbers, random, *gradients[:-1], saved, *kept))
        return None, None, None, *[next(made) if has_gradient else None for has_gradient in ctx.call.differentiable]

    @staticmethod
    def vmap(info, in_dims, *arguments):
        return _one_by_one(_Transformed.apply, info, in_dims, arguments)


def has_tangent(tensor: torch.Tensor) -> bool:
    """Whether forward-mode derivatives are computed along this tensor."""
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None


def is_plain() -> bool:
    """Whether calls run eagerly: not traced or transformed."""
    return not (torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
                or forward_ad._current_level >= 0)


def run(path: str, tensors: list[torch.Tensor], pieces: list[int], numbers: list[float],
        random: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    """The differentiable results of the plan's program. Raises MillraceError if the plan cannot be loaded."""
    if torch.compiler.is_compiling():
        return tuple(torch.ops.millrace.forward(path, tensors, pieces, numbers, random)[0])
    call = call_of(path, tuple(pieces), tuple([tensor.shape for tensor in tensors]))
    if torch._C._are_functorch_transforms_active():
        return _Transformed.apply(call, numbers, random, *tensors)[:-1]
    return run_call(call, tensors, numbers, random)


def run_call(call: Call, tensors: list[torch.Tensor], numbers: list[float],
             random: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    """The same as run, if is_plain(), for a call that call_of returned for tensors of these shapes."""
    if torch.is_grad_enabled():
        backward_thread.before_call(tensors[0].device)
    try:
        return _Run.apply(call, numbers, random, *tensors)
    except RuntimeError as error:
        if _CANNOT_LOAD not in str(error):
            raise
        raise MillraceError(str(error)) from error


def draw_random(device: torch.device) -> torch.Tensor:
    """A seed and a step for the dropouts of one call, from PyTorch's generator. Restoring the generator's state
    reproduces the masks."""
    return torch.randint(0, 2**63 - 1, (2,), dtype=torch.int64, device=device)
