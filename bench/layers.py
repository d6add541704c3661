#!/usr/bin/env python3
"""Measures how long `millrace analyze` and `fuse` take for a BERT of N layers, and whether that grows linearly with N.

The N-layer program consists of the function of models/bert_encoder.py, without annotations, and a
last function `bert` that calls it N times, each time with different parameters.
"""

import argparse
import ast
import datetime
import hashlib
import json
import math
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "models/bert_encoder.py"
LAYERS = (1, 2, 4, 8, 16, 24, 48, 96)
COMMANDS = {  # arguments, and the goal in ms for 24 layers
    "analyze, JSON": (["analyze", "--json", "--timings"], 250.0),
    "analyze, text": (["analyze"], 250.0),
    "fuse, JSON": (["fuse", "--json", "--timings"], 500.0),
}
REPEATS = 7
GOAL_LAYERS = 24
FIT_FIRST, FIT_LAST = 24, 96  # growth is measured between these, where process start is negligible
LINEAR_LOW, LINEAR_HIGH = 0.90, 1.10  # a lower ratio means that the machine was too busy


def layered_program(model: str, layers: int) -> str:
    """The model's text as a program of `layers` layers; the first parameter is the output of the layer before."""
    function = [node for node in ast.parse(model).body if isinstance(node, ast.FunctionDef)][-1]
    lines = model.splitlines()
    first = min([function.lineno, *(node.lineno for node in function.decorator_list)])
    body = lines[function.body[0].lineno - 1 : function.end_lineno]
    stream, *weights = function.args.args
    typed = [f"    x0: {ast.unparse(stream.annotation)},"]
    calls = []
    for k in range(layers):
        typed += [f"    {w.arg}_{k}: {ast.unparse(w.annotation)}," for w in weights]
        given = ", ".join([f"x{k}", *(f"{w.arg}_{k}" for w in weights)])
        calls.append(f"    x{k + 1} = {function.name}({given})")
    generic = f"def {function.name}({', '.join(a.arg for a in function.args.args)}):"
    bert = ["def bert(", *typed, "):", *calls, f"    return x{layers}"]
    return "\n".join([*lines[: first - 1], generic, *body, "", "", *bert, ""])


def totals(binary: Path, program: Path) -> tuple[int, int]:
    """The number of operators and the flop of the program."""
    command = [binary, "analyze", program, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"layers: {program.name}: analyze failed\n{done.stderr}")
    operators = json.loads(done.stdout)["operators"]
    return len(operators), sum(operator["flop"] for operator in operators)


def run_once(binary: Path, program: Path, options: list[str]) -> tuple[float, dict[str, float]]:
    """Wall time of the process in ms, and of the stages that --timings prints."""
    start = time.perf_counter()
    done = subprocess.run(
        [binary, *options, program],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True,
    )
    wall = 1e3 * (time.perf_counter() - start)
    stages = re.findall(r"^(\w+): ([\d.e+-]+) ms$", done.stderr, re.M)
    return wall, {name: float(ms) for name, ms in stages}


def summarize(runs: list[tuple[float, dict[str, float]]]) -> dict:
    walls = [wall for wall, _ in runs]
    stages = {name: statistics.median(stage[name] for _, stage in runs) for name in runs[0][1]}
    spread = {"median_ms": statistics.median(walls), "best_ms": min(walls), "worst_ms": max(walls)}
    return {**spread, "stages_ms": stages}


def output_of(*command: str) -> str:
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.rstrip()
    except OSError:
        return ""


def circumstances(binary: Path) -> dict:
    model = re.search(r"^Model name:\s*(.+)$", output_of("lscpu"), re.M)
    cache = binary.parent / "CMakeCache.txt"
    compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.+)$", cache.read_text() if cache.exists() else "", re.M)
    version = output_of(compiler[1], "--version").splitlines() if compiler else []
    sources = [ROOT / name for name in output_of("git", "ls-files", "src", "include", "tools").splitlines()]
    built = binary.stat().st_mtime
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {
            "architecture": platform.machine(), "cpu": model[1] if model else "unknown", "cores": os.cpu_count(),
        },
        "git_commit": output_of("git", "rev-parse", "HEAD"),
        "uncommitted": output_of("git", "status", "--porcelain", "src", "include", "tools", "models").splitlines(),
        "newer_than_binary": [str(s.relative_to(ROOT)) for s in sources if s.exists() and s.stat().st_mtime > built],
        "compiler": version[0] if version else "unknown",
        "binary_sha256": hashlib.sha256(binary.read_bytes()).hexdigest(),
        "load_before": os.getloadavg()[0],
    }


def growth(rows: list[dict]) -> dict:
    """The ratio of times per layer at the last and first N of the fit, and the exponent of N."""
    ms = {row["layers"]: row["median_ms"] for row in rows}
    times, factor = ms[FIT_LAST] / ms[FIT_FIRST], FIT_LAST / FIT_FIRST
    return {"from": FIT_FIRST, "to": FIT_LAST, "ratio_to_linear": times / factor, "power": math.log(times, factor)}


