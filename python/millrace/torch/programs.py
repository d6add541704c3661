"""Generates the programs of PyTorch's layers. Their arguments have PyTorch's shapes, so that no parameter is copied: a
weight [H * P, I] is [H, P, I], and each third of in_proj_weight is an argument.

B: batch; J: queries; K: keys; H: heads; P: size of a head; I: embedding; U: width of the feed-forward network.
"""

from __future__ import annotations

from typing import NamedTuple

MASKS = {  # an additive mask's axes, and how it is broadcast to [B, H, J, K]
    "": "",
    "BK": "[:, None, None, :]",
    "JK": "",
    "BJK": "[:, None]",
    "BHJK": "",
}

_HEAD = """import numpy as np
from millrace.numpy import causal_mask, dropout, fixed, float32, gelu, gelu_tanh, layernorm, relu, silu, softmax

"""


class Attention(NamedTuple):
    """The properties that determine the program text of an attention."""

    batch_first: bool
    bias: bool
    mask: str  # a key of MASKS
    causal: bool
    dropout: float


class EncoderLayer(NamedTuple):
    attention: Attention
    norm_first: bool
    activation: str  # relu, gelu, gelu_tanh or silu
    bias: bool
    dropout: float  # after the activation
    dropout1: float  # after the attention
    dropout2: float  # after the feed-forward network
    eps1: float
    eps2: float


class SeparateAttention(NamedTuple):
    """nn.MultiheadAttention. `shared`: which of query, key and value are the same tensor."""

    attention: Attention
    shared: str  # "qkv", "kv" or ""
    weights: str  # "", "mean" or "all": the attention weights that are returned


def _dropped(name: str, p: float) -> str:
    return f"dropout({name}, {p!r})" if p > 0 else name


def _axes(letters: str, batch_first: bool) -> str:
    """The axes of a sequence: `bji`, or `jbi` if the batch is second."""
    return letters if batch_first else letters[1] + letters[0] + letters[2]


def _attention(attention: Attention, q: str, k: str, v: str) -> list[str]:
    """Lines that compute `attended` from q, k and v; `alpha` holds the weights after dropout."""
    query, key = _axes("bji", attention.batch_first), _axes("bki", attention.batch_first)
    lines = []
    for name, source, letters, index in (("q", q, query, "j"), ("k", k, key, "k"), ("v", v, key, "k")):
        lines.append(f'{name}_projected = np.einsum("{letters},hpi->bh{index}p", {source}, w{name})')
        bias = f" + b{name}[:, None, :]" if attention.bias else ""
        lines.append(f"{name}{name} = {name}_projected{bias}")
    lines.append('scores = (1 / np.sqrt(P)) * np.einsum("bhjp,bhkp->bhjk", qq, kk)')
    scores = "scores"
    if attention.mask:
        lines.append(f"masked = {scores} + mask{MASKS[attention.mask]}")
        scores = "masked"
    if attention.causal:
        lines.append(f"later_hidden = causal_mask({scores})")
        scores = "later_hidden"
    lines.append(f"weights = softmax({scores})")
    lines.append(f"alpha = {_dropped('weights', attention.dropout)}")
    lines.append('gamma = np.einsum("bhjk,bhkp->bhjp", alpha, vv)')
    lines.append(f'attended = np.einsum("bhjp,ihp->{query}", gamma, wo)' + (" + bo" if attention.bias else ""))
    return lines


def _function(name: str, arguments: list[str], lines: list[str]) -> str:
    sizes = "".join(f"{size} = 4\n" for size in "BJKHPIU")
    listed = "".join(f"    {argument},\n" for argument in arguments)
    body = "".join(f"    {line}\n" for line in lines)
    return f"{_HEAD}{sizes}\n\ndef {name}(\n{listed}):\n{body}"


def _weights(bias: bool, inputs: str = "III") -> list[str]:
    made = [f"w{name}: float32[H, P, {size}]" for name, size in zip("qkv", inputs)]
    if bias:
        made += [f"b{name}: float32[H, P]" for name in "qkv"]
    made.append("wo: float32[I, H, P]")
    return [*made, "bo: float32[I]"] if bias else made


def stacked(pieces: list[int]) -> str:
    """Which projections are stacked in memory: "w" (weights), "b" (biases), "wb" or "". `pieces`: the number of
    arguments that each tensor holds, weights first; in_proj_weight and in_proj_bias hold three."""
    threes = pieces.count(3)
    return "" if threes == 0 else "wb" if threes == 2 else "w" if pieces[0] == 3 else "b"


