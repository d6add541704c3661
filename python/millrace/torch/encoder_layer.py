"""torch.nn.TransformerEncoderLayer that runs plans."""

from __future__ import annotations

from operator import is_

import torch
from torch import nn

from millrace._library import MillraceError
from millrace.torch import coverage, operator, plans, programs
from millrace.torch.coverage import Mask

_CALLS = "_millrace_calls"  # the attribute of a module that holds its earlier calls, by _call_key
_MOST_CALLS = 64
_NO_NUMBERS: list[float] = []


class TransformerEncoderLayer(nn.TransformerEncoderLayer):
    """Like torch.nn.TransformerEncoderLayer: constructor, parameters, state dict, arguments and results. Forward and
    backward run a plan for the call's shape. Calls that no plan covers fall back to PyTorch, with a warning.
    """

    def forward(self, src: torch.Tensor, src_mask: torch.Tensor | None = None,
                src_key_padding_mask: torch.Tensor | None = None, is_causal: bool = False) -> torch.Tensor:
        if src_mask is None and src_key_padding_mask is None and operator.is_plain():
            out = self._run_again(src, is_causal)
            if out is not None:
                return out
        why = self._why_not(src, src_mask, src_key_padding_mask, is_causal)
        if why is None:
            out, why = self._run(src, src_mask, src_key_padding_mask, is_causal)
            if why is None:
                return out
        plans.fall_back(self, why)
        if is_causal and src_mask is None and src.dim() in (2, 3):
            length = src.shape[-2] if self.self_attn.batch_first or src.dim() == 2 else src.shape[0]
            src_mask = nn.Transformer.generate_square_subsequent_mask(length, device=src.device, dtype=src.dtype)
        return super().forward(src, src_mask, src_key_padding_mask, is_causal)

    def __getstate__(self) -> dict:
        return {name: value for name, value in self.__dict__.items() if name != _CALLS}

    def _submodules(self) -> tuple[nn.Module, ...]:
        """The submodules that the plan replaces. Dictionary lookups are faster than attributes of a module."""
        modules = self._modules
        attention = modules["self_attn"]
        return (attention, attention._modules["out_proj"], modules["linear1"], modules["linear2"], modules["norm1"],
                modules["norm2"], modules["dropout"], modules["dropout1"], modules["dropout2"])

    def _parameters_in_order(self) -> tuple[list[torch.Tensor], list[int]]:
        """The parameters in the program's order, and how many of its arguments each one holds."""
        modules = self._submodules()
        made = _parameters_of(modules)
        threes = 1 if modules[0]._parameters["in_proj_bias"] is None else 2
        return made, [3] * threes + [1] * (len(made) - threes)

    def _why_never(self) -> str | None:
        """Why no call of the layer as it is now runs a plan."""
        attention, out_proj, linear1, linear2, norm1, norm2, dropout, dropout1, dropout2 = self._submodules()
        linear, norm = nn.Linear, nn.LayerNorm
        why = coverage.why_not_modules((
            ("self_attn.out_proj", out_proj, nn.modules.linear.NonDynamicallyQuantizableLinear),
            ("linear1", linear1, linear), ("linear2", linear2, linear), ("norm1", norm1, norm), ("norm2", norm2, norm),
            ("dropout", dropout, nn.Dropout), ("dropout1", dropout1, nn.Dropout), ("dropout2", dropout2, nn.Dropout)))
        if why is not None:
            return why
        if coverage.has_hooks(attention):
            return "self_attn has hooks, which a plan does not call"
        own, bias = attention._parameters, linear1._parameters["bias"]
        if own["in_proj_weight"] is None or attention.bias_k is not None or attention.add_zero_attn:
            return "self_attn differs from the one that the layer constructs"
        if coverage.activation_name(self.activation) is None:
            return f"the activation is {getattr(self.activation, '__name__', self.activation)!r}"
        if norm1._parameters["weight"] is None or (norm1._parameters["bias"] is None) != (bias is None):
            return "the norms differ from those that the layer constructs"
        return None

    def _why_not(self, src, src_mask, padding, is_causal) -> str | None:
        if why := coverage.why_not_tensor(src, "src") or self._why_never():
            return why
        attention, _, _, _, _, _, dropout, dropout1, dropout2 = self._submodules()
        if src.dim() not in (2, 3) or src.shape[-1] != attention.embed_dim:
            return f"src is {list(src.shape)}"
        if self.training and max(attention.dropout, dropout.p, dropout1.p, dropout2.p) >= 1:
            return "a dropout probability is 1"
        if src_mask is not None or padding is not None:
            batch, length = self._sizes(src)
            by_head = [(length, length), (batch * attention.num_heads, length, length)]
            of_keys = [(batch, length)] if src.dim() == 3 else [(length,)]
            if why := (Mask.why_not("src_mask", src_mask, by_head)
                       or Mask.why_not("src_key_padding_mask", padding, of_keys)):
                return why
        return coverage.why_not_parameters(self._parameters_in_order()[0], src)

    # ---- Fast path for repeated calls without masks: the host must take less time than the GPU ----

    def _run_again(self, src: torch.Tensor, is_causal: bool) -> torch.Tensor | None:
        """The result, or None if the call needs the full checks."""
        calls = self.__dict__.get(_CALLS)
        # Other devices may not know autocast, and other tensors have no strides.
        if calls is None or src.is_nested or src.layout != torch.strided or not (src.is_cpu or src.is_cuda):
            return None
        try:
            modules = self._submodules()
            # Faster than attributes of a module, which are looked up in several dictionaries.
            fields = [module.__dict__ for module in modules]
            parameters = _parameters_of(modules)
            call, draws = calls[self._call_key(src, is_causal, modules, fields, parameters)]
        except KeyError:  # a new call, or a changed submodule
            return None
        dtype, device = src.dtype, src.device
        tensors = (src, *parameters)
        for tensor in tensors:
            if tensor.dtype is not dtype or tensor.device != device or not tensor.is_contiguous():
                return None
        for own in fields:
            if (own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"]
                    or own["_backward_pre_hooks"]):
                return None
        random = operator.draw_random(device) if draws else None
        try:
            out = operator.run_call(call, tensors, _NO_NUMBERS, random)[0]
        except MillraceError:  # the plan was released and cannot be loaded again: the full checks say so
            return None
        plans.note_plan(self, call.path)
        return out

    def _call_key(self, src: torch.Tensor, is_causal: bool, modules: tuple, fields: list[dict],
                  parameters: list) -> tuple:
        """Everything that determines the plan of a call without masks, except what _run_again checks itself. Refers to
        no module and no tensor."""
        attention, _, linear1, _, norm1, norm2, dropout, dropout1, dropout2 = fields
        own, device = self.__dict__, src.device
        return (type(src), src.shape, src.dtype, device, torch.is_autocast_enabled(device.type), is_causal,
                own["training"], own["norm_first"], coverage.activation_name(self.activation), attention["batch_first"],
                attention["num_heads"], attention["head_dim"], attention["embed_dim"], attention["dropout"],
                attention["add_zero_attn"], attention["bias_k"] is None, linear1["out_features"], norm1["eps"],
                norm2["eps"], dropout["p"], dropout1["p"], dropout2["p"], plans.validity(), *map(type, modules),
                *map(type, parameters))

    def _remember(self, src: torch.Tensor, is_causal: bool, path: str, pieces: list[int], draws: bool,
                  tensors: list[torch.Tensor]) -> None:
        """`tensors`: those passed to the operator. Calls that converted or added a tensor are not remembered."""
        modules = self._submodules()
        parameters = _parameters_of(modules)
        given = (src, *parameters)
        if (type(modules[0]) is not nn.MultiheadAttention or len(tensors) != len(given)
                or not all(map(is_, tensors, given)) or src.dim() != 3):
            return
        calls = self.__dict__.setdefault(_CALLS, {})
        if len(calls) == _MOST_CALLS:
            calls.clear()
        call = operator.call_of(path, tuple(pieces), tuple([tensor.shape for tensor in tensors]))
        fields = [module.__dict__ for module in modules]
        calls[self._call_key(src, is_causal, modules, fields, parameters)] = call, draws

    def _sizes(self, src: torch.Tensor) -> tuple[int, int]:
        if src.dim() == 2:
            return 1, coverage.fixed(src.shape[0])
        batch, length = (src.shape[0], src.shape[1]) if self.self_attn.batch_first else (src.shape[1], src.shape[0])
        return coverage.fixed(batch), coverage.fixed(length)

    def _run(self, src, src_mask, padding, is_causal) -> tuple[torch.Tensor | None, str | None]:
        """The result, or the reason why there is no plan."""
        attention, _, linear1, _, norm1, *_ = self._submodules()
        dtype = coverage.working_dtype(src)
        batch, length = self._sizes(src)
        if padding is not None and padding.dim() == 1:
            padding = padding[None]
        # is_causal replaces the mask, as in PyTorch.
        mask = Mask.of(None if is_causal else src_mask, padding, batch, attention.num_heads, dtype)
        parameters, pieces = self._parameters_in_order()
        tensors = [coverage.ready(tensor, dtype) for tensor in (src, *parameters)]
        if mask.tensor is not None:
            tensors.append(mask.tensor)
        if norm1._parameters["bias"] is None:
            tensors.append(torch.zeros(attention.embed_dim, dtype=dtype, device=src.device))
        pieces = [1, *pieces] + [1] * (len(tensors) - 1 - len(pieces))
        tensors, pieces = coverage.separate_unaligned(tensors, pieces)
        path, draws, why = _plan(self._attention_spec(mask.axes, is_causal, src.dim() == 2), self._layer_spec(), batch,
                                 length, attention.num_heads, attention.head_dim, linear1.out_features,
                                 operator.DTYPE_NAMES[dtype], src.device.type, src.device.index,
                                 programs.stacked(pieces[1:]))
        if why is not None:
            return None, why
        random = operator.draw_random(src.device) if draws else None
        results, why = plans.run_or_why(path, tensors, pieces, random)
        if why is not None:
            return None, why
        if mask.tensor is None and operator.is_plain():
            self._remember(src, is_causal, path, pieces, draws, tensors)
        plans.note_plan(self, path)
        (out,) = results
        if out.shape != src.shape:
            out = out.view(src.shape)
        return out if out.dtype == src.dtype else out.to(src.dtype), None

    # Fields of programs.Attention and programs.EncoderLayer, as plain tuples for torch.compile.

    def _attention_spec(self, mask: str, causal: bool, unbatched: bool) -> tuple:
        attention = self._submodules()[0]
        dropout = coverage.fixed_number(attention.dropout) if self.training else 0.0
        bias = attention._parameters["in_proj_bias"] is not None
        return unbatched or attention.batch_first, bias, mask, causal, dropout

    def _layer_spec(self) -> tuple:
        _, _, linear1, _, norm1, norm2, *dropouts = self._submodules()
        dropped = [coverage.fixed_number(module.p) if self.training else 0.0 for module in dropouts]
        return (self.norm_first, coverage.activation_name(self.activation), linear1._parameters["bias"] is not None,
                *dropped, coverage.fixed_number(norm1.eps), coverage.fixed_number(norm2.eps))


