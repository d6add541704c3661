"""models/gpt2_block.py in PyTorch: with a materialised attention matrix, and with scaled_dot_product_attention.

The parameters have the program's names and shapes, as Hugging Face's GPT-2 has them: x @ weight + bias.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

INPUT, RESULT = "x", "out"
SCALE_OF: dict[str, str] = {}
STACKED: tuple[str, ...] = ()
OURS = None  # millrace.torch has no such layer


def why_not(sizes: dict[str, int]) -> str | None:
    return None


def shapes(sizes: dict[str, int]) -> dict[str, tuple[int, ...]]:
    i, u = sizes["I"], sizes["U"]
    norms = {f"ln{k}_{part}": (i,) for k in (1, 2) for part in ("weight", "bias")}
    return norms | {"c_attn_weight": (i, 3 * i), "c_attn_bias": (3 * i,), "wo": (i, i), "bo": (i,),
                    "w1": (i, u), "b1": (u,), "w2": (u, i), "b2": (i,)}


def draw(sizes: dict[str, int], seed: int = 2021) -> dict[str, np.ndarray]:
    """The arguments and d_out; magnitudes as in training."""
    rng = np.random.default_rng(seed)
    x = (sizes["B"], sizes["J"], sizes["I"])
    tensors = {INPUT: rng.standard_normal(x), f"d_{RESULT}": rng.standard_normal(x)}
    for name, shape in shapes(sizes).items():
        near_one = name.startswith("ln") and name.endswith("weight")
        scale = 1 / math.sqrt(shape[0]) if len(shape) == 2 else 0.1
        tensors[name] = near_one + scale * rng.standard_normal(shape)
    return tensors


def to_torch_layout(tensor: np.ndarray) -> np.ndarray:
    return tensor


from_torch_layout = to_torch_layout


def to_roles(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: tensor for name, tensor in tensors.items() if name not in (INPUT, f"d_{RESULT}")}


def from_roles(roles: dict[str, np.ndarray], sizes: dict[str, int]) -> dict[str, np.ndarray]:
    return roles


class PlainBlock(nn.Module):
    def __init__(self, sizes: dict[str, int], dropout: float):
        super().__init__()
        self.heads, self.p = sizes["H"], dropout
        self.weights = nn.ParameterDict({name: torch.empty(shape) for name, shape in shapes(sizes).items()})

    def roles(self) -> dict[str, nn.Parameter]:
        return dict(self.weights)

    def attention(self, q, k, v):  # each [batch, heads, sequence, projection]
        length = q.shape[-2]
        later = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
        scores = (q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]))).masked_fill(later, -math.inf)
        return F.dropout(torch.softmax(scores, dim=-1), self.p, self.training) @ v

    def project(self, x, weight: str, bias: str):
        flat = torch.addmm(self.weights[bias], x.reshape(-1, x.shape[-1]), self.weights[weight])
        return flat.view(*x.shape[:-1], -1)

    def norm(self, x, name: str):
        return F.layer_norm(x, x.shape[-1:], self.weights[f"{name}_weight"], self.weights[f"{name}_bias"])

    def forward(self, x):
        batch, length, embedding = x.shape
        qkv = self.project(self.norm(x, "ln1"), "c_attn_weight", "c_attn_bias")
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in qkv.split(embedding, dim=-1))
        gamma = self.attention(q, k, v).transpose(1, 2).reshape(batch, length, embedding)
        y = x + F.dropout(self.project(gamma, "wo", "bo"), self.p, self.training)
        hidden = F.gelu(self.project(self.norm(y, "ln2"), "w1", "b1"), approximate="tanh")
        return y + F.dropout(self.project(hidden, "w2", "b2"), self.p, self.training)


class SdpaBlock(PlainBlock):
    def attention(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=self.p if self.training else 0.0, is_causal=True)


LAYERS = {"plain": PlainBlock, "sdpa": SdpaBlock}