def stacked_layouts(stacked_projections: str) -> tuple[str, ...]:
    """Values for --layout; gradients are stacked like their parameters."""
    return tuple("+".join(f"{prefix}{letter}{name}" for name in "qkv") + "=stacked"
                 for letter in stacked_projections for prefix in ("", "d_"))


def _sequence(name: str, letters: str, batch_first: bool) -> str:
    return f"{name}: float32[{', '.join(_axes(letters, batch_first))}]"


def _mask(attention: Attention) -> list[str]:
    return [f"mask: fixed.float32[{', '.join(attention.mask)}]"] if attention.mask else []


def encoder_layer_text(layer: EncoderLayer) -> str:
    """Arguments: x, the attention's weights, linear1, linear2, norm1, norm2, the mask; each weight with its bias.
    Without biases the norms share one argument `zeros`."""
    attention, bias = layer.attention, layer.bias
    arguments = [_sequence("x", "BJI", attention.batch_first), *_weights(attention.bias), "w1: float32[U, I]"]
    arguments += ["b1: float32[U]"] if bias else []
    arguments += ["w2: float32[I, U]"]
    arguments += ["b2: float32[I]"] if bias else []
    for norm in ("norm1", "norm2"):
        arguments += [f"{norm}_weight: float32[I]"]
        arguments += [f"{norm}_bias: float32[I]"] if bias else []
    arguments += _mask(attention) + ([] if bias else ["zeros: fixed.float32[I]"])

    def norm(name: str, source: str, eps: float) -> str:
        return f"layernorm({source}, {name}_weight, {f'{name}_bias' if bias else 'zeros'}, eps={eps!r})"

    def feed_forward(source: str) -> list[str]:
        sequence = _axes("bji", attention.batch_first)
        wide = _axes("bju", attention.batch_first)
        return [
            f'linear1 = np.einsum("{sequence},ui->{wide}", {source}, w1)' + (" + b1" if bias else ""),
            f"activated = {layer.activation}(linear1)",
            f"hidden = {_dropped('activated', layer.dropout)}",
            f'linear2 = np.einsum("{wide},iu->{sequence}", hidden, w2)' + (" + b2" if bias else ""),
            f"fed = {_dropped('linear2', layer.dropout2)}",
        ]

    attended = f"attended_dropped = {_dropped('attended', layer.dropout1)}"
    if layer.norm_first:
        lines = [f"normed = {norm('norm1', 'x', layer.eps1)}", *_attention(attention, *["normed"] * 3), attended,
                 "residual = attended_dropped + x", f"normed2 = {norm('norm2', 'residual', layer.eps2)}",
                 *feed_forward("normed2"), "out = fed + residual"]
    else:
        lines = [*_attention(attention, *"xxx"), attended, "residual = attended_dropped + x",
                 f"normed = {norm('norm1', 'residual', layer.eps1)}", *feed_forward("normed"),
                 "residual2 = fed + normed", f"out = {norm('norm2', 'residual2', layer.eps2)}"]
    return _function("encoder_layer", arguments, [*lines, "return out"])


def attention_text(separate: SeparateAttention) -> str:
    """Arguments: query, and key and value if they are separate tensors; the weights; the mask. Results: the output and
    the requested attention weights."""
    attention, shared = separate.attention, separate.shared
    sizes = {"qkv": "III", "kv": "IEE", "": "IEF"}[shared]
    arguments = [_sequence("query", "BJI", attention.batch_first)]
    q, k, v = {"qkv": ["query"] * 3, "kv": ["query", "key", "key"], "": ["query", "key", "value"]}[shared]
    if shared != "qkv":
        arguments.append(_sequence("key", "BKE", attention.batch_first))
    if shared == "":
        arguments.append(_sequence("value", "BKF", attention.batch_first))
    arguments += [*_weights(attention.bias, sizes), *_mask(attention)]
    lines = _attention(attention, q, k, v)
    if separate.weights == "mean":
        lines.append("mean_weights = np.mean(alpha, axis=1)")
    returned = {"": "attended", "mean": "attended, mean_weights", "all": "attended, alpha"}[separate.weights]
    return _function("attention", arguments, [*lines, f"return {returned}"]).replace("U = 4\n", "U = 4\nE = 4\nF = 4\n")
