"""Writers of elementwise operators, reductions, norms and losses. Test: tests/torch/importer_test.py"""

from __future__ import annotations

import torch
from torch import fx

from millrace.torch.aten_writer import (TYPE_NAMES, NotCovered, in_type, is_float, number, require_float, tensor,
                                        writes)

_UNARY = {"exp": "np.exp", "log": "np.log", "sqrt": "np.sqrt", "tanh": "np.tanh", "abs": "np.abs", "sin": "np.sin",
          "cos": "np.cos", "log1p": "np.log1p", "expm1": "np.expm1", "exp2": "np.exp2", "log2": "np.log2",
          "log10": "np.log10", "sign": "np.sign", "square": "np.square", "reciprocal": "np.reciprocal", "neg": "-",
          "relu": "relu", "sigmoid": "sigmoid", "silu": "silu", "erf": "erf"}
_BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_LOGIC = {"logical_and": "&", "bitwise_and": "&", "__and__": "&", "logical_or": "|", "bitwise_or": "|", "__or__": "|",
          "logical_xor": "^", "bitwise_xor": "^"}
_REDUCTIONS = {"sum": "np.sum", "mean": "np.mean", "amax": "np.max", "amin": "np.min", "logsumexp": "logsumexp"}


@writes(*_UNARY)
def _(w, node, a):
    require_float(a.self)
    function = _UNARY[node.target._opname]
    return in_type(f"-{w.text(a.self)}" if function == "-" else f"{function}({w.text(a.self)})", node, a.self)


def _as_float(w, node: fx.Node, operand) -> str:
    """An operand of an operator whose result is floating-point; one that is integer is converted."""
    if not isinstance(operand, fx.Node) or is_float(operand) or tensor(operand).dtype == torch.bool:
        require_float(operand)
        return w.text(operand)
    return f"{w.text(operand)}.astype({TYPE_NAMES[tensor(node).dtype]})"


@writes(*_BINARY)
def _(w, node, a):
    require_float(node)
    if getattr(a, "rounding_mode", None) is not None:
        raise NotCovered(f"a division that rounds ({a.rounding_mode})")
    other = _as_float(w, node, a.other)
    if getattr(a, "alpha", 1) != 1:
        other = f"{number(a.alpha)} * {other}"
    return in_type(f"{_as_float(w, node, a.self)} {_BINARY[node.target._opname]} {other}", node, a.self, a.other)


@writes("rsub")
def _(w, node, a):
    require_float(a.self, a.other)
    if a.alpha != 1:
        raise NotCovered("rsub with a factor")
    return in_type(f"{w.text(a.other)} - {w.text(a.self)}", node, a.self, a.other)


@writes("maximum", "minimum")
def _(w, node, a):
    require_float(a.self, a.other)
    return in_type(f"np.{node.target._opname}({w.text(a.self)}, {w.text(a.other)})", node, a.self, a.other)


@writes("rsqrt")
def _(w, node, a):
    require_float(a.self)
    return f"1 / np.sqrt({w.text(a.self)})"


@writes("pow")
def _(w, node, a):
    require_float(a.self)
    if isinstance(a.exponent, fx.Node) or not isinstance(a.self, fx.Node):
        raise NotCovered("a power whose exponent is a tensor")
    return f"{w.text(a.self)} ** {number(a.exponent)}"


@writes("clamp", "clip", "hardtanh")
def _(w, node, a):
    require_float(a.self)
    low, high = (a.min_val, a.max_val) if hasattr(a, "min_val") else (a.min, a.max)
    bounds = ", ".join("None" if limit is None else w.text(limit) for limit in (low, high))
    return f"np.clip({w.text(a.self)}, {bounds})"


@writes("gelu")
def _(w, node, a):
    return f"{'gelu' if a.approximate == 'none' else 'gelu_tanh'}({w.text(a.self)})"


@writes("softplus")
def _(w, node, a):
    if a.beta != 1 or a.threshold < 20:  # PyTorch's function is linear above it; from 20 on they differ by 2e-9 at most
        raise NotCovered("softplus with a beta other than 1 or a threshold below 20")
    return f"softplus({w.text(a.self)})"


@writes("dropout")
def _(w, node, a):
    if not 0 < a.p < 1:
        raise NotCovered(f"dropout with the probability {a.p}")
    return f"dropout({w.text(a.input)}, {a.p!r})"


@writes("to", "_to_copy", "type_as")
def _(w, node, a):
    given, wanted = tensor(a.self), tensor(node)
    if given.device != wanted.device:
        raise NotCovered(f"a copy from {given.device} to {wanted.device}")
    if wanted.dtype == torch.bool:
        return w.text(a.self) if given.dtype == torch.bool else f"{w.text(a.self)} != 0"
    if not wanted.is_floating_point():
        raise NotCovered(f"a conversion of {given.dtype} to {wanted.dtype}")
    if given.dtype == torch.bool:
        return f"np.where({w.text(a.self)}, 1.0, 0.0).astype({TYPE_NAMES[wanted.dtype]})"
    return f"{w.text(a.self)}.astype({TYPE_NAMES[wanted.dtype]})"


@writes(*_COMPARISONS)
def _(w, node, a):
    return f"{w.text(a.self)} {_COMPARISONS[node.target._opname]} {w.text(a.other)}"


@writes(*_LOGIC)
def _(w, node, a):
    _require_bool(a.self, a.other)
    return f"{w.text(a.self)} {_LOGIC[node.target._opname]} {w.text(a.other)}"


