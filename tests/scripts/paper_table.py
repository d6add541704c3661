#!/usr/bin/env python3
"""Prints docs/paper-table.md: `MILLRACE=build/release/millrace python3 tests/scripts/paper_table.py > …`.

Runs `$MILLRACE analyze models/bert_encoder.py --json`. tests/python/paper_test.py checks that the
page in the repository is what this prints.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
import paper_rows  # noqa: E402

INTRODUCTION = """# The paper's table next to ours

The paper's "Flop analysis for BERT encoder layer" (appendix, section A.4) lists the flop of each operator and its
words in and out, at B=8 and J=512. `millrace analyze models/bert_encoder.py` counts the same from the program. This
page shows both, row by row, and explains every difference. `tests/scripts/paper_table.py` prints it, and
`./millrace test python` fails when it is out of date.

A row of the paper may correspond to several of our operators, as *Q, K, V* does to three. Such a group counts like one
operator: it reads the tensors that none of its operators writes, and writes the tensors that are read outside of it,
saved for backward, or returned. Words are in millions, flop in 10^9; our figures are **bold** where they differ.
"""

DIFFERENCES = """## Rows that contradict the paper's own shapes

All flop agree, and all words except these. P = W = 64, H = 16, I = 1024, J = K = 512 and B = 8. So a tensor of
I x B x J or P x H x B x J has 4.194 million words, one of H x B x J x K has 33.554, and a weight of P x H x I has 1.049.
"""


def cell(paper: str, ours: str) -> str:
    if paper == ours:
        return f"{paper or '0'} | {ours or '0'}"
    return f"{paper} | **{ours}**"


def table(rows: list[paper_rows.Row]) -> str:
    lines = [
        "| | row | our operators | Gflop, paper | ours | in, paper | ours | out, paper | ours |",
        "| --: | --- | --- | --: | --: | --: | --: | --: | --: |",
    ]
    for row, (_, names) in zip(rows, paper_rows.ROWS):
        shown = ", ".join(names + paper_rows.WORDS_ONLY.get(row.name, []))
        cells = " | ".join(cell(*figures) for figures in row.figures.values())
        lines.append(f"| {row.number} | {row.name} | {shown} | {cells} |")
    return "\n".join(lines) + "\n"


def differences(rows: list[paper_rows.Row]) -> str:
    lines = ["| | row | | paper | ours | why |", "| --: | --- | --- | --: | --: | --- |"]
    for (number, column), (paper, ours, reason) in paper_rows.EXCEPTIONS.items():
        lines.append(f"| {number} | {rows[number - 1].name} | {column} | {paper} | {ours} | {reason} |")
    return "\n".join(lines) + "\n"


def shares(analysis: dict) -> str:
    by_class = analysis["totals"]["by_class"]
    totals = {line["class"]: float(line["gflop"]) for line in paper_rows.paper_lines() if line["pass"] == "total"}
    extra = sum(op["flop"] for op in analysis["operators"] if op["name"] in paper_rows.WORDS_ONLY["Q, K, V dX"])
    lines = ["| class | Gflop, paper | ours | %, paper | ours |", "| --- | --: | --: | --: | --: |"]
    for name, entry in by_class.items():
        lines.append(
            f"| {name} | {totals[name]:.3f} | {entry['flop'] / 1e9:.3f} "
            f"| {100 * totals[name] / totals['total']:.2f} | {100 * entry['flop_share']:.2f} |"
        )
    notes = [
        "A softmax counts 5 flop per element: maximum, subtract, exp, sum, divide. The dropout after it counts one more and "
        "has the same class, as in the paper's *Scaled softmax*: 6 x 33.554 million = 0.201 Gflop.",
        "Scaling by 1/sqrt(P) is part of the contraction (the paper's section A.5.1) and is not counted.",
        "A comparison or selection in a map counts nothing, so ReLU has no flop, as in the paper.",
        f"The two sums that add the gradients of Q, K and V are separate operators here, {extra / 1e9:.4f} Gflop; the "
        "paper's *Q, K, V dX* has one result and does not count them. They are the whole difference in the "
        "elementwise row.",
    ]
    return "\n".join(lines) + "\n\n" + "\n".join(f"- {note}" for note in notes) + "\n"


def page(analysis: dict) -> str:
    rows = paper_rows.paper_rows(analysis)
    parts = [INTRODUCTION, table(rows), DIFFERENCES, differences(rows), "## Class shares\n", shares(analysis)]
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page(paper_rows.printed_by("analyze")))
