"""What is known of the value of a node in a captured graph. Test: tests/torch/importer_test.py"""

from __future__ import annotations

import torch
from torch import fx


def value_of(node: fx.Node) -> torch.Tensor | None:
    """The fake tensor of a node, or a constant's own; None if it is not one tensor."""
    value = node.meta.get("val")
    if node.op == "get_attr":
        value = getattr(node.graph.owning_module, node.target, None)
    return value if isinstance(value, torch.Tensor) else None


def requires_grad(node: fx.Node) -> bool:
    return node.meta.get("requires_grad", False)
