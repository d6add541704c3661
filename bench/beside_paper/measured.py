"""The measured candidates of every partition of a program, by the partition's name.

The database identifies partitions by their structure; `millrace explore --json` names them, and has the fastest
candidate of every combination of layouts. The database rows of a product are found by these times, which match exactly.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PRODUCT = "cublaslt"
HEURISTIC = "heuristic"
ATTRIBUTES = ("id", "tile", "stages", "split-k", "reduction", "swizzle", "custom", "inner shape", "cluster")


class Unusable(Exception):
    """An input file is invalid."""


@dataclass(frozen=True)
class Tried:
    """A measured candidate and its median time."""

    candidate: str  # "012 021 012; cublaslt m 0 n 1 k 2 on tensor algorithm heuristic"
    seconds: float

    @property
    def layouts(self) -> str:
        return self.candidate.partition(";")[0]

    @property
    def is_written(self) -> bool:
        """Whether all tensors have the program's own layouts."""
        return all(list(axes) == sorted(axes) and axes.isdigit() for axes in self.layouts.split())

    @property
    def is_product(self) -> bool:
        return self.candidate.partition("; ")[2].startswith(f"{PRODUCT} ")

    @property
    def algorithm(self) -> str | None:
        """For a product on Tensor Cores: "heuristic", or the algorithm's attributes."""
        words = self.candidate.split()
        return words[-1] if self.is_product and words[-3:-1] == ["tensor", "algorithm"] else None


def told_attributes(algorithm: str) -> str:
    """Attributes that differ from their defaults: "66.20.35.1.0.0.1.0.3" → "id 66, tile 20, …"."""
    values = dict(zip(ATTRIBUTES, algorithm.split(".")))
    usual = {"split-k": "1"}
    return ", ".join(f"{name} {value}" for name, value in values.items() if value != usual.get(name, "0"))


class Measured:
    """All candidates by the name of their partition."""

    def __init__(self, tried: dict[str, list[Tried]]) -> None:
        self._tried = tried

    def of(self, partition: str) -> list[Tried]:
        return self._tried.get(partition, [])

    def fastest(self, partition: str) -> float | None:
        return min((tried.seconds for tried in self.of(partition)), default=None)

    def together(self, partitions: Iterable[str]) -> float | None:
        """The sum of the fastest of each, or None if one was not measured."""
        each = [self.fastest(partition) for partition in partitions]
        return None if None in each else sum(each)


def read_rows(path: Path, device: str) -> list[dict]:
    """The rows of a `millrace db export` from the device. Their device names begin with the plan's and are longer."""
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            row = json.loads(line)
            if row["outcome"] == "measured" and row["device"].startswith(device) and row["seconds"] > 0:
                rows.append(row)
        except (ValueError, KeyError, TypeError) as error:
            raise Unusable(f"{path}:{number} is not a database row: {error}") from error
    if not rows:
        raise Unusable(f"{path} has no measurements from {device}")
    return rows


def join_rows(explored: dict, rows: list[dict]) -> Measured:
    texts = defaultdict(set)  # for a candidate with its time: the partitions that have it
    tried = defaultdict(list)
    for row in rows:
        one = Tried(row["candidate"], row["seconds"])
        if one.is_product:
            texts[one].add(row["partition"])
            tried[row["partition"]].append(one)
    by_name = {}
    for partition in explored["partitions"]:
        candidates = [Tried(candidate["candidate"], candidate["seconds"]) for candidate in partition["candidates"]]
        by_name[partition["name"]] = candidates
        if not candidates or not candidates[0].is_product:
            continue  # our own kernel: no algorithms to choose from
        holding = set.intersection(*(texts[candidate] for candidate in candidates))
        if len(holding) != 1:
            raise Unusable(f"{len(holding)} partitions of the database match the measurements of {partition['name']}: "
                           "the explored partitions and the rows come from different databases")
        by_name[partition["name"]] = tried[holding.pop()]
    return Measured(by_name)
