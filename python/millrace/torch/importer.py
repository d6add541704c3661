"""Writes a region of an ATen graph as a program: a file in our language that a person can read and that runs under
NumPy. Equal layers of a model give the same text, so they share a plan. Test: tests/torch/importer_test.py"""

from __future__ import annotations

import keyword
import re
from typing import NamedTuple

import torch
from torch import fx

from millrace import numpy as language
from millrace.torch import aten_elementwise, aten_products, aten_shapes, module_names  # noqa: F401  (declare writers)
from millrace.torch.aten_writer import TYPE_NAMES, Writer
from millrace.torch.values import VIEWS, requires_grad, value_of

_ACTIVATION_SIZES = ("B", "T", "I")
_OTHER_SIZES = "UHPVKLMNOQRSWXYZACDEFG"
_PYTHON = "np math len range sum max min abs zip list tuple int float bool enumerate reversed"
_RESERVED = {*keyword.kwlist, *language.__all__, *_PYTHON.split()}


class Program(NamedTuple):
    name: str  # of the function
    text: str
    arguments: list[fx.Node]
    results: list[fx.Node]
    draws: bool  # has dropouts


def arguments_of(nodes: list[fx.Node]) -> list[fx.Node]:
    """The values that the nodes read and others compute, in the order of their first use."""
    inside = set(nodes)
    return list(dict.fromkeys(operand for node in nodes for operand in node.all_input_nodes if operand not in inside))


def results_of(nodes: list[fx.Node]) -> list[fx.Node]:
    """The values that others read."""
    inside = set(nodes)
    return [node for node in nodes if any(user not in inside for user in node.users)]


def import_region(nodes: list[fx.Node], layer: str, parameters: dict[str, str], model: str) -> Program:
    """`layer`: the module path that the nodes belong to, for names; `parameters`: names of the placeholders that are
    parameters; `model`: the name of the model's class."""
    arguments, results = arguments_of(nodes), results_of(nodes)
    taken = _Names()
    names = {node: taken(_argument_name(node, layer, parameters)) for node in arguments}
    sizes = _size_names(arguments, parameters)
    writer = Writer(dict(names), sizes, taken, frozenset(nodes))
    for node in arguments:
        if value_of(node).dim() == 0:
            writer.names[node] = writer.let(f"{names[node]}_value", f"{names[node]}[0]")
    for node in nodes:
        writer.write(node, _value_name(node, layer, writer.names))
    function = _function_name(layer)
    text = _text(function, module_names.pattern_of(layer), model, sizes,
                 [f"{names[node]}: {_annotation(node, writer)}" for node in arguments],
                 [*writer.lines, f"return {', '.join(writer.names[node] for node in results)}"])
    return Program(function, text, arguments, results, "dropout(" in text)


class _Names:
    """Makes names unique, by numbers."""

    def __init__(self):
        self._used: set[str] = set()

    def __call__(self, hint: str) -> str:
        plain = re.sub(r"_\d+$", "", hint)
        count, name = 1, hint
        while name in self._used or name in _RESERVED:
            count += 1
            name = f"{plain}_{count}"
        self._used.add(name)
        return name


def _identifier(path: str) -> str:
    plain = re.sub(r"\W", "_", path, flags=re.ASCII).lower().strip("_")
    return plain if plain[:1].isalpha() else f"x_{plain}".rstrip("_")


def _relative(path: str, layer: str) -> str:
    return path[len(layer) + 1 :] if layer and path.startswith(f"{layer}.") else path


def _argument_name(node: fx.Node, layer: str, parameters: dict[str, str]) -> str:
    if name := parameters.get(node.name, ""):
        return _identifier(_relative(name, layer))
    dtype = value_of(node).dtype
    return "mask" if dtype == torch.bool else "x" if dtype.is_floating_point else "ids"


def _value_name(node: fx.Node, layer: str, names: dict[fx.Node, str]) -> str:
    """Names a value after the module that computes it, and a view after its tensor."""
    if node.target in VIEWS and names[node.args[0]] not in ("x", "mask", "ids"):
        return names[node.args[0]]
    path = module_names.module_path(node)
    relative = _relative(path, layer) if path != layer else ""
    last = relative.split(".")[-1]
    return _identifier(last if last and not last.isdigit() else node.target._opname)


def _function_name(layer: str) -> str:
    return _identifier("_".join(part for part in layer.split(".")[-3:] if not part.isdigit())) if layer else "model"


def _size_names(arguments: list[fx.Node], parameters: dict[str, str]) -> dict[int, str]:
    """A name for each extent of the arguments: B, T and I for those of the first activation, then other letters."""
    names: dict[int, str] = {}
    activations = [value_of(node) for node in arguments if not parameters.get(node.name, "")]
    first = max((one for one in activations if one.is_floating_point()), key=lambda one: (one.dim() == 3, one.dim()),
                default=None)
    if first is not None and first.dim() > 1:
        for extent, name in zip((first.shape[0], first.shape[1], first.shape[-1]), _ACTIVATION_SIZES):
            names.setdefault(extent, name)
    names.pop(1, None)
    letters = iter([*_OTHER_SIZES, *(f"N{k}" for k in range(1000))])
    for node in arguments:
        for extent in value_of(node).shape:
            if extent > 1 and extent not in names:
                names[extent] = next(letters)
    return names


def _annotation(node: fx.Node, writer: Writer) -> str:
    value = value_of(node)
    dtype = TYPE_NAMES[value.dtype]
    fixed = "fixed." if value.is_floating_point() and not requires_grad(node) else ""
    return f"{fixed}{dtype}[{', '.join(map(writer.size, value.shape)) or '1'}]"


def _text(function: str, pattern: str, model: str, sizes: dict[int, str], arguments: list[str],
          lines: list[str]) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    listed = "".join(f"    {argument},\n" for argument in arguments)
    used = [name for name in language.__all__ if re.search(rf"\b{name}\b", listed + body)]
    declared = "".join(f"{name} = {extent}\n" for extent, name in sizes.items())
    imported = f"from millrace.numpy import {', '.join(used)}\n" if used else ""
    return (f'"""{pattern or "A region"} of {model}, imported from PyTorch."""\n\nimport numpy as np\n{imported}\n'
            f"{declared}\n\ndef {function}(\n{listed}):\n{body}")
