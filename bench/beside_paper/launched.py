"""Which operators every launch of a plan carries out, and which rows of the paper's table launches have in common."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Launch:
    name: str
    operators: frozenset[str]  # none: a conversion
    seconds: float
    moved_bytes: int  # each of its buffers once
    operator_class: str


def _class_of(operators: list[dict]) -> str:
    classes = {operator["class"] for operator in operators}
    return next((name for name in ("contraction", "normalization", "elementwise") if name in classes), "conversion")


def read_launches(plan: dict, analysis: dict) -> list[Launch]:
    """A launch carries out what lies between the tensors it writes and those that were there before it."""
    producer = {tensor["tensor"]: op for op in analysis["operators"] for tensor in op["outputs"]}
    there = {tensor["tensor"] for op in analysis["operators"] for tensor in op["inputs"]} - set(producer)
    launches = []
    for launch in plan["launches"]:
        buffers = [plan["buffers"][number] for number in dict.fromkeys(launch["buffers"]) if number >= 0]
        tensors = {buffer["tensor"] for buffer in buffers}
        inside: dict[str, dict] = {}
        wanted = sorted(tensors - there)
        while wanted:
            tensor = wanted.pop()
            if tensor in there:
                continue
            if tensor not in producer:
                if tensor.rpartition(".")[0] in producer:
                    continue  # `hidden.positive`: the paper's graph has no comparison that is saved in place of its tensor
                raise ValueError(f"no operator of the program writes {tensor}, which the plan has")
            op = producer[tensor]
            if op["name"] not in inside:
                inside[op["name"]] = op
                wanted += [read["tensor"] for read in op["inputs"]]
        there |= tensors | {tensor["tensor"] for op in inside.values() for tensor in op["outputs"]}
        launches.append(Launch(launch.get("partition") or f"conversion of {launch['conversion_of']}", frozenset(inside),
                               launch["predicted_seconds"], sum(buffer["bytes"] for buffer in buffers),
                               _class_of(list(inside.values()))))
    return launches


def shared_rows(rows: list[set[str]], launches: list[Launch]) -> list[tuple[list[int], list[Launch]]]:
    """Rows (sets of operators) and launches, parted so that no launch has operators in two of the partitions."""
    partitions: list[tuple[list[int], list[Launch]]] = []
    for number, operators in enumerate(rows):
        touched = [launch for launch in launches if launch.operators & operators]
        joined = [partition for partition in partitions if any(launch in partition[1] for launch in touched)]
        partitions = [partition for partition in partitions if partition not in joined]
        numbers = sorted([number, *(n for partition in joined for n in partition[0])])
        all_launches = {id(launch): launch for partition in joined for launch in partition[1]}
        all_launches |= {id(launch): launch for launch in touched}
        partitions.append((numbers, list(all_launches.values())))
    return sorted(partitions, key=lambda partition: partition[0])
