"""Rows and tables of the comparison on a GPU: calls from Python, and replays of a CUDA graph."""

from __future__ import annotations

import re
import statistics

from peers.report import RoundTime, spread

MODES = ("called", "one_thread", "graph")  # one_thread: called, with backward in the calling thread
Round = dict[str, RoundTime]  # by mode


def round_of(seconds: dict[str, list[float]]) -> Round:
    """Times from a worker's answer, which has forward and step; backward is the difference."""
    return {mode: RoundTime(forward, step - forward, step) for mode, (forward, step) in seconds.items()}


def base_times(rounds: dict[str, list[Round]], preferred: str) -> tuple[str, list[float]]:
    """The base of all ratios and its step time in each round: the preferred contestant if it ran, else the fastest.

    Uses graph replays if there are any.
    """
    def steps(name: str) -> list[float]:
        return [one.get("graph", one.get("called")).step for one in rounds[name]]

    name = preferred if preferred in rounds else min(rounds, key=lambda name: statistics.median(steps(name)))
    return name, steps(name)


def contestant_rows(rounds: dict[str, list[Round]], base_steps: list[float], notes: dict[str, str]) -> list[dict]:
    """One row per contestant. Ratios are per round, for as many rounds as both completed."""
    rows = []
    for name, taken in rounds.items():
        row: dict = {"name": name, "note": notes.get(name, "")}
        for mode in MODES:
            if not taken or mode not in taken[0]:
                continue
            times = [one[mode] for one in taken]
            row[mode] = {f"{part}_seconds": spread([getattr(time, part) for time in times])
                         for part in ("forward", "backward", "step")}
            row[mode]["step_ratio"] = spread([time.step / base for time, base in zip(times, base_steps)])
        rows.append(row)
    return rows


def _microseconds(row: dict, mode: str, part: str) -> str:
    return f"{1e6 * row[mode][f'{part}_seconds']['median']:.1f}" if mode in row else "-"


def _interval(row: dict) -> str:
    step = row[next(mode for mode in reversed(MODES) if mode in row)]["step_seconds"]
    return f"[{1e6 * step['low']:.1f}, {1e6 * step['high']:.1f}]"


def _ratio(row: dict, mode: str) -> str:
    return f"{row[mode]['step_ratio']['median']:.3f}" if mode in row else "-"


def table(rows: list[dict], base: str, failures: dict[str, str]) -> str:
    """Times in microseconds; the interval is that of graph replays, or of calls if there is no graph."""
    heads = ["", "called forward", "step", "one thread", "graph forward", "backward", "step", "[low, high]",
             "called / base", "graph / base"]
    lines = [[row["name"], _microseconds(row, "called", "forward"), _microseconds(row, "called", "step"),
              _microseconds(row, "one_thread", "step"),
              *(_microseconds(row, "graph", part) for part in ("forward", "backward", "step")), _interval(row),
              _ratio(row, "called"), _ratio(row, "graph")] for row in rows]
    shown = aligned([heads, *lines])
    shown += [f"{name}: did not run: {reason}" for name, reason in failures.items()]
    shown += [f"{row['name']}: {row['note']}" for row in rows if row["note"]]
    return "\n".join([*shown, f"base: {base}'s step"])


def agreement_table(rows: list[dict]) -> str:
    """The distances of the contestants that ran, then the reasons why others did not."""
    lines = [[row["name"], f"{row['result_distance']:.1e}", f"{row['worst_distance']:.1e}", row["worst_tensor"],
              "yes" if row["agrees"] else "NO"] for row in rows if "error" not in row]
    shown = aligned([["", "result", "worst", "tensor", "agrees"], *lines])
    return "\n".join(shown + [f"{row['name']}: not compared: {row['error']}" for row in rows if "error" in row])


def aligned(rows: list[list[str]]) -> list[str]:
    """Aligns columns, the first one to the left."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return ["  ".join([f"{row[0]:{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:]))])
            for row in rows]


def file_name(gpu: str, sizes: list[str], dtype: str) -> str:
    """compare-h200-large-float16.json"""
    words = " ".join([re.sub(r"(?i)^nvidia ", "", gpu), *sizes, dtype])
    return f"compare-{re.sub(r'[^a-z0-9]+', '-', words.lower()).strip('-')}.json"
