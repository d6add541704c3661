"""Reads the sizes of a Millrace program, and changes its dropout and its order of axes."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

DEFAULT_DROPOUT = 0.1  # the default p of dropout(x, p=0.1); docs/language.md


def sizes_of(text: str, chosen: list[str]) -> dict[str, int]:
    """The program's sizes with the values of --size applied; derived sizes follow."""
    module = ast.parse(text)
    given = _chosen_sizes(_size_sets(module), chosen)
    sizes: dict[str, int] = {}
    for names, value in _assignments(module):
        if names == ["SIZES"]:
            continue
        computed = eval(compile(ast.Expression(value), "sizes", "eval"), {"__builtins__": {}}, dict(sizes))
        for name in names:
            sizes[name] = given.get(name, computed)
    if unknown := set(given) - set(sizes):
        raise ValueError(f"the program has no size {', '.join(sorted(unknown))}; it has {', '.join(sizes)}")
    return sizes


def with_dropout(text: str, probability: float) -> str:
    """The program's text with this probability in every call of dropout."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]  # ast counts columns in bytes
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and _name(node) == "dropout"]
    for call in sorted(calls, key=lambda node: (node.end_lineno, node.end_col_offset), reverse=True):
        old = call.args[1:] + [keyword.value for keyword in call.keywords]
        begin = (old[0].lineno, old[0].col_offset) if old else (call.end_lineno, call.end_col_offset - 1)
        end = (old[0].end_lineno, old[0].end_col_offset) if old else begin
        if begin[0] != end[0] or len(old) > 1:
            raise ValueError(f"line {call.lineno}: dropout takes a tensor and a probability on one line")
        line = lines[begin[0] - 1]
        new = (b"" if old else b", ") + repr(probability).encode()
        lines[begin[0] - 1] = line[: begin[1]] + new + line[end[1] :]
    return b"".join(lines).decode()


def axes_of(text: str) -> dict[str, list[str]]:
    """The names of the axes of every tensor argument, in order."""
    function = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)][-1]
    axes = {}
    for argument in function.args.args:
        if isinstance(argument.annotation, ast.Subscript):
            index = argument.annotation.slice
            axes[argument.arg] = [axis.id for axis in (index.elts if isinstance(index, ast.Tuple) else [index])]
    return axes


def transposed(tensors: dict[str, np.ndarray], source: str, target: str, like: dict[str, str]) -> dict[str, np.ndarray]:
    """Converts tensors of the program `source` to the order of axes of the program `target`.

    A gradient has the axes of its tensor; `like` names an argument with the same axes for other tensors.
    """
    before, after = axes_of(source), axes_of(target)

    def moved(name: str, tensor: np.ndarray) -> np.ndarray:
        argument = name.removeprefix("d_") if name not in before else name
        argument = like.get(argument, argument)
        if argument not in before:
            return tensor
        return tensor.transpose([before[argument].index(axis) for axis in after[argument]]).copy()

    return {name: moved(name, tensor) for name, tensor in tensors.items()}


def _name(call: ast.Call) -> str:
    return getattr(call.func, "id", None) or getattr(call.func, "attr", "")


def _assignments(module: ast.Module) -> list[tuple[list[str], ast.expr]]:
    assigned = [node for node in module.body if isinstance(node, ast.Assign)]
    return [([target.id for target in node.targets], node.value) for node in assigned]


def _size_sets(module: ast.Module) -> dict[str, dict[str, int]]:
    return next((ast.literal_eval(value) for names, value in _assignments(module) if names == ["SIZES"]), {})


def _chosen_sizes(sets: dict[str, dict[str, int]], chosen: list[str]) -> dict[str, int]:
    """Parses `--size tiny --size B=4,J=8`; later ones take precedence."""
    given: dict[str, int] = {}
    for entry in ",".join(chosen).split(",") if chosen else []:
        name, is_number, value = entry.partition("=")
        if not is_number:
            if name not in sets:
                raise ValueError(f"the program has no set of sizes '{name}'; it has {', '.join(sets)}")
            given |= sets[name]
        elif not value.isdecimal() or int(value) == 0:
            raise ValueError(f"size '{entry}' is not NAME=INTEGER with an integer of at least 1")
        else:
            given[name] = int(value)
    return given