@writes("logical_not", "bitwise_not")
def _(w, node, a):
    _require_bool(a.self)
    return f"~{w.text(a.self)}"


def _require_bool(*operands) -> None:
    if any(tensor(operand).dtype != torch.bool for operand in operands):
        raise NotCovered("logic of integers")


@writes("where")
def _(w, node, a):
    require_float(node)
    _require_bool(a.condition)
    return in_type(f"np.where({w.text(a.condition)}, {w.text(a.self)}, {w.text(a.other)})", node, a.self, a.other)


@writes("masked_fill")
def _(w, node, a):
    require_float(node)
    return in_type(f"np.where({w.text(a.mask)}, {w.text(a.value)}, {w.text(a.self)})", node, a.self, a.value)


def axes(dim) -> str:
    if dim is None or dim == []:
        return ""
    listed = list(dim) if isinstance(dim, (list, tuple)) else [dim]
    return f", axis={listed[0] if len(listed) == 1 else tuple(listed)}"


@writes(*_REDUCTIONS)
def _(w, node, a):
    require_float(a.self)
    given = w.text(a.self)
    if getattr(a, "dtype", None) is not None and tensor(a.self).dtype != a.dtype:
        given = f"{given}.astype({TYPE_NAMES[a.dtype]})"
    kept = ", keepdims=True" if getattr(a, "keepdim", False) else ""
    return f"{_REDUCTIONS[node.target._opname]}({given}{axes(getattr(a, 'dim', None))}{kept})"


@writes("var", "std")
def _(w, node, a):
    correction = getattr(a, "correction", None)
    freedom = int(a.unbiased) if hasattr(a, "unbiased") else 1 if correction is None else correction
    kept = ", keepdims=True" if getattr(a, "keepdim", False) else ""
    return f"np.{node.target._opname}({w.text(a.self)}{axes(getattr(a, 'dim', None))}, ddof={freedom}{kept})"


@writes("softmax", "_softmax", "log_softmax", "_log_softmax")
def _(w, node, a):
    given = w.text(a.self)
    if not is_float(a.self) or getattr(a, "half_to_float", False):
        raise NotCovered("a softmax that converts its operand")
    if tensor(a.self).dtype != tensor(node).dtype:
        given = f"{given}.astype({TYPE_NAMES[tensor(node).dtype]})"
    return f"{node.target._opname.lstrip('_')}({given}, axis={a.dim})"


@writes("cumsum")
def _(w, node, a):
    require_float(a.self)
    return in_type(f"np.cumsum({w.text(a.self)}, axis={a.dim})", node, a.self)


def _optional(w, value) -> str:
    return "None" if value is None else w.text(value)


@writes("layer_norm")
def _(w, node, a):
    dim = -1 if len(a.normalized_shape) == 1 else tuple(range(-len(a.normalized_shape), 0))
    parameters = f"{_optional(w, a.weight)}, {_optional(w, a.bias)}, axis={dim}, eps={a.eps!r}"
    return in_type(f"layernorm({w.text(a.input)}, {parameters})", node, a.input, a.weight, a.bias)


@writes("rms_norm")
def _(w, node, a):
    dim = -1 if len(a.normalized_shape) == 1 else tuple(range(-len(a.normalized_shape), 0))
    eps = torch.finfo(tensor(a.input).dtype).eps if a.eps is None else a.eps
    return in_type(f"rmsnorm({w.text(a.input)}, {_optional(w, a.weight)}, axis={dim}, eps={eps!r})", node, a.input,
                   a.weight)


@writes("group_norm")
def _(w, node, a):
    return in_type(f"groupnorm({w.text(a.input)}, {a.num_groups}, {_optional(w, a.weight)}, {_optional(w, a.bias)}, "
                   f"eps={a.eps!r})", node, a.input, a.weight, a.bias)


@writes("cross_entropy_loss")
def _(w, node, a):
    """A sum over the positions whose label is not ignore_index. It is written with comparisons, because an ignored label
    is not a valid index in NumPy. Any other label outside the classes, an error in PyTorch, makes the loss infinite."""
    if a.weight is not None or a.label_smoothing != 0 or a.reduction not in (1, 2):
        raise NotCovered("a cross entropy with class weights, label smoothing or without reduction")
    if tensor(a.self).dim() != 2 or tensor(a.target).dim() != 1 or is_float(a.target):
        raise NotCovered("a cross entropy of logits other than [positions, classes]")
    classes, labels = tensor(a.self).shape[1], w.text(a.target)
    counted = w.let("counted", f"{labels} != {a.ignore_index}")
    chosen = w.let("chosen", f"{labels}[:, None] == np.arange({w.size(classes)})")
    if 0 <= a.ignore_index < classes:
        chosen = w.let("chosen", f"{chosen} & {counted}[:, None]")
    outside = w.let("outside", f"{counted} & (({labels} < 0) | ({labels} >= {w.size(classes)}))")
    total = f"-np.sum(np.where({chosen}, log_softmax({w.text(a.self)}), 0.0))"
    total = w.let("total", f"{total} + np.sum(np.where({outside}, np.inf, 0.0))")
    return total if a.reduction == 2 else f"{total} / np.sum(np.where({counted}, 1.0, 0.0))"


@writes("mse_loss")
def _(w, node, a):
    if a.reduction != 1:
        raise NotCovered("a mean squared error without mean")
    return f"np.mean(({w.text(a.self)} - {w.text(a.target)}) ** 2)"
