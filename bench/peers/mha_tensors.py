"""The tensors of models/mha.py, as bert_tensors.py for the whole layer; queries, keys and values are separate."""

from __future__ import annotations

import math

import numpy as np

from peers.bert_tensors import QKV, STACKED, from_torch_layout, to_torch_layout, why_not  # noqa: F401  (re-exported)

SCALE_OF = {"d_bk": "d_bq"}  # as in bert_tensors
INPUTS, RESULT = QKV, "out"
LIKE = {RESULT: "q"}  # has the same axes


def draw(sizes: dict[str, int], seed: int = 2021) -> dict[str, np.ndarray]:
    rng, s = np.random.default_rng(seed), sizes
    tensors = {}
    for letter, length in zip(QKV, "JKK"):
        tensors[f"w{letter}"] = rng.standard_normal((s["P"], s["H"], s["I"])) / math.sqrt(s["I"])
        tensors[f"b{letter}"] = 0.1 * rng.standard_normal((s["P"], s["H"]))
        tensors[letter] = rng.standard_normal((s["I"], s["B"], s[length]))
    tensors["wo"] = rng.standard_normal((s["W"], s["H"], s["I"])) / math.sqrt(s["I"])
    tensors["bo"] = 0.1 * rng.standard_normal(s["I"])
    tensors["scaler"] = np.array(1 / math.sqrt(s["P"]))
    tensors[f"d_{RESULT}"] = rng.standard_normal((s["I"], s["B"], s["J"]))
    return tensors


def to_roles(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    weights = [tensors[f"w{letter}"].transpose(1, 0, 2) for letter in QKV]
    biases = [tensors[f"b{letter}"].T for letter in QKV]
    embedding = tensors["wo"].shape[-1]
    return {
        "qkv.weight": np.concatenate([weight.reshape(-1, embedding) for weight in weights]),
        "qkv.bias": np.concatenate([bias.reshape(-1) for bias in biases]),
        "out.weight": tensors["wo"].transpose(2, 1, 0).reshape(embedding, -1), "out.bias": tensors["bo"],
    }


def from_roles(roles: dict[str, np.ndarray], sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """The inverse of to_roles."""
    heads, projection = sizes["H"], sizes["P"]
    tensors = {}
    for letter, weight, bias in zip(QKV, np.split(roles["qkv.weight"], 3), np.split(roles["qkv.bias"], 3)):
        tensors[f"w{letter}"] = weight.reshape(heads, projection, -1).transpose(1, 0, 2)
        tensors[f"b{letter}"] = bias.reshape(heads, projection).T
    tensors["wo"] = roles["out.weight"].reshape(-1, heads, projection).transpose(2, 1, 0)
    return tensors | {"bo": roles["out.bias"]}
