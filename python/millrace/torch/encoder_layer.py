"""torch.nn.TransformerEncoderLayer, run by plans."""

from __future__ import annotations

import torch
from torch import nn

from millrace.torch import coverage, operator, plans, programs
from millrace.torch.coverage import Mask


class TransformerEncoderLayer(nn.TransformerEncoderLayer):
    """As torch.nn.TransformerEncoderLayer: constructor, parameters, state dict, arguments and results. Forward and
    backward run by a plan for the call's shape; what no plan covers runs by PyTorch's own path, and a warning says why.
    """

    def forward(self, src: torch.Tensor, src_mask: torch.Tensor | None = None,
                src_key_padding_mask: torch.Tensor | None = None, is_causal: bool = False) -> torch.Tensor:
        why = self._why_not(src, src_mask, src_key_padding_mask, is_causal)
        if why is None:
            return self._run(src, src_mask, src_key_padding_mask, is_causal)
        plans.warn_once("TransformerEncoderLayer", why)
        if is_causal and src_mask is None and src.dim() in (2, 3):
            length = src.shape[-2] if self.self_attn.batch_first or src.dim() == 2 else src.shape[0]
            src_mask = nn.Transformer.generate_square_subsequent_mask(length, device=src.device, dtype=src.dtype)
        return super().forward(src, src_mask, src_key_padding_mask, is_causal)

    def _parameters_in_order(self) -> tuple[list[torch.Tensor], list[int]]:
        """As the program takes them, and for how many of its arguments each stands."""
        attention = self.self_attn
        made, pieces = [attention.in_proj_weight], [3]
        if attention.in_proj_bias is not None:
            made.append(attention.in_proj_bias)
            pieces.append(3)
        for module in (attention.out_proj, self.linear1, self.linear2, self.norm1, self.norm2):
            made.append(module.weight)
            pieces.append(1)
            if module.bias is not None:
                made.append(module.bias)
                pieces.append(1)
        return made, pieces

    def _why_not(self, src, src_mask, padding, is_causal) -> str | None:
        attention = self.self_attn
        if why := coverage.why_not_tensor(src, "src"):
            return why
        if src.dim() not in (2, 3) or src.shape[-1] != attention.embed_dim:
            return f"src is {list(src.shape)}"
        linear, norm = nn.Linear, nn.LayerNorm
        modules = {"self_attn.out_proj": (attention.out_proj, nn.modules.linear.NonDynamicallyQuantizableLinear),
                   "linear1": (self.linear1, linear), "linear2": (self.linear2, linear), "norm1": (self.norm1, norm),
                   "norm2": (self.norm2, norm), "dropout": (self.dropout, nn.Dropout),
                   "dropout1": (self.dropout1, nn.Dropout), "dropout2": (self.dropout2, nn.Dropout)}
        if why := coverage.why_not_modules(modules):
            return why
        if attention._forward_hooks or attention._forward_pre_hooks:
            return "self_attn has hooks, which a plan does not call"
        if attention.in_proj_weight is None or attention.bias_k is not None or attention.add_zero_attn:
            return "self_attn is not as the layer makes it"
        if coverage.activation_name(self.activation) is None:
            return f"the activation is {getattr(self.activation, '__name__', self.activation)!r}"
        if self.norm1.weight is None or (self.norm1.bias is None) != (self.linear1.bias is None):
            return "the norms are not as the layer makes them"
        if self.training and max(attention.dropout, self.dropout.p, self.dropout1.p, self.dropout2.p) >= 1:
            return "dropout drops everything"
        batch, length = self._sizes(src)
        heads = attention.num_heads
        by_head = [(length, length), (batch * heads, length, length)]
        return (Mask.why_not("src_mask", src_mask, by_head)
                or Mask.why_not("src_key_padding_mask", padding,
                                [(batch, length)] if src.dim() == 3 else [(length,)])
                or coverage.why_not_parameters(self._parameters_in_order()[0], src))

    def _sizes(self, src: torch.Tensor) -> tuple[int, int]:
        if src.dim() == 2:
            return 1, coverage.fixed(src.shape[0])
        batch, length = (src.shape[0], src.shape[1]) if self.self_attn.batch_first else (src.shape[1], src.shape[0])
        return coverage.fixed(batch), coverage.fixed(length)

    def _run(self, src, src_mask, padding, is_causal) -> torch.Tensor:
        dtype = coverage.working_dtype(src)
        batch, length = self._sizes(src)
        # A causal hint stands for the mask that comes with it, as in PyTorch.
        if padding is not None and padding.dim() == 1:
            padding = padding[None]
        mask = Mask.of(None if is_causal else src_mask, padding, batch, self.self_attn.num_heads, dtype)
        parameters, pieces = self._parameters_in_order()
        tensors = [tensor.to(dtype).contiguous() for tensor in (src, *parameters)]
        pieces = [1, *pieces]
        if mask.tensor is not None:
            tensors.append(mask.tensor)
            pieces.append(1)
        if self.norm1.bias is None:
            tensors.append(torch.zeros(self.self_attn.embed_dim, dtype=dtype, device=src.device))
            pieces.append(1)
        path, draws = _plan(self._attention_spec(mask.axes, is_causal, src.dim() == 2), self._layer_spec(), batch,
                            length, self.self_attn.num_heads, self.self_attn.head_dim, self.linear1.out_features,
                            operator.DTYPE_NAMES[dtype])
        random = operator.draw_random(src.device) if draws else None
        (out,) = operator.run(path, tensors, pieces, [], random)
        return out.view(src.shape).to(src.dtype)

    # Of programs.Attention and programs.EncoderLayer, as plain tuples: torch.compile takes them as they are.

    def _attention_spec(self, mask: str, causal: bool, unbatched: bool) -> tuple:
        attention = self.self_attn
        dropout = float(attention.dropout) if self.training else 0.0
        return unbatched or attention.batch_first, attention.in_proj_bias is not None, mask, causal, dropout

    def _layer_spec(self) -> tuple:
        dropouts = [float(module.p) if self.training else 0.0 for module in (self.dropout, self.dropout1, self.dropout2)]
        return (self.norm_first, coverage.activation_name(self.activation), self.linear1.bias is not None, *dropouts,
                float(self.norm1.eps), float(self.norm2.eps))


@torch.compiler.assume_constant_result
def _plan(attention: tuple, layer: tuple, *sizes_and_dtype) -> tuple[str, bool]:
    return _found_plan(attention, layer, *sizes_and_dtype, torch.get_num_threads())


@plans.remembered
def _found_plan(attention: tuple, layer: tuple, batch: int, length: int, heads: int, head: int, width: int, dtype: str,
                threads: int) -> tuple[str, bool]:
    """The plan's folder, and whether its program draws masks."""
    spec = programs.EncoderLayer(programs.Attention(*attention), *layer)
    sizes = {"B": batch, "J": length, "K": length, "H": heads, "P": head, "I": heads * head, "U": width}
    draws = max(spec.attention.dropout, spec.dropout, spec.dropout1, spec.dropout2) > 0
    return plans.find(programs.encoder_layer_text(spec), sizes, dtype, threads, "encoder_layer"), draws
