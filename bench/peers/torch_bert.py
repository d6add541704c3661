"""models/bert_encoder.py in PyTorch, as three PyTorch layers and as Millrace's: post-norm, ReLU, four dropouts; x is
[batch, sequence, embedding].

Every layer takes its parameters from Millrace's tensors and returns gradients under Millrace's names, so that all
compute the same function of the same values.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from peers.bert_tensors import (  # noqa: F401  (re-exported)
    INPUT, RESULT, SCALE_OF, STACKED, draw, from_roles, from_torch_layout, to_roles, to_torch_layout, why_not,
)


class PlainLayer(nn.Module):
    """Plain torch operators; the attention matrix is materialised."""

    def __init__(self, sizes: dict[str, int], dropout: float):
        super().__init__()
        self.heads, self.p = sizes["H"], dropout
        embedding, hidden = sizes["I"], sizes["U"]
        self.qkv = nn.Linear(embedding, 3 * embedding)
        self.out = nn.Linear(embedding, embedding)
        self.linear1, self.linear2 = nn.Linear(embedding, hidden), nn.Linear(hidden, embedding)
        self.norm1, self.norm2 = nn.LayerNorm(embedding), nn.LayerNorm(embedding)

    def attention(self, q, k, v):  # each [batch, heads, sequence, projection]
        weights = torch.softmax(q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1])), dim=-1)
        return F.dropout(weights, self.p, self.training) @ v

    def forward(self, x):
        batch, sequence, embedding = x.shape
        q, k, v = self.qkv(x).view(batch, sequence, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        gamma = self.attention(q, k, v).transpose(1, 2).reshape(batch, sequence, embedding)
        y = self.norm1(x + F.dropout(self.out(gamma), self.p, self.training))
        hidden = F.dropout(F.relu(self.linear1(y)), self.p, self.training)
        return self.norm2(y + F.dropout(self.linear2(hidden), self.p, self.training))

    def roles(self) -> dict[str, nn.Parameter]:
        modules = {"out": self.out, "linear1": self.linear1, "linear2": self.linear2,
                   "norm1": self.norm1, "norm2": self.norm2}
        return {"qkv.weight": self.qkv.weight, "qkv.bias": self.qkv.bias, **_weights_and_biases(modules)}


class SdpaLayer(PlainLayer):
    """The same with scaled_dot_product_attention."""

    def attention(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=self.p if self.training else 0.0)


class LibraryLayer(nn.Module):
    """nn.TransformerEncoderLayer, unmodified."""

    def __init__(self, sizes: dict[str, int], dropout: float):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(sizes["I"], sizes["H"], sizes["U"], dropout, batch_first=True)

    def forward(self, x):
        return self.layer(x)

    def roles(self) -> dict[str, nn.Parameter]:
        layer, attention = self.layer, self.layer.self_attn
        modules = {"out": attention.out_proj, "linear1": layer.linear1, "linear2": layer.linear2,
                   "norm1": layer.norm1, "norm2": layer.norm2}
        projections = {"qkv.weight": attention.in_proj_weight, "qkv.bias": attention.in_proj_bias}
        return {**projections, **_weights_and_biases(modules)}


class MillraceLayer(LibraryLayer):
    """millrace.torch.TransformerEncoderLayer: Millrace's plan, called from Python like the others."""

    def __init__(self, sizes: dict[str, int], dropout: float):
        nn.Module.__init__(self)
        import millrace.torch  # optional dependency

        self.layer = millrace.torch.TransformerEncoderLayer(sizes["I"], sizes["H"], sizes["U"], dropout,
                                                            batch_first=True)


OURS = "millrace.torch"  # not compiled: it is a single operator
LAYERS = {"plain": PlainLayer, "TransformerEncoderLayer": LibraryLayer, "sdpa": SdpaLayer, OURS: MillraceLayer}


def _weights_and_biases(modules: dict[str, nn.Module]) -> dict[str, nn.Parameter]:
    return {f"{name}.{part}": getattr(module, part) for name, module in modules.items() for part in ("weight", "bias")}
