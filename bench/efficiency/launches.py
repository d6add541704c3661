"""Reads a plan's launches, and finds the kernels of each."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from efficiency.ncu import Kernel

OURS = re.compile(r"^k_[0-9a-f]{8,}")  # generated kernels; a launch's second kernel has a suffix after the hash
BETWEEN_STEPS = "millrace_advance"  # gpu_executor.h
# Kernels that a library launches before or after a product, and cuDNN before or after an attention's gradients.
BEFORE = re.compile(r"memset|fill|zero|dot_do_o", re.I)
AFTER = re.compile(r"split_?k.*reduc|reduce|bgrad|convert_dq", re.I)


class Unmatched(Exception):
    """The kernels do not match the plan."""


@dataclass(frozen=True)
class Launch:
    name: str
    step: str  # forward or backward
    function: str  # the plan's name of the generated kernel; empty for a library's call
    least_bytes: int  # Q: each buffer once
    flop: float | None = None
    unfolds: bool = False  # the generated kernel copies an operand of a library's product


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
                               row.get("flop"), " unfolded " in launch.get("candidate", "")))
    return launches


def kernel_names(folder: Path) -> dict[str, str]:
    """The names that ncu shows, by those in the plan. A plan names a kernel by its source alone; the name in the cubin
    depends on the GPU and the compiler, too. The first line of the plan's cubins has both (device/cubin_bundle.h)."""
    try:
        with open(folder / "kernels.cubins", "rb") as bundle:
            return {entry["kernel"]: entry["name"] for entry in json.loads(bundle.readline())}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unmatched(f"the plan's kernels.cubins names no kernels: {error}") from error


def match(launches: list[Launch], kernels: list[Kernel], names: dict[str, str]) -> list[list[Kernel]]:
    """The kernels of each launch; both lists have the same order. Generated kernels match by name; the kernels between
    two of them belong to the library calls between them."""
    kernels = [kernel for kernel in kernels if kernel.name != names.get(BETWEEN_STEPS)]
    matched: list[list[Kernel]] = []
    at = 0
    while len(matched) < len(launches):
        launch = launches[len(matched)]
        own = _generated(launch, names, kernels[at:]) if launch.function else []
        at += len(own)
        if launch.function and not launch.unfolds:
            matched.append(own)
            continue
        calls = 1 + _count_while(launches[len(matched) + 1 :], lambda launch: not launch.function)
        taken = _count_while(kernels[at:], lambda kernel: not OURS.match(kernel.name))
        groups = _products(launches[len(matched) : len(matched) + calls], kernels[at : at + taken])
        matched += [own + groups[0], *groups[1:]]
        at += taken
    if at < len(kernels):
        raise Unmatched(f"{len(kernels) - at} kernels are left over, the first is {kernels[at].name}")
    return matched


def _count_while(entries: list, holds) -> int:
    return next((k for k, entry in enumerate(entries) if not holds(entry)), len(entries))


def _generated(launch: Launch, names: dict[str, str], kernels: list[Kernel]) -> list[Kernel]:
    name = names.get(launch.function)
    if not name:
        raise Unmatched(f"the plan's kernels.cubins lacks {launch.function} for {launch.name}")
    if not kernels or kernels[0].name != name:
        raise Unmatched(f"expected {name} for {launch.name}, found {kernels[0].name if kernels else 'none'}; "
                        "if the plan is from another machine, run millrace optimize on this one")
    return kernels[: 1 + _count_while(kernels[1:], lambda kernel: kernel.name.startswith(f"{name}_"))]


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
