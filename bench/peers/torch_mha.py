"""models/mha.py in PyTorch: multi-head attention of separate queries, keys and values; parameters and inputs as in
torch_bert.py."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn


class PlainAttention(nn.Module):
    """Plain torch operators; the attention matrix is materialised."""

    def __init__(self, sizes: dict[str, int], dropout: float):
        super().__init__()
        self.heads, self.p, embedding = sizes["H"], dropout, sizes["I"]
        self.projections = nn.ModuleList(nn.Linear(embedding, embedding) for _ in range(3))
        self.out = nn.Linear(embedding, embedding)

    def attention(self, q, k, v):  # each [batch, heads, sequence, projection]
        weights = torch.softmax(q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1])), dim=-1)
        return F.dropout(weights, self.p, self.training) @ v

    def forward(self, q, k, v):
        batch, sequence, embedding = q.shape
        projected = (projection(x).view(batch, x.shape[1], self.heads, -1).transpose(1, 2)
                     for projection, x in zip(self.projections, (q, k, v)))
        return self.out(self.attention(*projected).transpose(1, 2).reshape(batch, sequence, embedding))

    def roles(self) -> dict:
        """A parameter that this layer splits is a tuple."""
        return {"qkv.weight": tuple(projection.weight for projection in self.projections),
                "qkv.bias": tuple(projection.bias for projection in self.projections),
                "out.weight": self.out.weight, "out.bias": self.out.bias}


class SdpaAttention(PlainAttention):
    """The same with scaled_dot_product_attention."""

    def attention(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=self.p if self.training else 0.0)


class LibraryAttention(nn.Module):
    """nn.MultiheadAttention, unmodified, without returning the attention weights."""

    def __init__(self, sizes: dict[str, int], dropout: float):
        super().__init__()
        self.layer = nn.MultiheadAttention(sizes["I"], sizes["H"], dropout, batch_first=True)

    def forward(self, q, k, v):
        return self.layer(q, k, v, need_weights=False)[0]

    def roles(self) -> dict:
        layer = self.layer
        return {"qkv.weight": layer.in_proj_weight, "qkv.bias": layer.in_proj_bias,
                "out.weight": layer.out_proj.weight, "out.bias": layer.out_proj.bias}


class MillraceAttention(LibraryAttention):
    """millrace.torch.MultiheadAttention: Millrace's plan, called from Python like the others."""

    def __init__(self, sizes: dict[str, int], dropout: float):
        nn.Module.__init__(self)
        import millrace.torch  # optional dependency

        self.layer = millrace.torch.MultiheadAttention(sizes["I"], sizes["H"], dropout, batch_first=True)


LAYERS = {"plain": PlainAttention, "library": LibraryAttention, "sdpa": SdpaAttention, "millrace": MillraceAttention}
