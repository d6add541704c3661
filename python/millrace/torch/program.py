"""Runs any program as a differentiable function on tensors."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import NamedTuple

import torch

from millrace._library import MillraceError
from millrace.torch import coverage, operator, plans


_PYTHON_TYPES = ("int", "float", "bool", "tuple", "list")


class _Argument(NamedTuple):
    name: str
    dims: list[str | int | None] | None  # names and numbers, None if computed; for a scalar no list
    dtype: str


class Program:
    """A program's function: takes the program's tensors and scalars, and returns a tensor or a tuple of tensors.

    The tensors determine the sizes and the dtype. Each combination has its own plan.
    """

    def __init__(self, path: str | os.PathLike, entry: str | None = None, sizes: dict[str, int] | None = None):
        self.path = Path(path)
        self.text = self.path.read_text()
        self.entry = entry or ""
        self.sizes = dict(sizes or {})
        self.arguments = _arguments(self.text, entry, str(path))
        self.draws = any(isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", ""))
                         == "dropout" for node in ast.walk(ast.parse(self.text)))

    def __call__(self, *values, **named):
        given = self._bound(values, named)
        tensors = [value for argument, value in given if argument.dims is not None]
        numbers = [self._number(argument, value) for argument, value in given if argument.dims is None]
        of_tensors = [pair for pair in given if pair[0].dims is not None]
        sizes, dtype = self._sizes(of_tensors), self._common_dtype(of_tensors)
        device = self._common_device(of_tensors)
        path = _plan(self.text, sizes, dtype, device.type, device.index, self.path.stem, self.entry)
        random = operator.draw_random(device) if self.draws else None
        results = operator.run(path, [tensor.contiguous() for tensor in tensors], [1] * len(tensors), numbers, random)
        return results[0] if len(results) == 1 else tuple(results)

    def _bound(self, values: tuple, named: dict) -> list[tuple[_Argument, object]]:
        names = [argument.name for argument in self.arguments]
        if len(values) > len(names) or (unknown := sorted(set(named) - set(names[len(values) :]))):
            wrong = f"{len(values)} arguments" if len(values) > len(names) else f"unexpected argument {unknown[0]}"
            raise TypeError(f"{self.path.name} takes {', '.join(names)}: {wrong}")
        bound = []
        for k, argument in enumerate(self.arguments):
            value = values[k] if k < len(values) else named.get(argument.name)
            if value is None:
                raise TypeError(f"{self.path.name} takes {', '.join(names)}: {argument.name} is missing")
            if argument.dims is not None and not isinstance(value, torch.Tensor):
                raise TypeError(f"{self.path.name}: {argument.name} is a tensor, not a {type(value).__name__}")
            if argument.dims is not None and (wrong := _wrong_dtype(argument, value)):
                raise MillraceError(f"{self.path.name}: {wrong}", 2)
            bound.append((argument, value))
        return bound

    def _number(self, argument: _Argument, value) -> float:
        if isinstance(value, torch.Tensor) and (value.requires_grad or operator.has_tangent(value)):
            raise TypeError(f"{self.path.name}: {argument.name} is a number, which has no gradient; pass "
                            f"{argument.name}.detach(), or write {argument.name}: {argument.dtype}[1] in the program")
        if isinstance(value, torch.Tensor) and value.numel() != 1:
            raise TypeError(f"{self.path.name}: {argument.name} is a number, not a tensor {list(value.shape)}")
        try:
            return float(value)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{self.path.name}: {argument.name} is a number, not {value!r}") from error

    def _common_device(self, given: list) -> torch.device:
        first, tensor = given[0]
        for argument, other in given:
            if other.device.type not in ("cpu", "cuda"):
                raise ValueError(f"{self.path.name}: {argument.name} is on {other.device}; plans run on the CPU and on "
                                 "CUDA: create it there, or move it with .to()")
            if other.layout != torch.strided or other.is_nested:
                kind = "nested" if other.is_nested else str(other.layout)
                raise ValueError(f"{self.path.name}: {argument.name} is {kind}; plans take dense tensors: "
                                 f"{argument.name}.{'to_padded_tensor(0)' if other.is_nested else 'to_dense()'}")
            if other.device != tensor.device:
                raise ValueError(f"{self.path.name}: {argument.name} is on {other.device} and {first.name} on "
                                 f"{tensor.device}; move one with .to()")
        return tensor.device

    def _common_dtype(self, given: list) -> str:
        """The dtype of all tensors of numbers; "" if they differ, as their annotations do. Integers and booleans have
        the types of the annotations."""
        numbers = [(argument, tensor) for argument, tensor in given if tensor.dtype in operator.DTYPE_NAMES]
        if len({tensor.dtype for _, tensor in numbers}) == 1:
            return operator.DTYPE_NAMES[numbers[0][1].dtype]
        for argument, tensor in numbers:
            expected = operator.DTYPES.get(argument.dtype)
            if expected is not None and tensor.dtype != expected:
                others = ", ".join(f"{one.name} is {other.dtype}" for one, other in numbers if one is not argument)
                raise ValueError(f"{self.path.name}: {argument.name} is {tensor.dtype} and {others}; give all the same "
                                 f"dtype, or those of the program: {argument.name}.to({expected})")
        return ""

    def _sizes(self, given: list) -> tuple[tuple[str, int], ...]:
        sizes = dict(self.sizes)
        for argument, tensor in given:
            if tensor.dim() != len(argument.dims):
                raise ValueError(f"{self.path.name}: {argument.name} is {list(tensor.shape)} where the program has "
                                 f"{argument.dims}")
            if tensor.numel() == 0:
                raise ValueError(f"{self.path.name}: {argument.name} is {list(tensor.shape)}, which is empty; a plan "
                                 "needs at least one element: skip empty batches")
            for size, extent in zip(argument.dims, map(coverage.fixed, tensor.shape)):
                expected = sizes.setdefault(size, extent) if isinstance(size, str) else size
                if expected is not None and expected != extent:
                    raise ValueError(f"{self.path.name}: {argument.name} is {list(tensor.shape)} where {size} is "
                                     f"{expected}")
        return tuple(sizes.items())


def program(path: str | os.PathLike, entry: str | None = None, sizes: dict[str, int] | None = None) -> Program:
    """The program in a file as a function on tensors: its last function, or `entry`. `sizes`: those that the shapes of
    the tensors do not determine."""
    return Program(path, entry, sizes)


def _wrong_dtype(argument: _Argument, tensor: torch.Tensor) -> str:
    """What is wrong with the dtype of a tensor; "" if nothing is. Floating-point numbers of any supported dtype can be
    given for each other."""
    if tensor.dtype not in operator.DTYPES.values():
        return f"unsupported dtype {tensor.dtype}; use {', '.join(operator.DTYPES)}"
    expected = operator.DTYPES.get(argument.dtype.rstrip("_"))
    if expected is None or tensor.dtype == expected:
        return ""
    if tensor.is_floating_point() and expected.is_floating_point:
        return ""
    return f"{argument.name} is {tensor.dtype} where the program has {argument.dtype}; convert it with .to({expected})"


@torch.compiler.assume_constant_result
def _plan(text: str, sizes: tuple, dtype: str, device: str, index: int | None, name: str, entry: str) -> str:
    return _found_plan(text, sizes, dtype, plans.Where.of(device, index), name, entry)


@plans.remembered
def _found_plan(text: str, sizes: tuple, dtype: str, where: plans.Where, name: str, entry: str) -> str:
    return plans.find(text, dict(sizes), dtype, where, name, entry)


def _arguments(text: str, entry: str | None, path: str) -> list[_Argument]:
    """The arguments of the entry, from its annotations; the library checks the text when it makes a plan."""
    try:
        module = ast.parse(text)
    except SyntaxError as error:
        raise MillraceError(f"{path}:{error.lineno}: {error.msg}", 2) from error
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    chosen = [function for function in functions if entry is None or function.name == entry]
    if not chosen:
        raise MillraceError(f"{path} has no function {entry or ''}; it has {[f.name for f in functions]}", 2)
    found, taken = [], chosen[-1].args
    defaults = [None] * (len(taken.args) - len(taken.defaults)) + taken.defaults + taken.kw_defaults
    for parameter, default in zip([*taken.args, *taken.kwonlyargs], defaults):
        annotation = parameter.annotation
        if annotation is None or (default is not None and getattr(annotation, "id", "") in _PYTHON_TYPES):
            continue  # a constant with a default
        tensor = isinstance(annotation, ast.Subscript)
        named = annotation.value if tensor else annotation
        dtype = getattr(named, "attr", getattr(named, "id", ""))
        dims = None
        if tensor:
            listed = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
            dims = [getattr(dim, "id", getattr(dim, "value", None)) for dim in listed]
            dims = [dim if isinstance(dim, (str, int)) else None for dim in dims]
        found.append(_Argument(parameter.arg, dims, dtype))
    return found
