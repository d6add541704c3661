"""Writers of views, joins, gathers and tensors made of numbers. Test: tests/torch/importer_test.py"""

from __future__ import annotations

import torch
from torch import fx

from millrace.torch.aten_writer import TYPE_NAMES, NotCovered, is_float, number, require_float, tensor, writes


def _positive(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


@writes("view", "reshape", "_unsafe_view", "flatten", "unflatten", "view_as", "squeeze")
def _(w, node, a):
    if getattr(a, "dtype", None) is not None:
        raise NotCovered("another type for the same bits")
    if tensor(a.self).shape == tensor(node).shape:
        return w.text(a.self)
    return f"np.reshape({w.text(a.self)}, {w.shape(tensor(node).shape)})"


@writes("contiguous", "clone", "alias", "lift_fresh_copy")
def _(w, node, a):
    return w.text(a.self)


@writes("transpose", "swapaxes")
def _(w, node, a):
    one, other = (a.dim0, a.dim1) if hasattr(a, "dim0") else (a.axis0, a.axis1)
    return f"np.swapaxes({w.text(a.self)}, {one}, {other})"


@writes("mT")
def _(w, node, a):
    return f"np.swapaxes({w.text(a.self)}, -1, -2)"


@writes("t", "numpy_T")
def _(w, node, a):
    return f"{w.text(a.self)}.T"


@writes("permute")
def _(w, node, a):
    rank = len(a.dims)
    return f"np.transpose({w.text(a.self)}, {tuple(_positive(dim, rank) for dim in a.dims)})"


@writes("movedim")
def _(w, node, a):
    return f"np.moveaxis({w.text(a.self)}, {a.source}, {a.destination})"


@writes("unsqueeze")
def _(w, node, a):
    return f"np.expand_dims({w.text(a.self)}, {_positive(a.dim, tensor(node).dim())})"


@writes("expand", "expand_as")
def _(w, node, a):
    if tensor(a.self).shape == tensor(node).shape:
        return w.text(a.self)
    return f"np.broadcast_to({w.text(a.self)}, {w.shape(tensor(node).shape)})"


def _index(w, node: fx.Node, dim: int, selected: str) -> str:
    before = ":, " * _positive(dim, tensor(node).dim())
    return f"{w.text(node)}[{before}{selected}]"


@writes("slice")
def _(w, node, a):
    extent = tensor(a.self).shape[a.dim]
    start, stop = (min(max(limit + extent if limit < 0 else limit, 0), extent)
                   for limit in (a.start or 0, extent if a.end is None else a.end))
    step = "" if a.step == 1 else f":{a.step}"
    return _index(w, a.self, a.dim, f"{start}:{stop}{step}")


@writes("narrow")
def _(w, node, a):
    if isinstance(a.start, fx.Node):
        raise NotCovered("a slice whose bounds are data")
    return _index(w, a.self, a.dim, f"{a.start}:{a.start + a.length}")


@writes("select")
def _(w, node, a):
    return _index(w, a.self, a.dim, str(a.index))


@writes("cat", "concat")
def _(w, node, a):
    require_float(node)
    given = [one for one in a.tensors if tensor(one).numel() > 0]
    wanted = tensor(node).dtype
    listed = [w.text(one) if tensor(one).dtype == wanted else f"{w.text(one)}.astype({TYPE_NAMES[wanted]})"
              for one in given]
    return listed[0] if len(listed) == 1 else f"np.concatenate(({', '.join(listed)}), axis={a.dim})"


@writes("stack")
def _(w, node, a):
    require_float(node)
    return f"np.stack(({', '.join(w.text(one) for one in a.tensors)},), axis={a.dim})"


@writes("repeat", "tile")
def _(w, node, a):
    return f"np.tile({w.text(a.self)}, {tuple(a.repeats if hasattr(a, 'repeats') else a.dims)})"


@writes("repeat_interleave")
def _(w, node, a):
    if not isinstance(getattr(a, "repeats", None), int) or a.dim is None:
        raise NotCovered("a repetition by data")
    return f"np.repeat({w.text(a.self)}, {a.repeats}, axis={a.dim})"


@writes("flip")
def _(w, node, a):
    return f"np.flip({w.text(a.self)}, axis={tuple(a.dims)})"


@writes("roll")
def _(w, node, a):
    if len(a.shifts) != 1 or len(a.dims) != 1:
        raise NotCovered("a roll of several axes")
    return f"np.roll({w.text(a.self)}, {a.shifts[0]}, axis={a.dims[0]})"


@writes("tril", "triu")
def _(w, node, a):
    require_float(a.self)
    return f"np.{node.target._opname}({w.text(a.self)}, {a.diagonal})"


@writes("embedding")
def _(w, node, a):
    if a.sparse or a.scale_grad_by_freq:
        raise NotCovered("an embedding with sparse or scaled gradients")
    if a.padding_idx >= 0:
        raise NotCovered("an embedding whose padding row gets no gradient")
    return f"{w.text(a.weight)}[{w.text(a.indices)}]"


@writes("index_select")
def _(w, node, a):
    return f"np.take({w.text(a.self)}, {w.text(a.index)}, axis={a.dim})"


@writes("gather")
def _(w, node, a):
    require_float(a.self)
    given, ids = list(tensor(a.self).shape), list(tensor(a.index).shape)
    del given[a.dim], ids[a.dim]
    if given != ids:
        raise NotCovered("a gather of a part of the other axes")
    return f"np.take_along_axis({w.text(a.self)}, {w.text(a.index)}, axis={a.dim})"


@writes("arange")
def _(w, node, a):
    step = getattr(a, "step", 1)
    return f"np.arange({number(getattr(a, 'start', 0))}, {number(a.end)}, {number(step)})"


def _filled(w, node: fx.Node, value) -> str:
    made = tensor(node)
    if not is_float(node) or made.dim() == 0:
        raise NotCovered("a tensor made of integers, booleans or one number")
    return f"np.full({w.shape(made.shape)}, {number(value)}).astype({TYPE_NAMES[made.dtype]})"


@writes("full", "full_like", "new_full")
def _(w, node, a):
    return _filled(w, node, float(a.fill_value))


@writes("zeros", "zeros_like", "new_zeros")
def _(w, node, a):
    return _filled(w, node, 0.0)


@writes("ones", "ones_like", "new_ones")
def _(w, node, a):
    return _filled(w, node, 1.0)
