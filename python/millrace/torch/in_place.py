"""Replaces operators that change a tensor in place by ones that return a new tensor, where nothing else sees the
tensor. Test: tests/torch/importer_test.py"""

from __future__ import annotations

import torch
from torch import fx

from millrace.torch.aten_writer import bound
from millrace.torch.values import insert, value_of

aten = torch.ops.aten
_NORMS = {aten.batch_norm.default: "training", aten.instance_norm.default: "use_input_stats"}
_SCATTERS = {aten.slice.Tensor: aten.slice_scatter.default, aten.select.int: aten.select_scatter.default}


class NotCaptured(Exception):
    """Why a graph goes to Inductor as a whole."""


def statistics_of(node: fx.Node) -> list[fx.Node]:
    """The running statistics that a norm changes in place in training. Its schema does not say so."""
    if node.target not in _NORMS:
        return []
    given = bound(node)
    if not getattr(given, _NORMS[node.target]):
        return []
    return [one for one in (given.running_mean, given.running_var) if isinstance(one, fx.Node)]


def require_own_statistics(node: fx.Node) -> None:
    """Nothing else may read statistics that a norm changes, but what the norm itself needs: pieces of a graph keep the
    order of values, not that of changes."""
    changed = statistics_of(node)
    if changed and not node.users:
        raise NotCaptured(f"{node.target} changes statistics, and nothing reads its result")
    if any(user is not node and user not in node.all_input_nodes for one in changed for user in one.users):
        raise NotCaptured(f"{node.target} changes statistics in place that others read")


def make_functional(node: fx.Node) -> None:
    """Replaces an operator that works in place on a value that nothing else sees, or on a slice of one."""
    if not node.target._schema.is_mutable:
        return None
    if node.target is aten.detach_.default:
        node.target = aten.detach.default
        return None
    changed = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
    if changed is not None and changed.target in _SCATTERS and node.target in (aten.copy_.default, aten.fill_.Scalar):
        return _scatter(node, changed)
    if changed is not None and changed.op == "placeholder" and set(changed.users) == {node} and not node.users:
        return None  # a counter, which Inductor's part of the graph changes
    name, overload = node.target._opname, node.target._overloadname
    packet = getattr(aten, name[:-1], None) if name.endswith("_") else None
    if packet is None or overload not in packet.overloads() or changed is None:
        raise NotCaptured(f"{node.target} changes a tensor in place")
    _require_fresh(node, changed)
    node.target = getattr(packet, overload)
    changed.replace_all_uses_with(node, delete_user_cb=lambda user: node < user)


def _require_fresh(node: fx.Node, changed: fx.Node) -> None:
    """No other name may refer to the tensor that a node changes."""
    if changed.op != "call_function" or _is_alias(changed):
        raise NotCaptured(f"{node.target} changes an input or a view in place")
    aliases = [changed]
    for one in aliases:
        aliases.extend(user for user in one.users if user < node and _is_alias(user))
    if any(node < user for one in aliases[1:] for user in one.users):
        raise NotCaptured(f"{node.target} changes a tensor in place that has views")


def _is_alias(node: fx.Node) -> bool:
    """Whether the result may share memory with an operand."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return True  # an element of a list of views, or unknown
    return any(result.alias_info is not None for result in node.target._schema.returns)


def _scatter(node: fx.Node, view: fx.Node) -> None:
    """Replaces `x[1:] = y` by a new tensor."""
    base = view.args[0]
    if node.users:
        raise NotCaptured(f"the result of {node.target}, which changes a tensor in place, is read")
    _require_fresh(node, base)
    value, shown = node.args[1], value_of(view)
    with node.graph.inserting_before(node):
        if isinstance(value, fx.Node):
            value = insert(node, aten.to.dtype, (value, shown.dtype), value_of(value).to(shown.dtype))
            value = insert(node, aten.expand.default, (value, list(shown.shape)), shown)
        else:
            value = insert(node, aten.full_like.default, (view, value), shown)
    node.target, node.args = _SCATTERS[view.target], (base, value, *view.args[1:])
    node.meta["val"] = value_of(base)
    base.replace_all_uses_with(node, delete_user_cb=lambda user: node < user)
