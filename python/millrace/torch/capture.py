"""Traces a graph of torch.compile's frontend (Dynamo) to one of ATen operators, before autograd and with the composite
operators (linear, layer_norm, scaled_dot_product_attention) in one piece, and simplifies it: casts of autocast are
explicit, `detach` is the only operator that stops gradients, nothing changes in place. Test:
tests/torch/importer_test.py"""

from __future__ import annotations

import operator as python_operator
from typing import NamedTuple

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta

from millrace.torch import module_names
from millrace.torch.attention_forms import simplify_attention
from millrace.torch.values import requires_grad, value_of

aten = torch.ops.aten

# Views of their first argument: they move no data.
VIEWS = {aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.transpose.int, aten.permute.default,
         aten.t.default, aten.mT.default, aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims,
         aten.squeeze.default, aten.expand.default, aten.slice.Tensor, aten.select.int, aten.alias.default, aten.detach.default,
         aten.flatten.using_ints, aten.unflatten.int, aten.movedim.int, aten.swapaxes.default, aten.narrow.default,
         aten.expand_as.default, aten.view_as.default}
# Whose floating-point operands autocast converts to the type of the result. The conversion changes nothing where that
# is already their type. Norms keep the type of their weights.
_CASTS = frozenset("""linear matmul mm bmm addmm baddbmm addbmm mv dot einsum conv1d conv2d conv3d conv_transpose1d
    conv_transpose2d conv_transpose3d scaled_dot_product_attention softmax log_softmax cross_entropy_loss nll_loss
    nll_loss2d mse_loss l1_loss smooth_l1_loss binary_cross_entropy_with_logits kl_div pow exp expm1 log log1p log2 log10
    rsqrt reciprocal softplus sum mean prod cumsum norm cat stack""".split())
_NORMS = frozenset(("layer_norm", "rms_norm", "group_norm"))
_SCATTERS = {aten.slice.Tensor: aten.slice_scatter.default, aten.select.int: aten.select_scatter.default}
_IDENTITIES = {aten.alias.default, aten.clone.default, aten.contiguous.default, aten.lift_fresh_copy.default,
               aten.detach_.default}


class NotCaptured(Exception):
    """Why a graph goes to Inductor as a whole."""


class Captured(NamedTuple):
    module: fx.GraphModule
    names: dict[str, str]  # of placeholders: parameters by their names in the model, others ""
    model: str  # its class


def capture(dynamo: fx.GraphModule, inputs: list[torch.Tensor], mode: FakeTensorMode | None) -> Captured:
    """`inputs`: real or fake tensors, of fixed shapes; `mode`: that of the fake ones."""
    _refuse_higher_order(dynamo.graph)
    mode = mode or FakeTensorMode(allow_non_fake_inputs=True)
    fakes = [_fake(x, mode) for x in inputs]
    original = [node for node in dynamo.graph.nodes if node.op == "placeholder"]
    try:
        with preserve_node_meta(), mode:
            module = make_fx(fx.Interpreter(dynamo).run, pre_dispatch=True)(*fakes)
    except Exception as error:  # of any operator or higher-order operator that cannot be traced this way
        raise NotCaptured(f"tracing to ATen fails: {str(error).splitlines()[0] if str(error) else error!r}") from error
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    for node, x in zip(placeholders, inputs):
        node.meta["requires_grad"] = getattr(x, "requires_grad", False) and torch.is_grad_enabled()
    _simplify(module)
    return Captured(module, {node.name: module_names.parameter_name(one.name)
                             for node, one in zip(placeholders, original)}, module_names.model_name(module.graph))


def _refuse_higher_order(graph: fx.Graph) -> None:
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            advice = "; checkpoint around the compiled model instead" if "checkpoint" in str(node.target) else ""
            raise NotCaptured(f"it contains {node.target}, which calls another graph{advice}")


def _fake(x, mode: FakeTensorMode):
    """A fake tensor without history, so that tracing saves nothing for a backward pass."""
    if not isinstance(x, torch.Tensor):
        return x
    return x.detach() if isinstance(x, torch._subclasses.FakeTensor) else mode.from_tensor(x.detach(), static_shapes=True)


