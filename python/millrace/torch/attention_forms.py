"""Rewrites attention in a captured graph so that plans can fuse it: a mask that is always causal becomes is_causal, one
that hides nothing disappears, and keys repeated for groups of heads become enable_gqa. Test:
tests/torch/importer_test.py"""

from __future__ import annotations

import torch
from torch import fx

from millrace.torch.aten_writer import bound
from millrace.torch.values import value_of

aten = torch.ops.aten
_LARGEST_MASK = 1 << 28  # elements that are computed to see what a mask hides


def simplify_attention(graph: fx.Graph) -> None:
    constants: dict[fx.Node, torch.Tensor | None] = {}
    for node in graph.nodes:
        if node.target is aten.scaled_dot_product_attention.default:
            _write(node, _with_heads(_with_mask(bound(node).__dict__, constants)))


def _write(node: fx.Node, given: dict) -> None:
    named = ("scale", "enable_gqa")  # by keyword only
    node.args = tuple(value for name, value in given.items() if name not in named)
    node.kwargs = {name: given[name] for name in named}


def _with_mask(given: dict, constants: dict) -> dict:
    mask = given["attn_mask"]
    if mask is None or given["is_causal"] or value_of(mask).dtype != torch.bool:
        return given
    known = _constant(mask, constants)
    if known is None:
        return given
    if known.all():
        return {**given, "attn_mask": None}
    if torch.equal(known, torch.ones(known.shape[-2:], dtype=torch.bool).tril().expand(known.shape)):
        return {**given, "attn_mask": None, "is_causal": True}
    return given


def _constant(node: fx.Node, known: dict) -> torch.Tensor | None:
    """The value of a node that depends on no input, computed on the CPU; None if it does or is too large."""
    if node not in known:
        known[node] = _computed(node, known)
    return known[node]


def _computed(node: fx.Node, known: dict) -> torch.Tensor | None:
    value = value_of(node)
    if node.op != "call_function" or value is None or value.numel() > _LARGEST_MASK:
        return None
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return None
    if any(_constant(operand, known) is None for operand in node.all_input_nodes):
        return None

    def on_cpu(argument):
        if isinstance(argument, fx.Node):
            return known[argument]
        return torch.device("cpu") if isinstance(argument, torch.device) else argument

    arguments, options = torch.utils._pytree.tree_map(
        on_cpu, (node.args, dict(node.kwargs)), is_leaf=lambda x: isinstance(x, fx.Node))
    return node.target(*arguments, **options)


def _with_heads(given: dict) -> dict:
    key, value = (_before_repeating(given[name]) for name in ("key", "value"))
    if given["enable_gqa"] or key is None or value is None:
        return given
    return {**given, "key": key, "value": value, "enable_gqa": True}


def _before_repeating(node: fx.Node) -> fx.Node | None:
    """The tensor [B, G, T, P] whose heads are repeated to [B, G * R, T, P]."""
    spread = node.args[0] if node.target in (aten.reshape.default, aten.view.default) else None
    added = spread.args[0] if spread is not None and spread.target is aten.expand.default else None
    if added is None or added.target is not aten.unsqueeze.default or added.args[1] not in (2, -3):
        return None
    source, wide = added.args[0], value_of(spread).shape
    batch, groups, *others = value_of(source).shape
    if len(others) != 2 or tuple(wide) != (batch, groups, wide[2], *others):
        return None
    return source if tuple(value_of(node).shape) == (batch, groups * wide[2], *others) else None
