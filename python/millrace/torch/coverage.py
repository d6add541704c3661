"""Which calls a plan covers, and how their tensors are converted: shared by the layers."""

from __future__ import annotations

import sys
from operator import index as fixed  # makes a size a guard under torch.compile: a plan is for one shape

import torch
from torch import nn
from torch.nn import functional

from millrace.torch.operator import DTYPE_NAMES, has_tangent

_FORWARD_MODE = "forward-mode derivatives (torch.func.jvp, jacfwd) are computed"
_CAPTURING = "transformers.utils.output_capturing"
_ACTIVATIONS = {functional.relu: "relu", torch.relu: "relu", functional.gelu: "gelu", functional.silu: "silu"}
# The score of a masked key. exp of it is 0 in any row that has an unmasked key. It is finite, so a row of masked keys
# only yields equal weights instead of NaN.
_HIDDEN = {torch.float16: -3e4, torch.bfloat16: -1e30, torch.float32: -1e30, torch.float64: -1e30}


def activation_name(activation) -> str | None:
    """The language's function for it, or None."""
    try:
        if (name := _ACTIVATIONS.get(activation)) is not None:
            return name
    except TypeError:  # not hashable
        return None
    if isinstance(activation, nn.GELU):
        return {"none": "gelu", "tanh": "gelu_tanh"}.get(activation.approximate)
    if isinstance(activation, nn.ReLU):
        return "relu"
    return "silu" if isinstance(activation, nn.SiLU) else None


def fixed_number(x: float) -> float:
    """The number, which torch.compile treats as a constant and guards, because it is the key of a set."""
    (number,) = {float(x)}
    return number


def working_dtype(x: torch.Tensor) -> torch.dtype:
    """The dtype of the call: autocast's if it is enabled and applies, else the input's."""
    kind = x.device.type
    if x.dtype != torch.float64 and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return x.dtype


def why_not_tensor(x: torch.Tensor, name: str) -> str | None:
    if x.is_nested:
        return f"{name} is a nested tensor"
    if x.layout != torch.strided:
        return f"{name} is {x.layout}; plans take dense tensors"
    if x.device.type not in ("cpu", "cuda"):
        return f"{name} is on {x.device}; plans run on the CPU and on CUDA"
    if x.dtype not in DTYPE_NAMES:
        return f"{name} is {x.dtype}"
    if x.numel() == 0:
        return f"{name} has no elements"
    return _FORWARD_MODE if has_tangent(x) else None


def why_not_parameters(parameters: list[torch.Tensor], x: torch.Tensor) -> str | None:
    """`parameters`: those that the plan takes without conversion."""
    dtype, device = x.dtype, x.device
    casts = working_dtype(x) != dtype
    for parameter in parameters:
        if type(parameter) is not nn.Parameter and type(parameter) is not torch.Tensor:
            return f"a parameter is a {type(parameter).__name__}"
        if parameter.device != device:
            return f"the input is on {device} and a parameter on {parameter.device}"
        if parameter.dtype != dtype and not casts:
            return f"the input is {dtype} and a parameter {parameter.dtype}"
        if has_tangent(parameter):
            return _FORWARD_MODE
    return None


def _is_capture(hook) -> bool:
    """A hook that transformers leaves after a call with output_hidden_states. It does nothing in other calls."""
    return getattr(hook, "__module__", "") == _CAPTURING


def captured_outputs() -> set[str]:
    """What transformers captures in this call: hidden_states, attentions."""
    collector = getattr(sys.modules.get(_CAPTURING), "_active_collector", None)
    captured = None if collector is None else collector.get()
    return set() if captured is None else {key for key in captured if not key.startswith("_")}


def has_hooks(module: nn.Module) -> bool:
    if module._forward_hooks and not all(map(_is_capture, module._forward_hooks.values())):
        return True
    return bool(module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks)


def why_not_modules(modules: tuple[tuple[str, nn.Module, type], ...]) -> str | None:
    """A plan replaces these submodules, so each must have exactly the expected class and no hooks."""
    for name, module, kind in modules:
        if type(module) is not kind:
            return f"{name} is a {type(module).__name__}"
        if has_hooks(module):
            return f"{name} has hooks, which a plan does not call"
    return None


def ready(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The tensor itself if it has this dtype and is contiguous, else a copy."""
    return tensor if tensor.dtype == dtype and tensor.is_contiguous() else tensor.to(dtype).contiguous()


def separate_unaligned(tensors: list[torch.Tensor], pieces: list[int]) -> tuple[list[torch.Tensor], list[int]]:
    """Copies stacked parameters into separate tensors if one would not be 16-byte aligned on a GPU, which is rare."""
    if tensors[0].device.type == "cpu" or all(
            count == 1 or tensor.numel() // count * tensor.element_size() % 16 == 0
            for tensor, count in zip(tensors, pieces)):
        return tensors, pieces
    made: list[torch.Tensor] = []
    for tensor, count in zip(tensors, pieces):
        made += [tensor] if count == 1 else [piece.clone() for piece in tensor.chunk(count)]
    return made, [1] * len(made)


class Mask:
    """An additive mask: its axes, a key of programs.MASKS, and its tensor; None if there is no mask."""

    def __init__(self, axes: str = "", tensor: torch.Tensor | None = None):
        self.axes, self.tensor = axes, tensor

    @staticmethod
    def why_not(name: str, mask: torch.Tensor | None, shapes: list[tuple[int, ...]]) -> str | None:
        if mask is None:
            return None
        if mask.requires_grad:
            return f"{name} requires a gradient"
        if not (mask.dtype == torch.bool or mask.is_floating_point()):
            return f"{name} is {mask.dtype}"
        if tuple(mask.shape) not in shapes:
            return f"{name} is {list(mask.shape)}, not {' or '.join(str(list(shape)) for shape in shapes)}"
        return None

    @staticmethod
    def additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        hidden = _HIDDEN[dtype]
        if mask.dtype == torch.bool:
            return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(mask, hidden)
        return mask.detach().to(dtype).clamp(min=hidden)

    @classmethod
    def of(cls, attention: torch.Tensor | None, padding: torch.Tensor | None, batch: int, heads: int,
           dtype: torch.dtype) -> Mask:
        """Combines nn's two masks: [J, K] or [B * H, J, K], and [B, K]."""
        if attention is None:
            return cls() if padding is None else cls("BK", cls.additive(padding, dtype).contiguous())
        made = cls.additive(attention, dtype)
        if made.dim() == 2 and padding is None:
            return cls("JK", made.contiguous())
        if made.dim() == 3:
            made = made.view(batch, heads, *made.shape[1:])
            if padding is not None:
                made = made + cls.additive(padding, dtype)[:, None, None, :]
            return cls("BHJK", made.contiguous())
        return cls("BJK", (made + cls.additive(padding, dtype)[:, None, :]).contiguous())