def print_table(name: str, rows: list[dict]) -> None:
    at_fit = next(row for row in rows if row["layers"] == FIT_FIRST)["median_ms"] / FIT_FIRST
    print(f"\n{name}: whole process, {REPEATS} runs\n")
    print("layers  operators  median ms   best ms  ms/layer  x linear  stages, median ms")
    for row in rows:
        n, per_layer = row["layers"], row["median_ms"] / row["layers"]
        stages = "  ".join(f"{stage} {ms:.1f}" for stage, ms in row["stages_ms"].items())
        print(f"{n:6}  {row['operators']:9}  {row['median_ms']:9.2f} {row['best_ms']:9.2f}"
              f"  {per_layer:8.3f}  {per_layer / at_fit:8.2f}  {stages}".rstrip())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example:\n  bench/layers.py\n  bench/layers.py --emit 2 > bert2.py",
    )
    parser.add_argument("--binary", type=Path, default=ROOT / "build/release/millrace",
                        help="the executable to measure")
    parser.add_argument("--out", type=Path, help="JSON file (default: bench/results/layers-MACHINE.json)")
    parser.add_argument("--emit", type=int, metavar="N", help="only print the N-layer program")
    options = parser.parse_args()
    model = MODEL.read_text()
    if options.emit is not None:
        print(layered_program(model, options.emit), end="")
        return 0
    if not options.binary.exists():
        sys.exit(f"layers: {options.binary} does not exist; `./millrace analyze models/mha.py` builds it")

    report = {"schema_version": 1, **circumstances(options.binary), "repeats": REPEATS}
    failures, counted = [], {}
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(shutil.copy2(options.binary, folder))  # a concurrent build must not change it
        one_operators, one_flop = totals(binary, MODEL)
        for n in LAYERS:
            program = Path(folder, f"bert_{n}.py")
            program.write_text(layered_program(model, n))
            operators, flop = totals(binary, program)
            if (operators, flop) != (n * one_operators, n * one_flop):
                failures.append(f"{n} layers: {operators} operators, {flop} flop; "
                                f"{n} times the model's are {n * one_operators}, {n * one_flop}")
            counted[n] = operators
        # In rounds, so that a change of the machine's load affects all N. The first round warms the caches.
        runs: dict[tuple[str, int], list] = {(name, n): [] for name in COMMANDS for n in LAYERS}
        for repeat in range(REPEATS + 1):
            for (name, n), taken in runs.items():
                once = run_once(binary, Path(folder, f"bert_{n}.py"), COMMANDS[name][0])
                if repeat > 0:
                    taken.append(once)
    report["load_after"] = os.getloadavg()[0]

    machine = report["machine"]
    print(f"{machine['cpu']} ({machine['architecture']}), {machine['cores']} cores, {report['compiler']}")
    print(f"commit {report['git_commit'][:10]}, {len(report['uncommitted'])} files changed since, "
          f"load {report['load_before']:.2f} to {report['load_after']:.2f}")
    if report["newer_than_binary"]:
        print(f"the binary is older than {', '.join(report['newer_than_binary'])}")
    report["commands"] = {}
    for name, (_, goal_ms) in COMMANDS.items():
        rows = [{"layers": n, "operators": counted[n], **summarize(runs[name, n])} for n in LAYERS]
        print_table(name, rows)
        grown = growth(rows)
        goal = next(row for row in rows if row["layers"] == GOAL_LAYERS)["median_ms"]
        report["commands"][name] = {"rows": rows, "growth": grown}
        print(f"\n{GOAL_LAYERS} layers: {goal:.1f} ms, goal {goal_ms:.0f} ms: {'PASS' if goal < goal_ms else 'FAIL'}")
        linear = LINEAR_LOW <= grown["ratio_to_linear"] <= LINEAR_HIGH
        print(f"{FIT_FIRST} to {FIT_LAST} layers: {grown['ratio_to_linear']:.3f} times linear growth "
              f"(N^{grown['power']:.3f}), {LINEAR_LOW} to {LINEAR_HIGH}: {'PASS' if linear else 'FAIL'}")
        if goal >= goal_ms:
            failures.append(f"{name}: {GOAL_LAYERS} layers take {goal:.1f} ms")
        if not linear:
            failures.append(f"{name}: {grown['ratio_to_linear']:.3f} times linear growth")
    exact = not any("operators" in failure for failure in failures)
    print(f"\noperators and flop grow exactly with layers: {'PASS' if exact else 'FAIL'}")
    report["failures"] = failures
    slug = re.sub(r"[^a-z0-9]+", "-", f"{machine['architecture']} {machine['cpu']}".lower()).strip("-")
    out = options.out or ROOT / f"bench/results/layers-{slug}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=2) + "\n")
    print(f"written to {out}")
    for failure in failures:
        print(f"FAIL: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
