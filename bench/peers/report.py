"""Computes medians with confidence intervals and ratios from the times of rounds, and writes the table and the JSON
under bench/results/.

A round times every contestant once, so that a change of the machine's load affects all of them. The result of a
contestant in a round is the median over its steps.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import statistics
from dataclasses import dataclass
from pathlib import Path

SCHEMA_VERSION = 1
CONFIDENCE = 0.95


@dataclass
class RoundTime:
    """Seconds of one contestant in one round: the medians over its steps."""

    forward: float
    backward: float
    step: float


def median_interval(values: list[float]) -> tuple[float, float]:
    """The narrowest pair of values, equally far from the ends, that encloses the true median with CONFIDENCE.

    Assumes no particular distribution: the number of values below the median is binomial. With fewer than six values no
    pair reaches CONFIDENCE, and the result is the whole range.
    """
    ordered, n = sorted(values), len(values)
    outside = itertools.accumulate(2 * math.comb(n, k) / 2**n for k in range((n + 1) // 2))
    k = max(sum(chance <= 1 - CONFIDENCE for chance in outside) - 1, 0)
    return ordered[k], ordered[n - 1 - k]


def spread(values: list[float]) -> dict[str, float]:
    low, high = median_interval(values)
    return {"median": statistics.median(values), "low": low, "high": high, "best": min(values)}


def contestant_rows(rounds: dict[str, list[RoundTime]], base: str) -> list[dict]:
    """One row per contestant. The ratio to `base` is per round, between times of the same minute."""
    rows = []
    for name, times in rounds.items():
        ratios = [own.step / other.step for own, other in zip(times, rounds[base], strict=True)]
        parts = {f"{part}_seconds": spread([getattr(time, part) for time in times])
                 for part in ("forward", "backward", "step")}
        rows.append({"name": name, **parts, "step_ratio": spread(ratios)})
    return rows


def base_of(rounds: dict[str, list[RoundTime]], preferred: str) -> str:
    """The base of all ratios: the preferred contestant if it ran, else the fastest."""
    if preferred in rounds:
        return preferred
    return min(rounds, key=lambda name: statistics.median(time.step for time in rounds[name]))


def table(rows: list[dict], base: str, failures: dict[str, str]) -> str:
    """The rows in milliseconds, then the contestants that did not run, with reasons."""
    width = max(len(name) for name in [row["name"] for row in rows] + list(failures))
    lines = [f"{'':{width}}  forward  backward     step  [low, high]           best  step / {base}'s"]
    for row in rows:
        step, ratio = row["step_seconds"], row["step_ratio"]
        interval = f"[{1e3 * step['low']:.2f}, {1e3 * step['high']:.2f}]"
        lines.append(
            f"{row['name']:{width}}  {1e3 * row['forward_seconds']['median']:7.2f}  "
            f"{1e3 * row['backward_seconds']['median']:8.2f}  {1e3 * step['median']:7.2f}  {interval:18}  "
            f"{1e3 * step['best']:7.2f}  {ratio['median']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"
        )
    lines += [f"{name:{width}}  did not run: {reason}" for name, reason in failures.items()]
    return "\n".join(lines)


def file_name(architecture: str, cpu: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", f"{architecture} {cpu}".lower()).strip("-")
    return f"compare-{slug}.json"


def read_report(path: Path) -> dict:
    """The existing report, or an empty one."""
    if not path.exists():
        return {"schema_version": SCHEMA_VERSION, "runs": {}}
    remedy = "move it, or pass --out"
    try:
        report = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}; {remedy}") from error
    if not isinstance(report, dict) or report.get("schema_version") != SCHEMA_VERSION or "runs" not in report:
        raise ValueError(f"{path} is not a report of schema version {SCHEMA_VERSION}; {remedy}")
    return report


def write_run(path: Path, case: str, run: dict) -> None:
    """Replaces the earlier run of the same case, atomically."""
    report = read_report(path)
    report["runs"][case] = run
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(json.dumps(report, indent=2) + "\n")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
