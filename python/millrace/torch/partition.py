"""Partitions an ATen graph: the largest regions that the language can express, one for each layer of the model, and
the rest, which Inductor compiles. Test: tests/torch/importer_test.py"""

from __future__ import annotations

import operator as python_operator
from collections import Counter
from typing import NamedTuple

from torch import fx

from millrace.torch import module_names
from millrace.torch.aten_products import is_contraction
from millrace.torch.aten_writer import covered
from millrace.torch.values import VIEWS, requires_grad, value_of

REST = None  # the key of what Inductor compiles
_NO_PRODUCT = "a region without matrix products is not worth a plan"
_NO_GRADIENT = "a region of a training step without gradients is not worth a plan"
_NOT_A_RESULT = "a plan returns no integers or booleans"


class Piece(NamedTuple):
    """Nodes that run together, in order. `layer`: the module path; None for what Inductor compiles; `after`: how many
    results of the model outside of its layers come before."""

    layer: str | None
    nodes: list[fx.Node]
    after: int = 0

    def is_region(self) -> bool:
        return self.layer is not REST

    def only_views(self) -> bool:
        return all(node.target in VIEWS or node.op == "get_attr" for node in self.nodes)


class Partition(NamedTuple):
    pieces: list[Piece]  # in execution order
    reasons: dict[fx.Node, str]  # why a node is in no region


def partition(graph: fx.Graph, layer: str = "") -> Partition:
    """`layer`: the layer's name if the graph is one layer; "" if it is a model."""
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    reasons = {node: why for node in nodes if (why := _why_not(node)) is not None}
    trains = any(map(requires_grad, nodes))
    layers = dict.fromkeys(nodes, layer) if layer else _layers(nodes)
    while True:
        pieces = _assign(nodes, reasons, layers)
        excluded = {node: why for piece in pieces if piece.is_region() for node, why in _excluded(piece, trains)}
        if not excluded:
            return Partition(pieces, reasons)
        reasons.update(excluded)


def _why_not(node: fx.Node) -> str | None:
    if node.op != "call_function":
        return "a constant of the model"
    if node.target is python_operator.getitem:
        return "an element of what Inductor computes"
    return covered(node)


def _layers(nodes: list[fx.Node]) -> dict[fx.Node, str]:
    """The layer of each node: the numbered module that has it, if that has several matrix products; else "". So the
    modules of a small nn.Sequential are no layers of their own."""
    named = {node: module_names.layer_of(module_names.module_path(node)) for node in nodes}
    products = Counter(layer for node, layer in named.items() if is_contraction(node))
    return {node: layer if products[layer] > 1 else "" for node, layer in named.items()}


def _assign(nodes: list[fx.Node], reasons: dict[fx.Node, str], layers: dict[fx.Node, str]) -> list[Piece]:
    """Each node joins the first piece of its kind that runs no earlier than its operands. So no cycles arise."""
    after = _results_before(nodes, layers)
    pieces: list[Piece] = []
    position: dict[fx.Node, int] = {}
    for node in nodes:
        key = REST if node in reasons else layers[node]
        earliest = max((position.get(operand, 0) for operand in node.all_input_nodes), default=0)
        if key == "" and pieces and pieces[earliest].layer and _between_layers(node, layers):
            key = pieces[earliest].layer
        kind = (key, after[node] if key == "" else 0)
        joined = next((k for k in range(earliest, len(pieces)) if (pieces[k].layer, pieces[k].after) == kind),
                      len(pieces))
        if joined == len(pieces):
            pieces.append(Piece(key, [], kind[1]))
        pieces[joined].nodes.append(node)
        position[node] = joined
    return pieces


def _results_before(nodes: list[fx.Node], layers: dict[fx.Node, str]) -> dict[fx.Node, int]:
    """How many results of the model, outside of its layers, each node depends on, along a path. A region ends at such a
    result. For example, a model returns logits and a loss. If one region computed both, a caller who uses only the loss
    would give it a gradient of zeros for the logits."""
    after: dict[fx.Node, int] = {}
    for node in nodes:
        after[node] = max((after[operand] + _is_returned(operand, layers) for operand in node.all_input_nodes
                           if operand in after), default=0)
    return after


def _is_returned(node: fx.Node, layers: dict[fx.Node, str]) -> bool:
    return not layers[node] and requires_grad(node) and any(user.op == "output" for user in node.users)


def _between_layers(node: fx.Node, layers: dict[fx.Node, str]) -> bool:
    """Whether layers alone use what a node outside of them computes, as a residual sum between two layers."""
    return not is_contraction(node) and all(layers.get(user) for user in node.users)


def _excluded(piece: Piece, trains: bool) -> list[tuple[fx.Node, str]]:
    """Nodes that the region must not have, with the reason. `trains`: whether the graph has gradients at all."""
    products = [node for node in piece.nodes if is_contraction(node)]
    if not products:
        return [(node, _NO_PRODUCT) for node in piece.nodes]
    if trains and not any(map(requires_grad, products)):
        return [(node, _NO_GRADIENT) for node in piece.nodes]
    inside = set(piece.nodes)
    found = []
    for node in piece.nodes:
        outside = [user for user in node.users if user not in inside]
        if outside and not value_of(node).is_floating_point():
            found.append((node, _NOT_A_RESULT))
        elif outside and len(outside) == len(node.users) and node.target in VIEWS:
            found.append((node, "a view of a result"))
    return found

