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


def _heads(w, node: fx.Node) -> tuple[int, int] | None:
    """How all readers of a projection split its last axis; None if they do not."""
    views = (torch.ops.aten.view.default, torch.ops.aten.reshape.default)
    shapes = {tuple(tensor(user).shape) if user in w.inside and user.target in views else () for user in node.users}
    (shape,) = shapes if len(shapes) == 1 else ((),)
    return shape[-2:] if len(shape) > 2 and shape[:-2] == tuple(tensor(node).shape[:-1]) else None


def _projected_to_heads(w, a, heads: tuple[int, int]) -> str:
    """A product with the weight's axis split, so that no computed tensor has an axis that is read as several."""
    rows = _LETTERS[: tensor(a.input).dim() - 1]
    shape = (*heads, tensor(a.weight).shape[1])
    product = (f'np.einsum("{rows}x,yzx->{rows}yz", {w.text(a.input)}, '
               f"np.reshape({w.text(a.weight)}, {w.shape(shape)}))")
    return product if a.bias is None else f"{product} + np.reshape({w.text(a.bias)}, {w.shape(heads)})"


@writes("linear")
def _(w, node, a):
    if (heads := _heads(w, node)) is not None:
        return _projected_to_heads(w, a, heads)
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
    q, batch, of_keys = w.text(a.query), _LETTERS[: query.dim() - 2], _LETTERS[: query.dim() - 2]
    if query.shape[-3] != key.shape[-3]:
        q, batch, of_keys = _grouped(w, a.query, key.shape[1]), "bgr", "bg"
    scale = 1 / math.sqrt(query.shape[-1]) if a.scale is None else a.scale
    scores = w.let("scores", f'{scale!r} * np.einsum("{batch}qp,{of_keys}kp->{batch}qk", {q}, {w.text(a.key)})')
    weights = w.let("weights", f"softmax({_masked(w, a, scores, key.shape[1] if batch == 'bgr' else None)})")
    if a.dropout_p > 0:
        weights = w.let("weights", f"dropout({weights}, {a.dropout_p!r})")
    attended = f'np.einsum("{batch}qk,{of_keys}kp->{batch}qp", {weights}, {w.text(a.value)})'
    return attended if batch != "bgr" else f"np.reshape({w.let('attended', attended)}, {w.shape(tensor(node).shape)})"


def _grouped(w, node: fx.Node, groups: int) -> str:
    """A tensor [B, G * R, ...] as [B, G, R, ...]: R heads of each group share keys and values."""
    shape = tensor(node).shape
    if len(shape) != 4 or shape[1] % groups != 0:
        raise NotCovered("groups of heads in a shape other than [batch, head, position, column]")
    wanted = (shape[0], groups, shape[1] // groups, *shape[2:])
    return w.let("grouped", f"np.reshape({w.text(node)}, {w.shape(wanted)})")


def _grouped_mask(w, node: fx.Node, groups: int) -> str:
    shape = tensor(node).shape
    if len(shape) == 4 and shape[1] > 1:
        return _grouped(w, node, groups)
    if len(shape) == 3 and shape[0] > 1:
        raise NotCovered("a mask for each head without a batch axis, of grouped heads")
    return f"np.expand_dims({w.text(node)}, 1)" if len(shape) == 4 else w.text(node)


def _masked(w, a, scores: str, groups: int | None) -> str:
    if a.attn_mask is not None:
        mask = w.text(a.attn_mask) if groups is None else _grouped_mask(w, a.attn_mask, groups)
        if tensor(a.attn_mask).dtype == torch.bool:
            hidden = _HIDDEN.get(tensor(a.query).dtype, -1e30)
            scores = w.let("masked", f"np.where({mask}, {scores}, {hidden!r})")
        else:
            scores = w.let("masked", f"{scores} + {mask}")
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
