"""What is known of the value of a node in a captured graph. Test: tests/torch/importer_test.py"""

from __future__ import annotations

import torch
from torch import fx

aten = torch.ops.aten

# Views of their first argument: they move no data.
VIEWS = {aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.transpose.int, aten.permute.default,
         aten.t.default, aten.mT.default, aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims,
         aten.squeeze.default, aten.expand.default, aten.slice.Tensor, aten.select.int, aten.alias.default,
         aten.detach.default, aten.flatten.using_ints, aten.unflatten.int, aten.movedim.int, aten.swapaxes.default,
         aten.narrow.default, aten.expand_as.default, aten.view_as.default}


def value_of(node: fx.Node) -> torch.Tensor | None:
    """The fake tensor of a node, or a constant's own; None if it is not one tensor."""
    value = node.meta.get("val")
    if node.op == "get_attr":
        value = getattr(node.graph.owning_module, node.target, None)
    return value if isinstance(value, torch.Tensor) else None


def requires_grad(node: fx.Node) -> bool:
    return node.meta.get("requires_grad", False)


def insert(like: fx.Node, target, arguments: tuple, value: torch.Tensor) -> fx.Node:
    made = like.graph.call_function(target, arguments)
    made.meta.update({"val": value, "nn_module_stack": like.meta.get("nn_module_stack")})
    return made
