"""Traces a graph of torch.compile's frontend (Dynamo) to one of ATen operators, before autograd and with the composite
operators (linear, layer_norm, scaled_dot_product_attention) left whole. Test: tests/torch/importer_test.py"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta

from millrace.torch import module_names
from millrace.torch.in_place import NotCaptured
from millrace.torch.simplify import simplify


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
            module = make_fx(fx.Interpreter(dynamo).run, pre_dispatch=not _has_transform(dynamo.graph))(*fakes)
    except Exception as error:  # of any operator or higher-order operator that cannot be traced this way
        raise NotCaptured(f"tracing to ATen fails: {str(error).splitlines()[0] if str(error) else error!r}") from error
    _refuse_lost_values(module)
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    for node, x in zip(placeholders, inputs):
        node.meta["requires_grad"] = getattr(x, "requires_grad", False) and torch.is_grad_enabled()
    simplify(module)
    return Captured(module, {node.name: module_names.parameter_name(one.name)
                             for node, one in zip(placeholders, original)}, module_names.model_name(module.graph))


def _refuse_higher_order(graph: fx.Graph) -> None:
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            advice = "; checkpoint around the compiled model instead" if "checkpoint" in str(node.target) else ""
            raise NotCaptured(f"it contains {node.target}, which calls another graph{advice}")


def _has_transform(graph: fx.Graph) -> bool:
    """Whether the graph contains torch.vmap or torch.func.grad: their tensors can only be traced after dispatch."""
    return any(getattr(node.target, "__name__", "").endswith("_increment_nesting") for node in graph.nodes)


def _refuse_lost_values(module: fx.GraphModule) -> None:
    """A value whose origin was not traced is a constant of the module, and has no data."""
    for node in module.graph.find_nodes(op="get_attr"):
        if isinstance(getattr(module, node.target, None), torch._subclasses.FakeTensor):
            raise NotCaptured("tracing to ATen loses how some of its values are computed")


def _fake(x, mode: FakeTensorMode):
    """A fake tensor without history, so that tracing saves nothing for a backward pass."""
    if not isinstance(x, torch.Tensor):
        return x
    x = x.detach()
    return x if isinstance(x, torch._subclasses.FakeTensor) else mode.from_tensor(x, static_shapes=True)
