"""Simplifies a captured graph: casts of autocast are explicit, `detach` is the only operator that stops gradients,
nothing changes in place, and operators that compute nothing are gone. Test: tests/torch/importer_test.py"""

from __future__ import annotations

import operator as python_operator

import torch
from torch import fx

from millrace.torch.attention_forms import simplify_attention
from millrace.torch.in_place import make_functional, require_own_statistics, statistics_of
from millrace.torch.values import insert, requires_grad, value_of

aten = torch.ops.aten

# Operators whose floating-point operands autocast converts to the type of the result. Operands that already have that
# type stay as they are. Norms keep the type of their weights.
_CASTS = frozenset("""linear matmul mm bmm addmm baddbmm addbmm mv dot einsum conv1d conv2d conv3d conv_transpose1d
    conv_transpose2d conv_transpose3d scaled_dot_product_attention softmax log_softmax cross_entropy_loss nll_loss
    nll_loss2d mse_loss l1_loss smooth_l1_loss binary_cross_entropy_with_logits kl_div pow exp expm1 log log1p log2
    log10 rsqrt reciprocal softplus sum mean prod cumsum norm cat stack""".split())
_NORMS = frozenset(("layer_norm", "rms_norm", "group_norm"))
_IDENTITIES = {aten.alias.default, aten.clone.default, aten.contiguous.default, aten.lift_fresh_copy.default}


def simplify(module: fx.GraphModule) -> None:
    graph = module.graph
    _remove_modes(graph)
    for node in list(graph.nodes):
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            require_own_statistics(node)
            make_functional(node)
    _note_gradients(graph)
    for node in list(graph.nodes):
        if node.op == "call_function":
            _explicit_casts(node)
            _split_by_slices(node)
            _drop_empty(node)
            _skip_identity(node)
    simplify_attention(graph)
    graph.eliminate_dead_code()
    module.recompile()


def _remove_modes(graph: fx.Graph) -> None:
    """Removes the nodes that switch grad mode and autocast. Detaches the operands of everything that is computed
    without gradients."""
    enabled = True
    for node in list(graph.nodes):
        if node.target is torch._C._set_grad_enabled:
            enabled = node.args[0]
            graph.erase_node(node)
        elif getattr(node.target, "__name__", "") in ("_enter_autocast", "_exit_autocast"):
            node.replace_all_uses_with(None)
            graph.erase_node(node)
        elif node.op == "call_function" and not enabled:
            _detach_operands(node)


def _detach_operands(node: fx.Node) -> None:
    for operand in node.all_input_nodes:
        value = value_of(operand)
        if value is not None and value.is_floating_point() and operand.target is not aten.detach.default:
            with node.graph.inserting_before(node):
                detached = insert(node, aten.detach.default, (operand,), value)
            node.replace_input_with(operand, detached)


def _note_gradients(graph: fx.Graph) -> None:
    """Computes which values require a gradient."""
    for node in graph.nodes:
        if node.op == "get_attr" and value_of(node) is not None:
            node.meta["requires_grad"] = value_of(node).requires_grad and torch.is_grad_enabled()
        if node.op != "call_function":
            continue
        value = node.meta.get("val")
        floating = isinstance(value, (tuple, list)) or (isinstance(value, torch.Tensor) and value.is_floating_point())
        node.meta["requires_grad"] = (floating and node.target is not aten.detach.default
                                      and any(map(requires_grad, node.all_input_nodes)))


def _explicit_casts(node: fx.Node) -> None:
    value, name = value_of(node), getattr(node.target, "_opname", "")
    if value is None or not value.is_floating_point() or name not in _CASTS | _NORMS:
        return
    for operand in node.all_input_nodes if name in _CASTS else [node.args[0]]:
        given = value_of(operand)
        if given is None or not given.is_floating_point() or given.dtype == value.dtype:
            continue
        with node.graph.inserting_before(node):
            cast = insert(node, aten.to.dtype, (operand, value.dtype), given.to(value.dtype))
        cast.meta["requires_grad"] = requires_grad(operand)
        node.replace_input_with(operand, cast)


def _split_by_slices(node: fx.Node) -> None:
    """Replaces an element of a split, chunk or unbind by a slice or a selection."""
    if node.target is not python_operator.getitem or not isinstance(node.args[0], fx.Node):
        return
    split, which = node.args
    name = getattr(split.target, "_opname", "")
    if name not in ("split", "split_with_sizes", "chunk", "unbind", "tensor_split"):
        return
    axis = split.args[2] if len(split.args) > 2 else split.kwargs.get("dim", 0)
    if name == "unbind":
        axis = split.args[1] if len(split.args) > 1 else split.kwargs.get("dim", 0)
        node.target, node.args = aten.select.int, (split.args[0], axis, which)
        return
    begin = sum(piece.shape[axis] for piece in split.meta["val"][:which])
    node.target = aten.slice.Tensor
    node.args = (split.args[0], axis, begin, begin + split.meta["val"][which].shape[axis])


def _drop_empty(node: fx.Node) -> None:
    """Drops the empty operands of a concatenation, such as an empty cache of keys."""
    if node.target is not aten.cat.default:
        return
    full = [one for one in node.args[0] if value_of(one) is None or value_of(one).numel() > 0]
    if full:
        node.args = (full, *node.args[1:])


def _skip_identity(node: fx.Node) -> None:
    """Lets the users of a node that computes nothing read its operand, unless a result would become an alias."""
    operands = node.all_input_nodes
    source = operands[0] if operands else None
    if source is None or not _is_identity(node, source):
        return
    if any(node in statistics_of(user) for user in node.users):
        return  # a copy, so that the source stays as it is
    if source.op != "call_function" and any(user.op == "output" for user in node.users):
        return
    node.replace_all_uses_with(source)


def _is_identity(node: fx.Node, source: fx.Node) -> bool:
    value, given = value_of(node), value_of(source)
    if value is None or given is None or value.shape != given.shape or value.dtype != given.dtype:
        return False
    name = getattr(node.target, "_opname", "")
    if name in ("to", "_to_copy", "type_as"):
        return value.device == given.device
    if name == "detach":
        return not requires_grad(source)
    if name == "dropout":
        return node.args[1] == 0 or not node.args[2]
    neutral = {"add": 0, "sub": 0, "mul": 1, "div": 1}.get(name)
    if neutral is not None and len(node.args) > 1:
        return isinstance(node.args[1], (int, float)) and node.args[1] == neutral and not node.kwargs
    if node.target is aten.cat.default:
        return len(node.args[0]) == 1
    return node.target in _IDENTITIES
