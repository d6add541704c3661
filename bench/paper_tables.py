#!/usr/bin/env python3
"""Writes the paper's tables with our figures next to them, for a plan of the paper's layer: class shares, every
operator, algebraic fusion, algorithms.

Measures nothing. Reads the plan and its measurements: all rows of the database (`millrace db export`) and the
partitions by name (`millrace explore … --budget 0s --json`). It runs both commands unless --rows and --explored give
their output. `explore` needs the GPU, so on a machine without one pass files from the machine that has it.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from beside_paper import launched, tables  # noqa: E402  (the path above comes first)
from beside_paper.measured import Unusable, join_rows, read_rows  # noqa: E402
from peers.environment import ROOT  # noqa: E402

sys.path.insert(0, str(ROOT / "tests/python"))
import paper_rows  # noqa: E402

# Limits from data sheets: flop/s in half precision on Tensor Cores (dense), bytes/s of memory.
DATA_SHEETS = {"H200": tables.Limits(989.4e12, 4.8e12), "H100": tables.Limits(989.4e12, 3.35e12),
               "A100": tables.Limits(312e12, 2.039e12), "V100": tables.Limits(125e12, 0.9e12)}

ABOUT_SHARES = """\
A launch counts towards the first of these classes that one of its operators has; the paper's fused kernels count
towards the class of their first row.
"""
ABOUT_OPERATORS = """\
Flop and words are the paper's ([docs/paper-table.md](../../docs/paper-table.md) compares them with ours). A kernel is
listed at its first row; *in N* means that the kernel of row N does the row's work. Percentages and TB/s are those of
our selected kernels. TB/s count each of a launch's buffers once, and masks as they are stored.
"""
ABOUT_FUSION = """\
The projections of queries, keys and values as three products, with two of them stacked, and with all three stacked: the
fastest measured of each, including copies of operands that are not contiguous. In brackets: which two. The paper's
backward row does not name the product.
"""
ABOUT_HEURISTIC = """\
For some combinations of layouts, exploration measured other algorithms of cuBLASLt than the one its heuristic chooses:
only where a product is promising. The table shows the fastest of these combinations and the largest gap in any of
them. A gap of 0 means that no algorithm was faster than the heuristic's. Layouts are the axes of each tensor read
and written, outermost first.
"""
ABOUT_LAYOUTS = """\
The program's own layouts compared with the best of all layouts, each with its fastest algorithm. *Not measured* is also
shown if cuBLASLt cannot compute the product in one call with the program's own layouts.
"""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example, on the machine with the GPU:\n  bench/paper_tables.py bert.plan --keep build/tables\n"
               "and on any machine, with the kept files:\n  bench/paper_tables.py bert.plan "
               "--explored build/tables/explored.json --rows build/tables/rows.jsonl",
    )
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a plan of bert_encoder.py, or its folder")
    parser.add_argument("--db", metavar="FILE", help="database of measurements (default: the user's own)")
    parser.add_argument("--explored", type=Path, metavar="FILE", help="the output of `millrace explore --json`")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="the output of `millrace db export`")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep both outputs in this folder")
    parser.add_argument("--millrace", default=str(ROOT / "millrace"), metavar="COMMAND", help="default: ./millrace")
    parser.add_argument("--out", type=Path, help="default: bench/results/paper-tables-MACHINE.md")
    return parser.parse_args()


def output_of(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unusable(f"{' '.join(command[:2])}: {error}") from error
    if done.returncode != 0:
        said = " ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-3:])
        raise Unusable(f"{' '.join(command[:2])} ended with {done.returncode}: {said}")
    return done.stdout


def read_json(path: Path, wanted: str) -> dict:
    try:
        made = json.loads(path.read_text())
        made[wanted]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unusable(f"{path} has no {wanted}: {error}") from error
    return made


def program_options(plan: dict, folder: Path) -> list[str]:
    """Writes the plan's program to a file; returns its path and options."""
    program = plan["program"]
    path = folder / Path(program["file"]).name
    path.write_text(program["text"])
    options = [str(path)]
    for size in program["sizes"]:
        options += ["--size", size]
    if program["dtype"]:
        options += ["--dtype", program["dtype"]]
    if program["entry"]:
        options += ["--entry", program["entry"]]
    return options


