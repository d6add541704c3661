"""torch.nn.MultiheadAttention that runs plans."""

from __future__ import annotations

import torch
from torch import nn

from millrace.torch import coverage, operator, plans, programs
from millrace.torch.coverage import Mask


class MultiheadAttention(nn.MultiheadAttention):
    """Like torch.nn.MultiheadAttention. Calls that no plan covers fall back to PyTorch, with a warning."""

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                key_padding_mask: torch.Tensor | None = None, need_weights: bool = True,
                attn_mask: torch.Tensor | None = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> tuple[torch.Tensor, torch.Tensor | None]:
        why = self._why_not(query, key, value, key_padding_mask, attn_mask, is_causal)
        if why is None:
            weights = ("mean" if average_attn_weights else "all") if need_weights else ""
            out, why = self._run(query, key, value, key_padding_mask, weights, attn_mask, is_causal)
            if why is None:
                return out
        plans.fall_back(self, why)
        return super().forward(query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights,
                               is_causal)

    def _weights_in_order(self) -> tuple[list[torch.Tensor], list[int]]:
        if self.in_proj_weight is not None:
            made, pieces = [self.in_proj_weight], [3]
        else:
            made, pieces = [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight], [1, 1, 1]
        if self.in_proj_bias is not None:
            made.append(self.in_proj_bias)
            pieces.append(3)
        made.append(self.out_proj.weight)
        pieces.append(1)
        if self.out_proj.bias is not None:
            made.append(self.out_proj.bias)
            pieces.append(1)
        return made, pieces

    def _why_not(self, query, key, value, padding, mask, is_causal) -> str | None:
        for name, tensor in (("query", query), ("key", key), ("value", value)):
            if why := coverage.why_not_tensor(tensor, name):
                return why
            if tensor.dim() != 3:
                return f"{name} is {list(tensor.shape)}, without a batch axis"
        if query.dtype != key.dtype or query.dtype != value.dtype:
            return "query, key and value have different dtypes"
        (batch, length), (key_batch, keys), (value_batch, values) = map(self._sizes, (query, key, value))
        if query.shape[2] != self.embed_dim or key.shape[2] != self.kdim or value.shape[2] != self.vdim or (
                not batch == key_batch == value_batch) or keys != values:
            return "the shapes of query, key and value do not match"
        if why := self._why_never():
            return why
        if self.training and self.dropout >= 1:
            return "the dropout probability is 1"
        if is_causal and (mask is None or length != keys):
            return "is_causal needs attn_mask and equally many keys and queries"
        return (Mask.why_not("attn_mask", mask, [(length, keys), (batch * self.num_heads, length, keys)])
                or Mask.why_not("key_padding_mask", padding, [(batch, keys)])
                or coverage.why_not_parameters(self._weights_in_order()[0], query))

    def _why_never(self) -> str | None:
        """Why no call of the layer as it is now runs a plan."""
        if self.bias_k is not None or self.add_zero_attn:
            return "add_bias_kv and add_zero_attn add keys"
        kind = nn.modules.linear.NonDynamicallyQuantizableLinear
        return coverage.why_not_modules((("out_proj", self.out_proj, kind),))

    def _sizes(self, x: torch.Tensor) -> tuple[int, int]:
        batch, length = (x.shape[0], x.shape[1]) if self.batch_first else (x.shape[1], x.shape[0])
        return coverage.fixed(batch), coverage.fixed(length)

    def _run(self, query, key, value, padding, weights, attn_mask, is_causal):
        dtype = coverage.working_dtype(query)
        (batch, length), (_, keys) = self._sizes(query), self._sizes(key)
        mask = Mask.of(None if is_causal else attn_mask, padding, batch, self.num_heads, dtype)
        same = self.in_proj_weight is not None
        shared = "qkv" if same and query is key and key is value else "kv" if key is value else ""
        inputs = {"qkv": (query,), "kv": (query, key), "": (query, key, value)}[shared]
        parameters, pieces = self._weights_in_order()
        tensors = [coverage.ready(tensor, dtype) for tensor in (*inputs, *parameters)]
        pieces = [1] * len(inputs) + pieces
        if mask.tensor is not None:
            tensors.append(mask.tensor)
            pieces.append(1)
        dropout = coverage.fixed_number(self.dropout) if self.training else 0.0
        spec = (self.batch_first, self.in_proj_bias is not None, mask.axes, is_causal, dropout)
        tensors, pieces = coverage.separate_unaligned(tensors, pieces)
        path, why = _plan(spec, shared, weights, batch, length, keys, self.num_heads, self.head_dim,
                          coverage.fixed(key.shape[2]), coverage.fixed(value.shape[2]), operator.DTYPE_NAMES[dtype],
                          query.device.type, query.device.index, programs.stacked(pieces[len(inputs) :]))
        if why is not None:
            return None, why
        random = operator.draw_random(query.device) if dropout > 0 else None
        results, why = plans.run_or_why(path, tensors, pieces, random)
        if why is not None:
            return None, why
        plans.note_plan(self, path)
        out, *rest = results
        return (out.to(query.dtype), rest[0].to(query.dtype) if rest else None), None


@torch.compiler.assume_constant_result
def _plan(attention: tuple, shared: str, weights: str, batch: int, length: int, keys: int, heads: int, head: int,
          key_size: int, value_size: int, dtype: str, device: str, index: int | None,
          stacked: str) -> tuple[str, str | None]:
    """The plan's folder, or the reason why there is none. `stacked`: the result of programs.stacked."""
    return _found_plan(attention, shared, weights, batch, length, keys, heads, head, key_size, value_size, dtype,
                       plans.Where.of(device, index), stacked)


@plans.remembered
def _found_plan(attention: tuple, shared: str, weights: str, batch: int, length: int, keys: int, heads: int, head: int,
                key_size: int, value_size: int, dtype: str, where: plans.Where, stacked: str) -> tuple[str, str | None]:
    spec = programs.SeparateAttention(programs.Attention(*attention), shared, weights)
    sizes = {"B": batch, "J": length, "K": keys, "H": heads, "P": head, "I": heads * head, "E": key_size,
             "F": value_size}
    return plans.find_or_why(programs.attention_text(spec), sizes, dtype, where, "attention",
                             layouts=programs.stacked_layouts(stacked))