def _parameters_of(modules: tuple[nn.Module, ...]) -> list[torch.Tensor]:
    own = modules[0]._parameters
    made = [own["in_proj_weight"]]
    if own["in_proj_bias"] is not None:
        made.append(own["in_proj_bias"])
    for module in modules[1:6]:
        own = module._parameters
        made.append(own["weight"])
        if own["bias"] is not None:
            made.append(own["bias"])
    return made


@torch.compiler.assume_constant_result
def _plan(attention: tuple, layer: tuple, batch: int, length: int, heads: int, head: int, width: int, dtype: str,
          device: str, index: int | None, stacked: str = "") -> tuple[str, bool, str | None]:
    """The plan's folder, whether its program draws dropout masks, and the reason if there is no plan. `stacked`: the
    result of programs.stacked."""
    return _found_plan(attention, layer, batch, length, heads, head, width, dtype, plans.Where.of(device, index),
                       stacked)


@plans.remembered
def _found_plan(attention: tuple, layer: tuple, batch: int, length: int, heads: int, head: int, width: int, dtype: str,
                where: plans.Where, stacked: str) -> tuple[str, bool, str | None]:
    spec = programs.EncoderLayer(programs.Attention(*attention), *layer)
    sizes = {"B": batch, "J": length, "K": length, "H": heads, "P": head, "I": heads * head, "U": width}
    draws = max(spec.attention.dropout, spec.dropout, spec.dropout1, spec.dropout2) > 0
    path, why = plans.find_or_why(programs.encoder_layer_text(spec), sizes, dtype, where, "encoder_layer",
                                  layouts=programs.stacked_layouts(stacked))
    return path, draws, why
