"""Draws the tensors of models/bert_encoder.py, and converts them to the frameworks' layouts and back.

Uses only NumPy: for the layers in PyTorch and in JAX, and for the comparison.
"""

from __future__ import annotations

import math

import numpy as np

QKV = ("q", "k", "v")
# Softmax is invariant to a constant added to all inputs, so the gradient of the key bias is rounding error only: it is
# compared on the scale of the query bias's gradient.
SCALE_OF = {"d_bk": "d_bq"}
INPUT, RESULT = "x", "out"
INPUTS = (INPUT,)
LIKE = {RESULT: INPUT}  # has the same axes
# The projections' weights, biases and gradients are stacked, as in the frameworks' in_proj_weight and in_proj_bias.
STACKED = tuple("+".join(f"{prefix}{letter}" for letter in QKV) + "=stacked" for prefix in ("w", "d_w", "b", "d_b"))


def why_not(sizes: dict[str, int]) -> str | None:
    """The reason why torch's layers cannot have these sizes, or None."""
    if sizes["P"] == sizes["W"] and sizes["I"] == sizes["P"] * sizes["H"] and sizes["K"] == sizes["J"]:
        return None
    return "torch's layers need W = P, I = P * H and K = J"


def draw(sizes: dict[str, int], seed: int = 2021) -> dict[str, np.ndarray]:
    """The arguments with Millrace's names and shapes, and d_out; magnitudes as in training."""
    rng, s = np.random.default_rng(seed), sizes
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
    """From [embedding, batch, sequence] to [batch, sequence, embedding]."""
    return np.ascontiguousarray(np.moveaxis(tensor, 0, -1))


def from_torch_layout(tensor: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(tensor, -1, 0))


def to_roles(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Converts Millrace's parameters to torch's: projections stacked, output axis first, heads before projections."""
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
