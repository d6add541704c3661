"""Which plan a call runs, and the user's say in it."""

from __future__ import annotations

import contextlib
import functools
import warnings
from typing import NamedTuple

import torch

from millrace import plan_cache
from millrace._library import MillraceError

_budget: str | None = None
_changes = 0  # of the budget
_warned: set[tuple[str, str]] = set()
_remembered: list = []


def set_budget(budget: str | None) -> None:
    """Time to explore for every shape that comes up and was not explored before: "60s", "5m". None, the default, makes
    plans at once, from what is known."""
    global _budget, _changes
    _budget = budget
    _changes += 1
    for function in _remembered:
        function.cache_clear()


@contextlib.contextmanager
def explore(budget: str = "60s"):
    """Within it every new shape is explored: run one step of the training loop in it.

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
    """A function whose results hold until the budget changes."""
    _remembered.append(functools.cache(function))
    return _remembered[-1]


def validity() -> tuple[int, int]:
    """What was found before holds for as long as this is the same: the budget, and the number of threads."""
    return _changes, torch.get_num_threads()


class Where(NamedTuple):
    """Where a plan runs, as plain values."""

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
    return torch.cuda.get_device_name(index)  # asks the driver for all that there is to know


def find(text: str, sizes: dict[str, int], dtype: str, where: Where, name: str, entry: str = "",
         layouts: tuple[str, ...] = ()) -> str:
    """The plan's folder. `layouts`: as --layout takes them."""
    return plan_cache.find_plan(text, sizes, dtype, device=where.device, threads=where.threads, hardware=where.hardware,
                                budget=_budget, name=name, entry=entry, layouts=layouts)


def find_or_why(*arguments, layouts: tuple[str, ...] = ()) -> tuple[str, str | None]:
    """The same for a layer, which can do without: the folder, or why there is none."""
    try:
        return find(*arguments, layouts=layouts), None
    except MillraceError as error:
        return "", f"there is no plan: {str(error).strip()}"


def warn_once(what: str, why: str) -> None:
    """Of a call that runs by PyTorch's own path."""
    if torch.compiler.is_compiling() or (what, why) in _warned:
        return
    _warned.add((what, why))
    warnings.warn(f"millrace: {what} runs by PyTorch's own path: {why}", stacklevel=4)
