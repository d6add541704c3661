"""Hugging Face's BertLayer that runs plans. Imports transformers, so it is loaded only for such models."""

from __future__ import annotations

import torch
import transformers
from torch import nn
from transformers.models.bert import modeling_bert

from millrace.torch import coverage, encoder_layer, operator, plans

_RETURNS_TUPLE = int(transformers.__version__.split(".")[0]) < 5


class BertLayer(modeling_bert.BertLayer):
    """An encoder layer; millrace.torch.accelerate creates it."""

    def forward(self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, *args, **kwargs):
        why = self._why_not(hidden_states, attention_mask, args, kwargs)
        if why is None:
            out, why = self._run(hidden_states, attention_mask)
            if why is None:
                return (out,) if _RETURNS_TUPLE else out
        plans.fall_back(self, why)
        return super().forward(hidden_states, attention_mask, *args, **kwargs)

    def _submodules(self) -> tuple:
        own, attended = self.attention.self, self.attention.output
        return own, attended, self.intermediate, self.output

    def _parameters_in_order(self) -> list[torch.Tensor]:
        own, attended, intermediate, output = self._submodules()
        projections = (own.query, own.key, own.value)
        rest = (attended.dense, intermediate.dense, output.dense, attended.LayerNorm, output.LayerNorm)
        return [*(module.weight for module in projections), *(module.bias for module in projections),
                *(parameter for module in rest for parameter in (module.weight, module.bias))]

    def _why_never(self) -> str | None:
        """Why no call of the layer as it is now runs a plan."""
        own, attended, intermediate, output = self._submodules()
        if self.is_decoder:
            return "it is a decoder"
        if own.config.output_attentions:
            return "attention weights are requested"
        if getattr(own, "position_embedding_type", None) not in (None, "absolute"):
            return "its position embeddings are relative"
        linear, norm, dropout = nn.Linear, nn.LayerNorm, nn.Dropout
        modules = (
            ("query", own.query, linear),
            ("key", own.key, linear),
            ("value", own.value, linear),
            ("attention.output.dense", attended.dense, linear),
            ("output.dense", output.dense, linear),
            ("intermediate.dense", intermediate.dense, linear),
            ("attention.output.LayerNorm", attended.LayerNorm, norm),
            ("output.LayerNorm", output.LayerNorm, norm),
            ("attention dropout", own.dropout, dropout),
            ("attention.output.dropout", attended.dropout, dropout),
            ("output.dropout", output.dropout, dropout),
        )
        if why := coverage.why_not_modules(modules):
            return why
        for name, module in (("attention", self.attention), ("attention.self", own), ("intermediate", intermediate)):
            if coverage.has_hooks(module):
                return f"{name} has hooks, which a plan does not call"
        if _activation(intermediate.intermediate_act_fn) is None:
            return f"the activation is {intermediate.intermediate_act_fn}"
        return None

    def _why_not(self, x, mask, args, kwargs) -> str | None:
        if why := coverage.why_not_tensor(x, "hidden_states") or self._why_never():
            return why
        own, attended, _, output = self._submodules()
        if any(value is not None for value in args) or any(
                kwargs.get(name) is not None
                for name in ("encoder_hidden_states", "encoder_attention_mask", "head_mask", "past_key_value",
                             "past_key_values")):
            return "it has a head mask, or is called as a decoder"
        if kwargs.get("output_attentions") or coverage.captured_outputs() - {"hidden_states"}:
            return "attention weights are requested"
        if self.training and max(own.dropout.p, attended.dropout.p, output.dropout.p) >= 1:
            return "a dropout probability is 1"
        if mask is not None:
            if not isinstance(mask, torch.Tensor) or mask.dim() != 4 or mask.shape[1] != 1:
                return "attention_mask is not [B, 1, J, K]"
            if mask.requires_grad or not (mask.dtype == torch.bool or mask.is_floating_point()):
                return "attention_mask requires a gradient, or has an integer dtype"
        return coverage.why_not_parameters(self._parameters_in_order(), x)

    def _run(self, x: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor | None, str | None]:
        own, attended, intermediate, output = self._submodules()
        dtype = coverage.working_dtype(x)
        batch, length = coverage.fixed(x.shape[0]), coverage.fixed(x.shape[1])
        parameters = self._parameters_in_order()
        tensors = [coverage.ready(tensor, dtype) for tensor in (x, *parameters)]
        axes = ""
        if mask is not None:
            hides = ~mask if mask.dtype == torch.bool else mask  # True: not masked
            axes = "BK" if mask.shape[2] == 1 or mask.stride(2) == 0 else "BJK"
            hides = hides[:, 0, 0] if axes == "BK" else hides[:, 0].expand(batch, length, length)
            tensors.append(coverage.Mask.additive(hides.expand(batch, *hides.shape[1:]), dtype).contiguous())
        probabilities = [coverage.fixed_number(module.p) if self.training else 0.0
                         for module in (own.dropout, attended.dropout, output.dropout)]
        attention = (True, True, axes, False, probabilities[0])
        layer = (False, _activation(intermediate.intermediate_act_fn), True, 0.0, *probabilities[1:],
                 coverage.fixed_number(attended.LayerNorm.eps), coverage.fixed_number(output.LayerNorm.eps))
        path, draws, why = encoder_layer._plan(attention, layer, batch, length, own.num_attention_heads,
                                               own.attention_head_size, intermediate.dense.out_features,
                                               operator.DTYPE_NAMES[dtype], x.device.type, x.device.index)
        if why is not None:
            return None, why
        random = operator.draw_random(x.device) if draws else None
        results, why = plans.run_or_why(path, tensors, [1] * len(tensors), random)
        if why is not None:
            return None, why
        plans.note_plan(self, path)
        return results[0].to(x.dtype), None


def _activation(function) -> str | None:
    """Like activation_name, but also knows Hugging Face's own module for gelu."""
    if type(function).__name__ == "GELUActivation":
        return "gelu"
    return coverage.activation_name(function)
