"""Finds the operators of every launch of a plan, and the rows of the paper's table that share launches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Launch:
    name: str
    operators: frozenset[str]  # empty for a conversion
    seconds: float
    moved_bytes: int  # each buffer once
    operator_class: str


def _class_of(operators: list[dict]) -> str:
    classes = {operator["class"] for operator in operators}
    return next((name for name in ("contraction", "normalization", "elementwise") if name in classes), "conversion")


def read_launches(plan: dict, analysis: dict) -> list[Launch]:
    """A launch computes the operators between the tensors that already exist and the tensors that it writes."""
    producer = {tensor["tensor"]: op for op in analysis["operators"] for tensor in op["outputs"]}
    existing = {tensor["tensor"] for op in analysis["operators"] for tensor in op["inputs"]} - set(producer)
    launches = []
    for launch in plan["launches"]:
        buffers = [plan["buffers"][number] for number in dict.fromkeys(launch["buffers"]) if number >= 0]
        tensors = {buffer["tensor"] for buffer in buffers}
        inside: dict[str, dict] = {}
        wanted = sorted(tensors - existing)
        while wanted:
            tensor = wanted.pop()
            if tensor in existing:
                continue
            if tensor not in producer:
                if tensor.rpartition(".")[0] in producer:
                    continue  # `hidden.positive`: saved instead of its tensor; not in the paper's graph
                raise ValueError(f"no operator of the program writes the plan's tensor {tensor}")
            op = producer[tensor]
            if op["name"] not in inside:
                inside[op["name"]] = op
                wanted += [read["tensor"] for read in op["inputs"]]
        existing |= tensors | {tensor["tensor"] for op in inside.values() for tensor in op["outputs"]}
        launches.append(Launch(launch.get("partition") or f"conversion of {launch['conversion_of']}", frozenset(inside),
                               launch["predicted_seconds"], sum(buffer["bytes"] for buffer in buffers),
                               _class_of(list(inside.values()))))
    return launches


def shared_rows(rows: list[set[str]], launches: list[Launch]) -> list[tuple[list[int], list[Launch]]]:
    """Groups rows (sets of operators) with their launches, such that no launch has operators in two groups."""
    groups: list[tuple[list[int], list[Launch]]] = []
    for number, operators in enumerate(rows):
        touched = [launch for launch in launches if launch.operators & operators]
        joined = [group for group in groups if any(launch in group[1] for launch in touched)]
        groups = [group for group in groups if group not in joined]
        numbers = sorted([number, *(n for group in joined for n in group[0])])
        all_launches = {id(launch): launch for group in joined for launch in group[1]}
        all_launches |= {id(launch): launch for launch in touched}
        groups.append((numbers, list(all_launches.values())))
    return sorted(groups, key=lambda group: group[0])
