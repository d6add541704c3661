"""What was measured of every part of a program, by name, with every candidate that the database has of it.

The database knows partitions by their structure and `millrace explore --json` by their names, with the fastest candidate of
every combination of layouts. A product's rows in the database are those that hold these to the last digit.
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
    """A file that is not what it should be."""


@dataclass(frozen=True)
class Tried:
    """A candidate that was right, and its median."""

    candidate: str  # "012 021 012; cublaslt m 0 n 1 k 2 on tensor algorithm heuristic"
    seconds: float

    @property
    def layouts(self) -> str:
        return self.candidate.partition(";")[0]

    @property
    def is_written(self) -> bool:
        """Whether all tensors lie as the program writes them."""
        return all(list(axes) == sorted(axes) and axes.isdigit() for axes in self.layouts.split())

    @property
    def is_product(self) -> bool:
        return self.candidate.partition("; ")[2].startswith(f"{PRODUCT} ")

    @property
    def algorithm(self) -> str | None:
        """Of a product on Tensor Cores: "heuristic", or the algorithm's attributes."""
        words = self.candidate.split()
        return words[-1] if self.is_product and words[-3:-1] == ["tensor", "algorithm"] else None


def told_attributes(algorithm: str) -> str:
    """"66.20.35.1.0.0.1.0.3" → "id 66, tile 20, …": those that are not what they are by default."""
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
        """The fastest of each, added; None where one was not measured."""
        each = [self.fastest(partition) for partition in partitions]
        return None if None in each else sum(each)


def read_rows(path: Path, device: str) -> list[dict]:
    """The rows of a `millrace db export` that were measured on the device, which says more than the plan's."""
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            row = json.loads(line)
            if row["outcome"] == "measured" and row["device"].startswith(device) and row["seconds"] > 0:
                rows.append(row)
        except (ValueError, KeyError, TypeError) as error:
            raise Unusable(f"{path}:{number} is no row of a database: {error}") from error
    if not rows:
        raise Unusable(f"{path} has nothing that was measured on {device}")
    return rows


def join_rows(explored: dict, rows: list[dict]) -> Measured:
    texts = defaultdict(set)  # of partitions that hold a candidate with its time
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
            continue  # a kernel of ours: no algorithms are tried beside the one of each combination
        holding = set.intersection(*(texts[candidate] for candidate in candidates))
        if len(holding) != 1:
            raise Unusable(f"{len(holding)} parts of the database have the measurements of {partition['name']}: what was "
                           "explored and the database's rows are not of the same database")
        by_name[partition["name"]] = tried[holding.pop()]
    return Measured(by_name)
