"""Finds the plan for a call, and lets the user control exploration."""

from __future__ import annotations

import contextlib
import functools
import warnings
from typing import NamedTuple

import torch

from millrace import plan_cache
from millrace._library import MillraceError

_budget: str | None = None
_changes = 0  # how often the budget was set
_warned: set[tuple[str, str]] = set()
_remembered: list = []


def set_budget(budget: str | None) -> None:
    """Sets the time to explore each new shape: "60s", "5m". With None, the default, plans are made without
    measurements."""
    global _budget, _changes
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
         layouts: tuple[str, ...] = ()) -> str:
    """The plan's folder. `layouts`: values for --layout."""
    return plan_cache.find_plan(text, sizes, dtype, device=where.device, threads=where.threads, hardware=where.hardware,
                                budget=_budget, name=name, entry=entry, layouts=layouts)


def find_or_why(*arguments, layouts: tuple[str, ...] = ()) -> tuple[str, str | None]:
    """As find, for a layer that can fall back: the folder, or the reason why there is no plan."""
    try:
        return find(*arguments, layouts=layouts), None
    except MillraceError as error:
        return "", f"no plan: {str(error).strip()}"


def warn_once(what: str, why: str) -> None:
    """Warns that a call falls back to PyTorch."""
    if torch.compiler.is_compiling() or (what, why) in _warned:
        return
    _warned.add((what, why))
    warnings.warn(f"millrace: {what} falls back to PyTorch: {why}", stacklevel=4)