def _simplify(module: fx.GraphModule) -> None:
    graph = module.graph
    _remove_modes(graph)
    for node in list(graph.nodes):
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            _make_functional(node)
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
    """Removes the nodes that switch grad mode and autocast. What is computed without gradients gets detached
    operands."""
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
                detached = _insert(node, aten.detach.default, (operand,), value)
            node.replace_input_with(operand, detached)


def _insert(like: fx.Node, target, arguments: tuple, value: torch.Tensor) -> fx.Node:
    made = like.graph.call_function(target, arguments)
    made.meta.update({"val": value, "nn_module_stack": like.meta.get("nn_module_stack")})
    return made


def _make_functional(node: fx.Node) -> None:
    """Replaces an operator that works in place on a value that nothing else sees, or on a slice of one."""
    if not node.target._schema.is_mutable or node.target is aten.detach_.default:
        return
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


def _require_fresh(node: fx.Node, changed: fx.Node, view: fx.Node | None = None) -> None:
    """Nothing but `view` may show the tensor that a node changes."""
    views = [user for user in changed.users if user.target in VIEWS and user is not view and user < node]
    if changed.op != "call_function" or changed.target in VIEWS or any(node < user for one in views for user in one.users):
        raise NotCaptured(f"{node.target} changes an input, or a tensor that has views, in place")


def _scatter(node: fx.Node, view: fx.Node) -> None:
    """Replaces `x[1:] = y` by a new tensor."""
    base = view.args[0]
    _require_fresh(node, base, view)
    value, shown = node.args[1], value_of(view)
    with node.graph.inserting_before(node):
        if isinstance(value, fx.Node):
            value = _insert(node, aten.to.dtype, (value, shown.dtype), value_of(value).to(shown.dtype))
            value = _insert(node, aten.expand.default, (value, list(shown.shape)), shown)
        else:
            value = _insert(node, aten.full_like.default, (view, value), shown)
    node.target, node.args = _SCATTERS[view.target], (base, value, *view.args[1:])
    node.meta["val"] = value_of(base)
    base.replace_all_uses_with(node, delete_user_cb=lambda user: node < user)


def _note_gradients(graph: fx.Graph) -> None:
    """Computes which values require a gradient."""
    for node in graph.nodes:
        if node.op == "get_attr" and value_of(node) is not None:
            node.meta["requires_grad"] = value_of(node).requires_grad and torch.is_grad_enabled()
        if node.op != "call_function":
            continue
        value = node.meta.get("val")
        floating = isinstance(value, (tuple, list)) or (isinstance(value, torch.Tensor) and value.is_floating_point())
        node.meta["requires_grad"] = (floating and node.target not in (aten.detach.default, aten.detach_.default)
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
            cast = _insert(node, aten.to.dtype, (operand, value.dtype), given.to(value.dtype))
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
    """Leaves out what adds nothing to a concatenation, as an empty cache of keys does."""
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
    if source.op != "call_function" and any(user.op == "output" for user in node.users):
        return
    node.replace_all_uses_with(source)


def _is_identity(node: fx.Node, source: fx.Node) -> bool:
    value, given = value_of(node), value_of(source)
    if value is None or given is None or value.shape != given.shape or value.dtype != given.dtype:
        return False
    name = getattr(node.target, "_opname", "")
    if name in ("to", "_to_copy"):
        return value.device == given.device
    if name in ("detach", "detach_"):
        return not requires_grad(source)
    if name == "dropout":
        return node.args[1] == 0 or not node.args[2]
    neutral = {"add": 0, "sub": 0, "mul": 1, "div": 1}.get(name)
    if neutral is not None and len(node.args) > 1:
        return isinstance(node.args[1], (int, float)) and node.args[1] == neutral and not node.kwargs
    if node.target is aten.cat.default:
        return len(node.args[0]) == 1
    return node.target in _IDENTITIES
