"""The programs of PyTorch's layers. Their arguments have PyTorch's shapes, so that no parameter is copied: a weight
[H * P, I] is [H, P, I], and of in_proj_weight each third is an argument.

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
    """What the text of an attention depends on."""

    batch_first: bool
    bias: bool
    mask: str  # of MASKS
    causal: bool
    dropout: float


class EncoderLayer(NamedTuple):
    attention: Attention
    norm_first: bool
    activation: str  # relu, gelu, gelu_tanh or silu
    bias: bool
    dropout: float  # behind the activation
    dropout1: float  # behind the attention
    dropout2: float  # behind the feed-forward network
    eps1: float
    eps2: float


class SeparateAttention(NamedTuple):
    """nn.MultiheadAttention: `shared` is what query, key and value have in common."""

    attention: Attention
    shared: str  # "qkv", "kv" or ""
    weights: str  # "", "mean" or "all": the attention weights that are returned


def _dropped(name: str, p: float) -> str:
    return f"dropout({name}, {p!r})" if p > 0 else name


def _axes(letters: str, batch_first: bool) -> str:
    """Of a sequence: `bji`, or `jbi` where the batch comes second."""
    return letters if batch_first else letters[1] + letters[0] + letters[2]


def _attention(attention: Attention, q: str, k: str, v: str) -> list[str]:
    """Lines from the tensors q, k and v to `attended`; the weights behind dropout are `alpha`."""
    query, key = _axes("bji", attention.batch_first), _axes("bki", attention.batch_first)
    lines = []
    for name, of, letters, index in (("q", q, query, "j"), ("k", k, key, "k"), ("v", v, key, "k")):
        lines.append(f'{name}_projected = np.einsum("{letters},hpi->bh{index}p", {of}, w{name})')
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
    """Which of the projections lie one behind the other: "w", "b", "wb" or "". `pieces`: for how many arguments each
    tensor stands, weights and then biases; more than one are parts of in_proj_weight or in_proj_bias."""
    threes = pieces.count(3)
    return "" if threes == 0 else "wb" if threes == 2 else "w" if pieces[0] == 3 else "b"


def stacked_layouts(stacked_projections: str) -> tuple[str, ...]:
    """As --layout takes them; their gradients lie as they do."""
    return tuple("+".join(f"{prefix}{letter}{name}" for name in "qkv") + "=stacked"
                 for letter in stacked_projections for prefix in ("", "d_"))


def _sequence(name: str, letters: str, batch_first: bool) -> str:
    return f"{name}: float32[{', '.join(_axes(letters, batch_first))}]"


def _mask(attention: Attention) -> list[str]:
    return [f"mask: fixed.float32[{', '.join(attention.mask)}]"] if attention.mask else []


def encoder_layer_text(layer: EncoderLayer) -> str:
    """Arguments: x, the attention's weights, linear1, linear2, norm1, norm2, the mask; with a bias each, but that norms
    without one take `zeros`."""
    attention, bias = layer.attention, layer.bias
    arguments = [_sequence("x", "BJI", attention.batch_first), *_weights(attention.bias), "w1: float32[U, I]"]
    arguments += ["b1: float32[U]"] if bias else []
    arguments += ["w2: float32[I, U]"]
    arguments += ["b2: float32[I]"] if bias else []
    for norm in ("norm1", "norm2"):
        arguments += [f"{norm}_weight: float32[I]"]
        arguments += [f"{norm}_bias: float32[I]"] if bias else []
    arguments += _mask(attention) + ([] if bias else ["zeros: fixed.float32[I]"])

    def norm(name: str, of: str, eps: float) -> str:
        return f"layernorm({of}, {name}_weight, {f'{name}_bias' if bias else 'zeros'}, eps={eps!r})"

    def feed_forward(of: str) -> list[str]:
        sequence = _axes("bji", attention.batch_first)
        wide = _axes("bju", attention.batch_first)
        return [
            f'linear1 = np.einsum("{sequence},ui->{wide}", {of}, w1)' + (" + b1" if bias else ""),
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
    """Arguments: query, and key and value where they are apart; the weights; the mask. Results: the output, and the
    weights that are wanted."""
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
