#!/usr/bin/env python3
"""Measures the paper's memory usage efficiency (MUE) of every launch of a plan, with the bytes that actually moved.

Runs the plan once under Nsight Compute, matches kernels to launches, and measures the best bandwidth with a large copy
in PyTorch. Without ncu it assumes that each buffer moves once. Q is the fewest bytes that a launch can move, D the
bytes that moved. D excludes writes that are still in L2 when the kernel ends, so Q/D can exceed 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from efficiency import launches, metric, ncu  # noqa: E402  (the path above comes first)
from peers import environment, report  # noqa: E402
from peers.environment import ROOT  # noqa: E402


class Failed(Exception):
    """A required step failed."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example:\n  bench/mue.py bert.plan\n  bench/mue.py bert.plan --bandwidth 4.2e12",
    )
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a plan for a GPU, or its folder")
    parser.add_argument("--millrace", default=str(ROOT / "millrace"), metavar="COMMAND", help="default: ./millrace")
    parser.add_argument("--ncu", default="ncu", metavar="COMMAND", help="default: ncu")
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help="a Python that has torch")
    parser.add_argument("--bandwidth", type=float, metavar="BYTES/S", help="the best bandwidth (default: measured)")
    parser.add_argument("--seconds", type=float, default=300, help="time limit for ncu (default: 300)")
    parser.add_argument("--out", type=Path, help="JSON file (default: bench/results/mue-MACHINE.json)")
    return parser.parse_args()


def say(message: str) -> None:
    print(f"mue: {message}", file=sys.stderr, flush=True)


def json_of(command: list[str], seconds: float = 240) -> dict:
    """The JSON that the command prints; raises Failed with its messages if there is none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        if done.returncode == 0:
            return json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{' '.join(command[:3])}: {error}") from error
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-2:]
    raise Failed(f"{' '.join(command[:3])} ended with {done.returncode}: {' '.join(said)}")


def or_none(what: str, work):
    """The result of an optional step; on failure reports it and returns None."""
    try:
        return work()
    except (Failed, ncu.NcuFailed, launches.Unmatched) as error:
        say(f"no {what}: {error}")
        return None


def ceilings_of(options: argparse.Namespace, dtype: str) -> tuple[metric.Ceilings, dict]:
    script = str(ROOT / "bench/efficiency/ceilings.py")
    found = or_none("ceilings", lambda: json_of([options.python, script, dtype])) or {}
    bandwidth = options.bandwidth or found.get("bytes_per_second")
    return metric.Ceilings(bandwidth, found.get("flop_per_second")), found


def counted(options: argparse.Namespace, plan: Path, known: list, ceilings: metric.Ceilings, folder: Path) -> list:
    """`millrace run` executes one step with separate launches, not as a graph."""
    kernels = ncu.count(options.ncu, [options.millrace, "run", str(plan)], folder / "ncu.csv", options.seconds)
    matched = launches.match(known, kernels, launches.kernel_names(plan.parent))
    return [metric.counted_row(launch, own, ceilings) for launch, own in zip(known, matched)]


def modelled(options: argparse.Namespace, plan: Path, known: list, ceilings: metric.Ceilings) -> list[dict]:
    operators = json_of([options.millrace, "bench", str(plan), "--seconds", "1", "--json"])["launches"]
    if len(operators) != len(known):
        raise Failed(f"the plan has {len(known)} launches, but bench timed {len(operators)}")
    return [metric.modelled_row(launch, row["seconds"], ceilings) for launch, row in zip(known, operators)]


def shown(rate: float | None) -> str:
    return "unknown" if rate is None else f"{rate:.3g}"


def measure(options: argparse.Namespace) -> int:
    path = options.plan if options.plan.suffix == ".json" else options.plan / "plan.json"
    try:
        plan = json.loads(path.read_text())
        dtype = plan["program"]["dtype"] or "float16"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failed(f"{path} is not a plan: {error}") from error
    with tempfile.TemporaryDirectory(prefix="millrace-mue-") as name:
        folder = Path(name)
        told = or_none("flop", lambda: json_of([options.millrace, "report", str(path), "--json", "--out",
                                                str(folder / "report.html")]))
        known = launches.read_launches(plan, told)
        ceilings, found = ceilings_of(options, dtype)
        rows = or_none("counters", lambda: counted(options, path, known, ceilings, folder))
    bytes_are = "measured" if rows else "modelled, each buffer once"
    rows = rows or modelled(options, path, known, ceilings)
    whole = metric.whole_row(rows, ceilings)
    best = f"{shown(ceilings.bytes_per_second)} bytes/s, {shown(ceilings.flop_per_second)} flop/s"
    print(f"D is {bytes_are}; best: {best}")
    print(metric.table([*rows, whole]))
    gpu = environment.gpu().get("name") or found.get("gpu") or "gpu"
    slug = re.sub(r"[^a-z0-9]+", "-", gpu.lower().replace("nvidia ", "")).strip("-")
    out = options.out or ROOT / f"bench/results/mue-{slug}.json"
    program = plan["program"]
    case = " ".join([Path(program["file"]).stem, *program["sizes"], dtype])
    report.write_run(out, case, environment.circumstances(os.cpu_count()) | {
        "gpu": environment.gpu(), "command": sys.argv, "plan": {"date": plan["date"], "sha256": plan["sha256"]},
        "bytes_are": bytes_are, "ceilings": found, "best_bytes_per_second": ceilings.bytes_per_second,
        "launches": rows, "all": whole})
    print(f"written to {out}")
    return 0


def main() -> int:
    try:
        return measure(parse_arguments())
    except (Failed, launches.Unmatched, ValueError, OSError) as error:
        say(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
