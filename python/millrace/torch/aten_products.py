"""Writers of matrix products, attention and convolutions. Test: tests/torch/importer_test.py"""

from __future__ import annotations

import math

import torch
from torch import fx

from millrace.torch.aten_writer import NotCovered, number, require_float, tensor, writes

CONTRACTIONS = frozenset("""linear matmul mm bmm addmm baddbmm scaled_dot_product_attention conv1d conv2d""".split())
# The score of a hidden key, finite, so that a row of hidden keys gives no NaN (decisions/0004-torch.md).
_HIDDEN = {torch.float16: -3e4}
_LETTERS = "abcdefgh"


def is_contraction(node: fx.Node) -> bool:
    return getattr(node.target, "_opname", "") in CONTRACTIONS


@writes("linear")
def _(w, node, a):
    product = f"{w.text(a.input)} @ {w.text(a.weight)}.T"
    return product if a.bias is None else f"{product} + {w.text(a.bias)}"


@writes("matmul", "mm", "bmm")
def _(w, node, a):
    require_float(a.self)
    other = a.other if hasattr(a, "other") else a.mat2
    return f"{w.text(a.self)} @ {w.text(other)}"


@writes("addmm", "baddbmm")
def _(w, node, a):
    one, other = (a.mat1, a.mat2) if hasattr(a, "mat1") else (a.batch1, a.batch2)
    product = f"{w.text(one)} @ {w.text(other)}"
    if a.alpha != 1:
        product = f"{number(a.alpha)} * ({product})"
    if a.beta == 0:
        return product
    return f"{product} + " + (w.text(a.self) if a.beta == 1 else f"{number(a.beta)} * {w.text(a.self)}")


@writes("scaled_dot_product_attention")
def _(w, node, a):
    query, key = tensor(a.query), tensor(a.key)
    if query.dim() < 3 or query.shape[:-3] != key.shape[:-3]:
        raise NotCovered("an attention whose batches are broadcast")
    k, v = w.text(a.key), w.text(a.value)
    if query.shape[-3] != key.shape[-3]:
        groups = query.shape[-3] // key.shape[-3]
        k = w.let("keys_of_all_heads", f"np.repeat({k}, {groups}, axis=-3)")
        v = w.let("values_of_all_heads", f"np.repeat({v}, {groups}, axis=-3)")
    batch = _LETTERS[: query.dim() - 2]
    scale = 1 / math.sqrt(query.shape[-1]) if a.scale is None else a.scale
    scores = w.let("scores", f'{scale!r} * np.einsum("{batch}qp,{batch}kp->{batch}qk", {w.text(a.query)}, {k})')
    weights = w.let("weights", f"softmax({_masked(w, a, scores)})")
    if a.dropout_p > 0:
        weights = w.let("weights", f"dropout({weights}, {a.dropout_p!r})")
    return f'np.einsum("{batch}qk,{batch}kp->{batch}qp", {weights}, {v})'


def _masked(w, a, scores: str) -> str:
    if a.attn_mask is not None:
        mask = tensor(a.attn_mask)
        if mask.dtype == torch.bool:
            hidden = _HIDDEN.get(tensor(a.query).dtype, -1e30)
            scores = w.let("masked", f"np.where({w.text(a.attn_mask)}, {scores}, {hidden!r})")
        else:
            scores = w.let("masked", f"{scores} + {w.text(a.attn_mask)}")
    return w.let("later_hidden", f"causal_mask({scores})") if a.is_causal else scores


@writes("conv1d", "conv2d")
def _(w, node, a):
    if isinstance(a.padding, str):
        raise NotCovered("a convolution with padding by name")
    if a.groups != 1 or set(a.dilation) != {1} or len(set(a.stride)) != 1 or len(set(a.padding)) != 1:
        raise NotCovered("a convolution with groups, dilation, or another stride or padding for each axis")
    bias = "None" if a.bias is None else w.text(a.bias)
    return (f"{node.target._opname}({w.text(a.input)}, {w.text(a.weight)}, {bias}, stride={a.stride[0]}, "
            f"padding={a.padding[0]})")
