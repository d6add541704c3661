"""models/bert_encoder.py in PyTorch, three ways, and by Millrace in PyTorch: post-norm, ReLU, four dropouts; x is [batch, sequence, embedding].

Every layer gets Millrace's tensors by Millrace's names and gives its gradients back by them, so that all compute the
same function of the same numbers.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

QKV = ("q", "k", "v")


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
    """nn.TransformerEncoderLayer as it comes."""

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
    """millrace.torch.TransformerEncoderLayer: Millrace's plan, called from Python as the others are."""

    def __init__(self, sizes: dict[str, int], dropout: float):
        nn.Module.__init__(self)
        import millrace.torch  # only here: it is not everywhere

        self.layer = millrace.torch.TransformerEncoderLayer(sizes["I"], sizes["H"], sizes["U"], dropout,
                                                            batch_first=True)


OURS = "millrace.torch"  # not compiled: it is one operator
LAYERS = {"plain": PlainLayer, "TransformerEncoderLayer": LibraryLayer, "sdpa": SdpaLayer, OURS: MillraceLayer}
# Softmax ignores what is added to all its inputs, so the key bias has no gradient but rounding: it is judged on the
# scale of the query bias's.
SCALE_OF = {"d_bk": "d_bq"}
INPUT, RESULT = "x", "out"


def why_not(sizes: dict[str, int]) -> str | None:
    """Why torch's layers cannot have these sizes, if so."""
    if sizes["P"] == sizes["W"] and sizes["I"] == sizes["P"] * sizes["H"] and sizes["K"] == sizes["J"]:
        return None
    return "torch's layers need W = P, I = P * H and K = J"


def draw(sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Arguments by Millrace's names and shapes, and d_out; all of the size that training sees."""
    rng, s = np.random.default_rng(2021), sizes
    tensors = {"x": rng.standard_normal((s["I"], s["B"], s["J"]))}
    for letter in QKV:
        tensors[f"w{letter}"] = rng.standard_normal((s["P"], s["H"], s["I"])) / math.sqrt(s["I"])
        tensors[f"b{letter}"] = 0.1 * rng.standard_normal((s["P"], s["H"]))
    tensors["wo"] = rng.standard_normal((s["W"], s["H"], s["I"])) / math.sqrt(s["I"])
    tensors["w1"] = rng.standard_normal((s["U"], s["I"])) / math.sqrt(s["I"])
    tensors["w2"] = rng.standard_normal((s["I"], s["U"])) / math.sqrt(s["U"])
    for name, extent in (("bo", "I"), ("b1", "U"), ("b2", "I"), ("ln1_bias", "I"), ("ln2_bias", "I")):
        tensors[name] = 0.1 * rng.standard_normal(s[extent])
    for name in ("ln1_weight", "ln2_weight"):
        tensors[name] = 1 + 0.1 * rng.standard_normal(s["I"])
    tensors[f"d_{RESULT}"] = rng.standard_normal((s["I"], s["B"], s["J"]))
    return tensors


def to_torch_layout(tensor: np.ndarray) -> np.ndarray:
    """[embedding, batch, sequence] as [batch, sequence, embedding]."""
    return np.ascontiguousarray(np.moveaxis(tensor, 0, -1))


def from_torch_layout(tensor: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(tensor, -1, 0))


def to_roles(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Millrace's parameters as torch's: projections stacked, an output's index first, heads before projections."""
    weights = [tensors[f"w{letter}"].transpose(1, 0, 2) for letter in QKV]
    biases = [tensors[f"b{letter}"].T for letter in QKV]
    embedding = tensors["wo"].shape[-1]
    return {
        "qkv.weight": np.concatenate([weight.reshape(-1, weight.shape[-1]) for weight in weights]),
        "qkv.bias": np.concatenate([bias.reshape(-1) for bias in biases]),
        "out.weight": tensors["wo"].transpose(2, 1, 0).reshape(embedding, -1), "out.bias": tensors["bo"],
        "linear1.weight": tensors["w1"], "linear1.bias": tensors["b1"],
        "linear2.weight": tensors["w2"], "linear2.bias": tensors["b2"],
        "norm1.weight": tensors["ln1_weight"], "norm1.bias": tensors["ln1_bias"],
        "norm2.weight": tensors["ln2_weight"], "norm2.bias": tensors["ln2_bias"],
    }


def from_roles(roles: dict[str, np.ndarray], sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """The inverse of to_roles."""
    heads, projection = sizes["H"], sizes["P"]
    tensors = {}
    for letter, weight, bias in zip(QKV, np.split(roles["qkv.weight"], 3), np.split(roles["qkv.bias"], 3)):
        tensors[f"w{letter}"] = weight.reshape(heads, projection, -1).transpose(1, 0, 2)
        tensors[f"b{letter}"] = bias.reshape(heads, projection).T
    tensors["wo"] = roles["out.weight"].reshape(-1, heads, projection).transpose(2, 1, 0)
    names = {"bo": "out.bias", "w1": "linear1.weight", "b1": "linear1.bias", "w2": "linear2.weight",
             "b2": "linear2.bias", "ln1_weight": "norm1.weight", "ln1_bias": "norm1.bias",
             "ln2_weight": "norm2.weight", "ln2_bias": "norm2.bias"}
    return tensors | {name: roles[role] for name, role in names.items()}


def _weights_and_biases(modules: dict[str, nn.Module]) -> dict[str, nn.Parameter]:
    return {f"{name}.{part}": getattr(module, part) for name, module in modules.items() for part in ("weight", "bias")}
