"""Reads a plan's launches, and finds the kernels of each."""

from __future__ import annotations

import re
from dataclasses import dataclass

from efficiency.ncu import Kernel

OURS = re.compile(r"^k_[0-9a-f]{8,}")  # generated kernels; a launch's second kernel has a suffix after the hash
BETWEEN_STEPS = "millrace_advance"
# Kernels that a library launches before or after a product.
BEFORE, AFTER = re.compile(r"memset|fill|zero", re.I), re.compile(r"split_?k.*reduc|reduce|bgrad", re.I)


class Unmatched(Exception):
    """The kernels do not match the plan."""


@dataclass(frozen=True)
class Launch:
    name: str
    step: str  # forward or backward
    function: str  # the generated kernel; empty for a library product
    least_bytes: int  # Q: each buffer once
    flop: float | None = None


def read_launches(plan: dict, report: dict | None) -> list[Launch]:
    """The launches of plan.json, with flop from `millrace report --json`."""
    rows = report["tables"]["launches"] if report else [{}] * len(plan["launches"])
    if len(rows) != len(plan["launches"]):
        raise Unmatched(f"the plan has {len(plan['launches'])} launches, its report {len(rows)}")
    launches = []
    for launch, row in zip(plan["launches"], rows):
        buffers = {number for number in launch["buffers"] if number >= 0}
        launches.append(Launch(launch.get("partition") or f"conversion of {launch['conversion_of']}", launch["pass"],
                               launch.get("function", ""), sum(plan["buffers"][k]["bytes"] for k in buffers),
                               row.get("flop")))
    return launches


def match(launches: list[Launch], kernels: list[Kernel]) -> list[list[Kernel]]:
    """The kernels of each launch; both lists have the same order. Generated kernels match by name; the kernels between
    two of them belong to the library products between them."""
    kernels = [kernel for kernel in kernels if kernel.name != BETWEEN_STEPS]
    matched: list[list[Kernel]] = []
    at = 0
    while len(matched) < len(launches):
        launch = launches[len(matched)]
        if launch.function:
            own = _generated(launch, kernels, at)
            matched.append(own)
            at += len(own)
        else:
            products = _count_while(launches[len(matched):], lambda launch: not launch.function)
            taken = _count_while(kernels[at:], lambda kernel: not OURS.match(kernel.name))
            matched += _products(launches[len(matched) : len(matched) + products], kernels[at : at + taken])
            at += taken
    if at < len(kernels):
        raise Unmatched(f"{len(kernels) - at} kernels are left over, the first is {kernels[at].name}")
    return matched


def _count_while(entries: list, holds) -> int:
    return next((k for k, entry in enumerate(entries) if not holds(entry)), len(entries))


def _generated(launch: Launch, kernels: list[Kernel], at: int) -> list[Kernel]:
    if at >= len(kernels) or kernels[at].name != launch.function:
        found = kernels[at].name if at < len(kernels) else "none"
        raise Unmatched(f"expected {launch.function} for {launch.name}, found {found}")
    more = _count_while(kernels[at + 1 :], lambda kernel: kernel.name.startswith(f"{launch.function}_"))
    return kernels[at : at + 1 + more]


def _products(launches: list[Launch], kernels: list[Kernel]) -> list[list[Kernel]]:
    """One kernel per product; extra kernels prepare or finish a product."""
    groups: list[list[Kernel]] = [[kernel] for kernel in kernels]
    if len(kernels) != len(launches):
        groups = _with_helpers(kernels)
    if len(groups) != len(launches):
        raise Unmatched(f"{len(launches)} products from {launches[0].name} on, but {len(kernels)} kernels: "
                        f"{', '.join(kernel.name for kernel in kernels) or 'none'}")
    return groups


def _with_helpers(kernels: list[Kernel]) -> list[list[Kernel]]:
    groups: list[list[Kernel]] = []
    waiting: list[Kernel] = []
    for kernel in kernels:
        if AFTER.search(kernel.name) and groups:
            groups[-1].append(kernel)
        elif BEFORE.search(kernel.name):
            waiting.append(kernel)
        else:
            groups.append([*waiting, kernel])
            waiting = []
    return groups if not waiting else [*groups, waiting]
