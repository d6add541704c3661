"""What writers of ATen operators share: they turn a node of the graph into an expression of the language, or say why
the language has none. The operators are in aten_elementwise.py, aten_shapes.py and aten_products.py. Test:
tests/torch/importer_test.py"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Callable, Sequence

import torch
from torch import fx

from millrace.torch.operator import DTYPES
from millrace.torch.values import value_of

TYPE_NAMES = {dtype: "bool_" if name == "bool" else name for name, dtype in DTYPES.items()}
Write = Callable[["Writer", fx.Node, SimpleNamespace], str]
WRITERS: dict[str, Write] = {}  # by the operator's name without overload


class NotCovered(Exception):
    """Why the language cannot express a node."""


def writes(*names: str) -> Callable[[Write], Write]:
    """Declares the writer of operators."""
    def declare(function: Write) -> Write:
        WRITERS.update({name: function for name in names})
        return function
    return declare


class Writer:
    """The program text of a region while it is written."""

    def __init__(self, names: dict[fx.Node, str], sizes: dict[int, str], taken: Callable[[str], str],
                 inside: frozenset[fx.Node] = frozenset()):
        self.names = names  # of values
        self.inside = inside  # the region's nodes
        self.sizes = sizes  # extents that have a name
        self.taken = taken  # makes a name unique
        self.lines: list[str] = []

    def write(self, node: fx.Node, hint: str) -> None:
        """Adds the statements of a node; none if it is another name for its operand."""
        expression = expression_of(self, node)
        self.names[node] = expression if expression.isidentifier() else self.let(hint, expression)

    def let(self, hint: str, expression: str) -> str:
        name = self.taken(hint)
        self.lines.append(f"{name} = {expression}")
        return name

    def text(self, value) -> str:
        """An operand: a value's name, or a number."""
        return self.names[value] if isinstance(value, fx.Node) else number(value)

    def size(self, extent: int) -> str:
        if extent in self.sizes:
            return self.sizes[extent]
        for one, name in self.sizes.items():
            if one > 1 and extent % one == 0 and extent // one in self.sizes:
                return f"{name} * {self.sizes[extent // one]}"
        return str(extent)

    def shape(self, extents: Sequence[int]) -> str:
        listed = ", ".join(self.size(extent) for extent in extents)
        return f"({listed},)" if len(extents) == 1 else f"({listed})"


def number(value) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise NotCovered(f"the operand {value!r}")
    if isinstance(value, float) and math.isinf(value):
        return "np.inf" if value > 0 else "-np.inf"
    if isinstance(value, float) and math.isnan(value):
        raise NotCovered("NaN as a number")
    return repr(value)


def tensor(node) -> torch.Tensor:
    """The fake tensor of an operand."""
    value = value_of(node) if isinstance(node, fx.Node) else None
    if value is None:
        raise NotCovered("an operand that is no tensor")
    return value


def is_float(value) -> bool:
    if isinstance(value, fx.Node):
        return tensor(value).is_floating_point()
    return isinstance(value, float)


def bound(node: fx.Node) -> SimpleNamespace:
    """The operator's arguments by name, defaults included."""
    arguments = node.target._schema.arguments
    given = {argument.name: argument.default_value for argument in arguments}
    given.update({argument.name: value for argument, value in zip(arguments, node.args)})
    return SimpleNamespace(**{**given, **node.kwargs})


def expression_of(writer: Writer, node: fx.Node) -> str:
    """The expression for a node. Raises NotCovered."""
    if not isinstance(node.target, torch._ops.OpOverload):
        raise NotCovered(f"{getattr(node.target, '__name__', node.target)} is no operator of ATen")
    write = WRITERS.get(node.target._opname) if node.target.namespace == "aten" else None
    if write is None:
        raise NotCovered("the language has no such operator")
    _check(tensor(node))
    for operand in node.all_input_nodes:
        _check(tensor(operand))
    return write(writer, node, bound(node))


def _check(value: torch.Tensor) -> None:
    if value.dtype not in TYPE_NAMES:
        raise NotCovered(f"a tensor of {value.dtype}")
    if value.device.type not in ("cpu", "cuda"):
        raise NotCovered(f"a tensor on {value.device}")
    if value.layout != torch.strided or value.numel() == 0:
        raise NotCovered("an empty or sparse tensor")


def in_type(expression: str, node: fx.Node, *operands) -> str:
    """The expression of floating-point operands, converted where the language's type differs from PyTorch's."""
    wanted = tensor(node).dtype
    given = [tensor(operand).dtype for operand in operands if isinstance(operand, fx.Node)]
    if all(dtype == wanted for dtype in given if dtype.is_floating_point):
        return expression
    return f"({expression}).astype({TYPE_NAMES[wanted]})"


def require_float(*operands) -> None:
    if any(isinstance(operand, fx.Node) and not is_float(operand) for operand in operands):
        raise NotCovered("arithmetic of integers or booleans")


def covered(node: fx.Node) -> str | None:
    """Why the language cannot express a node; None if it can."""
    writer = Writer({operand: "x" for operand in node.all_input_nodes}, {}, lambda hint: hint)
    try:
        expression_of(writer, node)
    except NotCovered as why:
        return str(why)
    return None
