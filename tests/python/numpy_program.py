"""Runs a Millrace program under NumPy: the file specifies its own results."""

from __future__ import annotations

import ast
import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import millrace.numpy  # noqa: E402  (the path above comes first)


@dataclass
class Program:
    """A program with one set of sizes."""

    function: Callable
    shapes: dict[str, tuple[int, ...] | None]  # of the arguments; None for a by-value scalar
    types: dict[str, millrace.numpy.DType]  # of the arguments
    sizes: dict[str, int]  # by name
    result_names: list[str]

    def differentiated(self) -> list[str]:
        """The arguments that have gradients: tensors that are neither integers nor fixed."""
        return [name for name, kind in self.types.items() if kind.shape is not None and kind.has_gradient]

    def run(self, arguments: dict, seed: int, step: int) -> dict[str, np.ndarray]:
        """The results by name; any invalid or overflowing arithmetic is an error."""
        millrace.numpy.seed(seed, step=step)
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            results = self.function(**arguments)
        results = results if isinstance(results, tuple) else (results,)
        return dict(zip(self.result_names, results, strict=True))


def load_program(path: Path, size_set: str | None = None) -> Program:
    """Executes the file with the sizes of a named set; sizes derived from them follow."""
    module = ast.parse(path.read_text(), filename=str(path))
    sizes = _size_sets(module)[size_set] if size_set else {}
    unused = set(sizes)
    body = []
    for statement in module.body:
        body.append(statement)
        names = [target.id for target in getattr(statement, "targets", []) if target.id in sizes]
        unused -= set(names)
        body += [ast.parse(f"{name} = {sizes[name]}").body[0] for name in names]
    if unused:
        raise ValueError(f"{path}: set {size_set!r} has sizes the program has not: {unused}")
    module.body = body
    namespace: dict = {}
    exec(compile(ast.fix_missing_locations(module), str(path), "exec"), namespace)

    definition = [node for node in body if isinstance(node, ast.FunctionDef)][-1]
    function = namespace[definition.name]
    annotations = inspect.get_annotations(function, eval_str=True)
    shapes = {name: annotation.shape for name, annotation in annotations.items()}
    numbers = {name: value for name, value in namespace.items() if isinstance(value, int)}
    return Program(function, shapes, annotations, numbers, _result_names(definition))


def _size_sets(module: ast.Module) -> dict[str, dict[str, int]]:
    for statement in module.body:
        if isinstance(statement, ast.Assign) and statement.targets[0].id == "SIZES":
            return ast.literal_eval(statement.value)
    return {}


def _result_names(definition: ast.FunctionDef) -> list[str]:
    """The returned variable's name; else `result`, with a number if there are several results."""
    value = definition.body[-1].value
    values = value.elts if isinstance(value, ast.Tuple) else [value]
    unnamed = ["result"] if len(values) == 1 else [f"result_{n}" for n in range(len(values))]
    return [v.id if isinstance(v, ast.Name) else name for v, name in zip(values, unnamed)]
