"""Says how torch.compile(backend="millrace") compiles a model. Test: tests/torch/compile_backend_test.py"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

from millrace.torch.backend import Compiled, compile_graph
from millrace.torch.regions import Region


class Explanation(NamedTuple):
    """The graphs of a model, in the order in which they were compiled."""

    graphs: list[Compiled]

    def __str__(self) -> str:
        return "\n".join(line for number, graph in enumerate(self.graphs) for line in _lines(number, graph))


def explain(model: torch.nn.Module, *inputs, options: dict | None = None, **named) -> Explanation:
    """Compiles the model for these inputs, runs it once, and returns its regions with their programs, what runs them,
    and what went to Inductor and why. Prints as text."""
    graphs: list[Compiled] = []
    backend = functools.partial(compile_graph, options=options, listener=graphs.append)
    torch.compile(model, backend=backend)(*inputs, **named)
    return Explanation(graphs)


def _lines(number: int, graph: Compiled) -> list[str]:
    if graph.whole is not None:
        return [f"graph {number}: Inductor compiles all of it: {graph.whole}"]
    lines = [f"graph {number}: {len(graph.regions)} regions, {len({r.program.text for r in graph.regions})} different"]
    seen: dict[str, str] = {}
    for region in graph.regions:
        lines += _region_lines(region, seen.setdefault(region.program.text, region.name))
    by_reason: dict[str, list[str]] = {}
    for name, why in graph.rest.items():
        by_reason.setdefault(why, []).append(name)
    lines += [f"  Inductor: {', '.join(sorted(names))}: {why}" for why, names in by_reason.items()]
    return lines


def _region_lines(region: Region, first: str) -> list[str]:
    if first != region.name:
        return [f"  {region.name}: as {first}"]
    choice = region.choice
    if choice is None:
        runs = "was not called"
    elif choice.plan_seconds is None:
        runs = f"{choice.plan or 'Inductor'} ({choice.why})"
    else:
        runs = (f"{choice.plan or 'Inductor'} ({choice.why}: a step takes {choice.plan_seconds * 1e3:.3g} ms by the "
                f"plan, {choice.inductor_seconds * 1e3:.3g} ms by Inductor)")
    return [f"  {region.name}: {region.file}", f"    runs {runs}"]
