"""models/llama_block.py in PyTorch: with a materialised attention matrix, and with scaled_dot_product_attention.

The parameters are those of nn.Linear, as in Hugging Face's model: [output, input].
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

INPUT, RESULT = "x", "out"
ANGLES = ("cos", "sin")  # without gradients
SCALE_OF: dict[str, str] = {}
STACKED: tuple[str, ...] = ()
OURS = None  # millrace.torch has no such layer
EPSILON = 1e-5


def why_not(sizes: dict[str, int]) -> str | None:
    return None


def shapes(sizes: dict[str, int]) -> dict[str, tuple[int, ...]]:
    """Of the program's parameters."""
    i, g, r, p, u = (sizes[name] for name in ("I", "G", "R", "P", "U"))
    return {"attn_norm_weight": (i,), "mlp_norm_weight": (i,), "wq": (i, g, r, p), "wk": (i, g, p), "wv": (i, g, p),
            "wo": (g, r, p, i), "w_gate_up": (i, 2 * u), "w_down": (u, i)}


def angles(sizes: dict[str, int]) -> np.ndarray:
    frequencies = 500000.0 ** (-np.arange(0, sizes["P"], 2) / sizes["P"])
    half = np.outer(np.arange(sizes["J"]), frequencies)
    return np.concatenate([half, half], axis=-1)


def draw(sizes: dict[str, int], seed: int = 2021) -> dict[str, np.ndarray]:
    """The arguments and d_out; magnitudes as in training."""
    rng = np.random.default_rng(seed)
    x = (sizes["B"], sizes["J"], sizes["I"])
    tensors = {INPUT: rng.standard_normal(x), f"d_{RESULT}": rng.standard_normal(x),
               "cos": np.cos(angles(sizes)), "sin": np.sin(angles(sizes))}
    for name, shape in shapes(sizes).items():
        inputs = math.prod(shape[:-1]) if name in ("wo", "w_down") else shape[0]
        near_one = name.endswith("norm_weight")
        tensors[name] = near_one + (0.1 if near_one else 1 / math.sqrt(inputs)) * rng.standard_normal(shape)
    return tensors


def to_torch_layout(tensor: np.ndarray) -> np.ndarray:
    return tensor


from_torch_layout = to_torch_layout


def to_roles(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Matrices become [output, input]."""
    roles = {}
    for name, tensor in tensors.items():
        if name.endswith("norm_weight") or name in ANGLES:
            roles[name] = tensor
        elif name == "wo":
            roles[name] = tensor.reshape(-1, tensor.shape[-1]).T
        elif name.startswith("w"):
            roles[name] = tensor.reshape(tensor.shape[0], -1).T
    return roles


def from_roles(roles: dict[str, np.ndarray], sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """The inverse of to_roles, for gradients."""
    wanted = shapes(sizes)
    return {name: tensor.T.reshape(wanted[name]) for name, tensor in roles.items() if name in wanted}


class PlainBlock(nn.Module):
    def __init__(self, sizes: dict[str, int], dropout: float):
        super().__init__()
        self.groups, self.queries, self.projection = sizes["G"], sizes["R"], sizes["P"]
        made = {name: torch.empty(shape if len(shape) == 1 else tuple(to_roles({name: np.empty(shape)})[name].shape))
                for name, shape in shapes(sizes).items()}
        self.weights = nn.ParameterDict(made)
        for name in ANGLES:
            self.register_buffer(name, torch.empty(sizes["J"], sizes["P"]))

    def roles(self) -> dict[str, torch.Tensor]:
        return dict(self.weights) | {name: getattr(self, name) for name in ANGLES}

    def attention(self, q, k, v):  # q: [batch, group · query, sequence, projection]
        k, v = (part.repeat_interleave(self.queries, dim=1) for part in (k, v))
        length = q.shape[-2]
        later = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
        scores = (q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]))).masked_fill(later, -math.inf)
        return torch.softmax(scores, dim=-1) @ v

    def rotated(self, x):
        first, second = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat([-second, first], dim=-1) * self.sin

    def heads(self, x, weight: str):
        batch, length, _ = x.shape
        return F.linear(x, self.weights[weight]).view(batch, length, -1, self.projection).transpose(1, 2)

    def norm(self, x, name: str):
        return F.rms_norm(x, x.shape[-1:], self.weights[name], EPSILON)

    def forward(self, x):
        batch, length, embedding = x.shape
        y = self.norm(x, "attn_norm_weight")
        q, k = (self.rotated(self.heads(y, name)) for name in ("wq", "wk"))
        gamma = self.attention(q, k, self.heads(y, "wv")).transpose(1, 2).reshape(batch, length, -1)
        x = x + F.linear(gamma, self.weights["wo"])
        gate, up = F.linear(self.norm(x, "mlp_norm_weight"), self.weights["w_gate_up"]).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, self.weights["w_down"])


class SdpaBlock(PlainBlock):
    def attention(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


LAYERS = {"plain": PlainBlock, "sdpa": SdpaBlock}
