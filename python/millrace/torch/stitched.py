"""Makes callables of a partitioned graph: a module for each piece, and the graph that calls them in order. Test:
tests/torch/compile_backend_test.py"""

from __future__ import annotations

import operator as python_operator
from typing import Callable

import torch
from torch import fx

from millrace.torch.importer import arguments_of, results_of
from millrace.torch.partition import Piece
from millrace.torch.values import requires_grad

aten = torch.ops.aten


def piece_module(piece: Piece, owner: fx.GraphModule) -> fx.GraphModule:
    """The piece as a module. Takes arguments_of and returns the tuple results_of."""
    graph = fx.Graph()
    made = {}
    for k, node in enumerate(arguments_of(piece.nodes)):
        made[node] = graph.placeholder(f"argument_{k}")
        made[node].meta.update(node.meta)
    for node in piece.nodes:
        made[node] = _copy(graph, node, made)
    graph.output(tuple(made[node] for node in results_of(piece.nodes)))
    constants = {node.target: getattr(owner, node.target) for node in piece.nodes if node.op == "get_attr"}
    return fx.GraphModule(constants, graph)


def _copy(graph: fx.Graph, node: fx.Node, made: dict[fx.Node, fx.Node]) -> fx.Node:
    """A view becomes a reshape: plans return contiguous tensors, whatever the strides were in the traced graph."""
    copied = graph.node_copy(node, lambda operand: made[operand])
    if copied.target in (aten.view.default, aten._unsafe_view.default):
        copied.target = aten.reshape.default
    return copied


def stitch(owner: fx.GraphModule, pieces: list[Piece], calls: list[Callable | None]) -> fx.GraphModule:
    """The whole graph. `calls`: for each piece, what runs it; None for views, which run as they are."""
    graph = fx.Graph()
    modules: dict[str, object] = {}
    made: dict[fx.Node, fx.Node] = {}
    for node in owner.graph.nodes:
        if node.op == "placeholder":
            made[node] = graph.placeholder(node.name)
    for k, (piece, call) in enumerate(zip(pieces, calls)):
        if call is None:
            for node in piece.nodes:
                made[node] = _copy(graph, node, made)
            modules.update({node.target: getattr(owner, node.target) for node in piece.nodes if node.op == "get_attr"})
            continue
        modules[f"piece_{k}"] = _Calling(call)
        called = graph.call_module(f"piece_{k}", tuple(made[node] for node in arguments_of(piece.nodes)))
        results = results_of(piece.nodes)
        for position, node in enumerate(results):
            made[node] = graph.call_function(python_operator.getitem, (called, position))
            if any(map(requires_grad, results)) and not requires_grad(node):  # all results of a plan do if one does
                made[node] = graph.call_function(aten.detach.default, (made[node],))
    (output,) = [node for node in owner.graph.nodes if node.op == "output"]
    graph.output(fx.node.map_arg(output.args[0], lambda node: made[node]))
    return fx.GraphModule(modules, graph)


class _Calling(torch.nn.Module):
    """A callable as a submodule, without the hooks of one."""

    def __init__(self, call: Callable):
        super().__init__()
        self.forward = call

    def __call__(self, *arguments):
        return self.forward(*arguments)
