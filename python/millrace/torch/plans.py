"""Finds the plan for a call, and lets the user control exploration."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import warnings
from typing import NamedTuple

import torch

from millrace import plan_cache
from millrace._library import MillraceError
from millrace.torch import operator

_TIME = re.compile(r"[0-9]{1,9}(\.[0-9]*)?(s|m|min|h)?")  # as --budget
_INNER = tuple(os.path.dirname(module.__file__) + os.sep for module in (torch, plan_cache))
_RAN = "_millrace_ran"  # attribute of a layer
_budget: str | None = None
_changes = 0  # how often the budget was set
_warned: set[tuple[str, str]] = set()
_remembered: list = []


def check_budget(budget: str | None) -> None:
    if budget is not None and not (isinstance(budget, str) and _TIME.fullmatch(budget)):
        raise ValueError(f"the budget {budget!r} is not a time; write it as '90s', '5m' or '1h'")


def set_budget(budget: str | None) -> None:
    """Sets the time to explore each new shape: "60s", "5m". With None, the default, plans are made without
    measurements."""
    global _budget, _changes
    check_budget(budget)
    _budget = budget
    _changes += 1
    for function in _remembered:
        function.cache_clear()


@contextlib.contextmanager
def explore(budget: str = "60s"):
    """A context in which every new shape is explored. Run one training step in it.

        with millrace.torch.explore("2m"):
            model(batch).sum().backward()
    """
    before = _budget
    set_budget(budget)
    try:
        yield
    finally:
        set_budget(before)


def remembered(function):
    """Caches the function's results until the budget changes."""
    _remembered.append(functools.cache(function))
    return _remembered[-1]


def validity() -> tuple[int, int]:
    """A cached plan is valid while this is unchanged: the budget and the number of threads."""
    return _changes, torch.get_num_threads()


class Where(NamedTuple):
    """The device that a plan runs on, as plain values."""

    device: str  # "cpu" or "cuda"
    threads: int
    hardware: str  # a GPU's name

    @staticmethod
    def of(device: str, index: int | None) -> Where:
        if device == "cpu":
            return Where(device, torch.get_num_threads(), "")
        return Where(device, 0, _gpu_name(index))


@functools.cache
def _gpu_name(index: int) -> str:
    return torch.cuda.get_device_name(index)  # slow: queries all device properties


def find(text: str, sizes: dict[str, int], dtype: str, where: Where, name: str, entry: str = "",
         layouts: tuple[str, ...] = (), budget: str | None = None) -> str:
    """The plan's folder. `layouts`: values for --layout; `budget`: as set_budget, which takes precedence."""
    return plan_cache.find_plan(text, sizes, dtype, device=where.device, threads=where.threads, hardware=where.hardware,
                                budget=_budget or budget, name=name, entry=entry, layouts=layouts)


def find_or_why(*arguments, layouts: tuple[str, ...] = ()) -> tuple[str, str | None]:
    """The same as find, for a layer that can fall back: the folder, or the reason why there is no plan."""
    try:
        return find(*arguments, layouts=layouts), None
    except MillraceError as error:
        return "", f"no plan: {str(error).strip()}"


def run_or_why(path: str, tensors: list[torch.Tensor], pieces: list[int],
               random: torch.Tensor | None) -> tuple[tuple[torch.Tensor, ...], str | None]:
    """The same as operator.run, for a layer that can fall back: the results, or the reason if the plan cannot be
    loaded."""
    try:
        return operator.run(path, tensors, pieces, [], random), None
    except MillraceError as error:
        return (), str(error).removeprefix("millrace: ").strip()


class Ran(NamedTuple):
    """What the last call of a layer ran: a plan, or PyTorch's own code, with the reason."""

    plan: str | None
    why_not: str | None = None


def plan_of(layer: torch.nn.Module) -> Ran | None:
    """What the last eager call of a layer ran: the plan's folder, which `millrace report` shows, or why there was none.
    None if the layer was not called, or is not one of Millrace's."""
    return layer.__dict__.get(_RAN)


def note_plan(layer: torch.nn.Module, path: str) -> None:
    if not torch.compiler.is_compiling():
        layer.__dict__[_RAN] = Ran(path)


def fall_back(layer: torch.nn.Module, why: str) -> None:
    """Notes that a call runs PyTorch's own code, and warns once."""
    if not torch.compiler.is_compiling():
        layer.__dict__[_RAN] = Ran(None, why)
    warn_once(type(layer).__name__, why)


def forget_fall_back(layer: torch.nn.Module) -> None:
    """Notes that a call of an imported layer ran its compiled code. Its regions know which plans that has."""
    layer.__dict__.pop(_RAN, None)


def warn_once(what: str, why: str) -> None:
    """Warns that a call falls back to PyTorch."""
    if torch.compiler.is_compiling() or (what, why) in _warned:
        return
    _warned.add((what, why))
    warn(f"{what} falls back to PyTorch: {why}")


def warn(message: str) -> None:
    """Warns at the user's line of code."""
    warnings.warn(f"millrace: {message}", stacklevel=_callers_level())


def _callers_level() -> int:
    """The stack level, for warnings.warn in the calling function, of the first code outside torch and millrace."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INNER):
        frame, level = frame.f_back, level + 1
    return level
