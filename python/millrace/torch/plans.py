"""Which plan a call runs, and the user's say in it."""

from __future__ import annotations

import contextlib
import functools
import warnings

import torch

from millrace import plan_cache

_budget: str | None = None
_warned: set[tuple[str, str]] = set()
_remembered: list = []


def set_budget(budget: str | None) -> None:
    """Time to explore for every shape that comes up and was not explored before: "60s", "5m". None, the default, makes
    plans at once, from what is known."""
    global _budget
    _budget = budget
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


def find(text: str, sizes: dict[str, int], dtype: str, threads: int, name: str, entry: str = "") -> str:
    return plan_cache.find_plan(text, sizes, dtype, threads=threads, budget=_budget, name=name, entry=entry)


def warn_once(what: str, why: str) -> None:
    """Of a call that runs by PyTorch's own path."""
    if torch.compiler.is_compiling() or (what, why) in _warned:
        return
    _warned.add((what, why))
    warnings.warn(f"millrace: {what} runs by PyTorch's own path: {why}", stacklevel=4)