def gather(options: argparse.Namespace, plan: dict, program: list[str], folder: Path) -> tuple[dict, list[dict]]:
    """The partitions by name, and the database's rows."""
    database = ["--db", options.db] if options.db else []
    explored, rows = options.explored, options.rows
    if explored is None:
        explored = folder / "explored.json"
        layouts = [f"--layout={one['tensor']}={one['layout']}" for one in plan["program"]["layouts"]]
        explored.write_text(output_of([options.millrace, "explore", *program, *layouts, "--device", "cuda", "--budget",
                                       "0s", "--json", *database]))
    if rows is None:
        rows = folder / "rows.jsonl"
        output_of([options.millrace, "db", "export", str(rows), *database])
    return read_json(explored, "partitions"), read_rows(rows, plan["device"])


def head(plan: dict, rows: list[dict], limits: tables.Limits) -> str:
    program = plan["program"]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    days = sorted({row["when"][:10] for row in rows})
    peak = ("The script has no data sheet of this GPU, so percentages are missing." if not limits.flop_per_second
            else f"Peaks are the data sheet's: {limits.flop_per_second / 1e12:.0f} Tflop/s in half precision, "
                 f"{limits.bytes_per_second / 1e12:.2f} TB/s. ")
    return f"""# The paper's tables and ours

| | |
| --- | --- |
| machine | {plan['device']} |
| program | {Path(program['file']).name}, {' '.join(program['sizes'])}, {program['dtype'] or 'its own types'} |
| plan | {plan['date']}, Millrace {plan['version']}, sha256 {plan['sha256'][:16]}… |
| measured | {len(rows):,} candidates, of other programs too, {' to '.join(dict.fromkeys((days[0], days[-1])))} |
| tables | by commit {commit.strip() or 'unknown'}: `{shlex.join(['bench/paper_tables.py', *sys.argv[1:]])}` |

The paper's figures (PyTorch, and its own implementation) are for a V100 and the same layer: B=8, L=512, BERT-large,
half precision, dropout. Ours are medians over launches of one candidate by itself, with cold caches.
*Unfused* is the fastest measured candidate of an operator alone, with any layouts; *selected* is what the plan runs.
{peak}Times are in µs.
"""


def write_tables(options: argparse.Namespace, folder: Path) -> int:
    path = options.plan if options.plan.suffix == ".json" else options.plan / "plan.json"
    plan = read_json(path, "launches")
    program = program_options(plan, folder)
    analysis = json.loads(output_of([options.millrace, "analyze", *program, "--json"]))
    explored, rows = gather(options, plan, program, options.keep or folder)
    measured = join_rows(explored, rows)
    launches = launched.read_launches(plan, analysis)
    paper = paper_rows.paper_lines()
    limits = next((sheet for name, sheet in DATA_SHEETS.items() if name in plan["device"]), tables.Limits())
    names = [[*each, *paper_rows.WORDS_ONLY.get(name, [])] for name, each in paper_rows.ROWS]
    contractions = [op["name"] for op in analysis["operators"] if op["class"] == "contraction"]
    attentions = {each["partition"] for each in plan["launches"] if "; attention " in each.get("candidate", "")}
    contractions += [launch.name for launch in launches if launch.operator_class == "contraction"
                     and launch.name not in attentions and launch.name not in contractions]
    text = "\n".join([
        head(plan, rows, limits),
        "## Shares of the classes\n", ABOUT_SHARES,
        tables.class_shares(analysis, paper, measured, launches),
        "## Every operator\n", ABOUT_OPERATORS,
        tables.operators_table(paper_rows.paper_rows(analysis), names, paper, measured, launches, limits),
        "## Algebraic fusion\n", ABOUT_FUSION,
        tables.algebraic_table(measured),
        "## The library's heuristic against the best algorithm\n", ABOUT_HEURISTIC,
        tables.heuristic_table(contractions, measured),
        "## Layouts\n", ABOUT_LAYOUTS,
        tables.layouts_table(contractions, measured),
    ])
    slug = re.sub(r"[^a-z0-9]+", "-", re.sub(r"^gpu (NVIDIA )?", "", plan["device"].split(",")[0]).lower()).strip("-")
    out = options.out or ROOT / f"bench/results/paper-tables-{slug}.md"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text)
    print(f"written to {out}")
    return 0


def main() -> int:
    options = parse_arguments()
    try:
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="millrace-tables-") as folder:
            return write_tables(options, Path(folder))
    except (Unusable, ValueError, KeyError, OSError) as error:
        print(f"paper_tables: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
