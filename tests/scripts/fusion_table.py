#!/usr/bin/env python3
"""Prints docs/fusion-table.md: `MILLRACE=build/release/millrace python3 tests/scripts/fusion_table.py > …`.

Runs `$MILLRACE analyze` and `fuse` on models/bert_encoder.py. tests/python/paper_kernels_test.py
checks that the page in the repository is what this prints.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
import paper_rows  # noqa: E402
from paper_kernels import (  # noqa: E402
    ALONE, KERNELS, PAPER_REDUCTION, words_apart, words_as_one, words_with_the_papers_kernels,
)

INTRODUCTION = """# The paper's kernels next to ours

The paper fuses BERT's encoder layer into twelve kernels, found and written by hand (sections 4 and A.2).
`millrace fuse models/bert_encoder.py` finds groups by rule. This page counts both on the same graph, at the paper's
sizes, with masks as words, group by group. `tests/scripts/fusion_table.py` prints it, and `./millrace test python`
fails when it is out of date.

Words are in millions. *Separate*: every operator is its own kernel. *Paper*: the paper's kernels; each reads once
what none of its operators writes, and writes what others need. *Ours*: our groups, including the partial sums of
reductions across the grid.
"""


def mwords(words: int) -> str:
    return f"{words / 1e6:.2f}"


def less(before: int, after: int) -> str:
    return f"{100 * (before - after) / before:.2f} %"


def table(analysis: dict, fused: dict) -> str:
    lines = [
        "| our group | operators | the paper's kernels in it | separate | paper | ours |",
        "| --- | --- | --- | --: | --: | --: |",
    ]
    for group in fused["groups"]:
        if group["kind"] == "contraction":
            continue
        inside = [(name, names) for name, names in KERNELS if set(names) <= set(group["operators"])]
        alone = [name for name in ALONE if name in group["operators"]]
        paper = sum(words_as_one(names, analysis) for _, names in inside) + words_apart(alone, analysis)
        shown = ", ".join([f"{name} {mwords(words_as_one(names, analysis))}" for name, names in inside]
                          + [f"({name} alone {mwords(words_apart([name], analysis))})" for name in alone])
        lines.append(
            f"| {group['name']} | {', '.join(group['operators'])} | {shown} | {mwords(group['words_before'])} "
            f"| {mwords(paper)} | {mwords(group['words_after'])} |"
        )
    contractions = sum(g["words_after"] for g in fused["groups"] if g["kind"] == "contraction")
    before, after = fused["words_before"], fused["words_after"]
    paper = words_with_the_papers_kernels(analysis)
    lines.append(f"| contractions | {sum(g['kind'] == 'contraction' for g in fused['groups'])} of them | | "
                 f"{mwords(contractions)} | {mwords(contractions)} | {mwords(contractions)} |")
    lines.append(f"| **all** | | | {mwords(before)} | {mwords(paper)} | {mwords(after)} |")
    lines.append(f"| **less** | | | | {less(before, paper)} | {less(before, after)} |")
    return "\n".join(lines) + "\n"


def masks(fused: dict) -> str:
    lines = ["| masks | words | less than unfused |", "| --- | --: | --: |"]
    names = {"words": "as words, as in the paper", "bits": "as bits", "regenerated": "regenerated in backward"}
    for key, name in names.items():
        after = fused["masks"][key]["words_after"]
        lines.append(f"| {name} | {mwords(after)} | {less(fused['words_before'], after)} |")
    return "\n".join(lines) + "\n"


def page(analysis: dict, fused: dict) -> str:
    stacked = [s for s in fused["stackings"] if len(s["contractions"]) == 3]
    saved = sum(s["words_separate"] - s["words_stacked"] for s in stacked)
    notes = f"""## What the figures say

- The paper reports {100 * PAPER_REDUCTION:.2f} % less data movement. That figure does not follow from its table, where several
  rows contradict their own shapes ([paper-table.md](paper-table.md)). Counted consistently, its kernels save the share
  in the *paper* column.
- Ours move less where the layer norm's weight gradients join its input gradient and the bias gradient after the
  dropout: two tensors are read once instead of twice or three times. The count includes the partial sums that this costs.
- BRD does not write the ReLU's output: backward takes its sign from the dropout's output, which is kept anyway
  ([decisions/0001](decisions/0001-what-an-operator-is.md)). This holds for both columns.
- BDRB: the paper's table includes the second linear layer's bias gradient, its section A.2 does not
  ([decisions/0002](decisions/0002-fusion.md)).

## Masks

{masks(fused)}
## Stacking

Q, K and V are separate products in all of the above. With all three stacked, forward and backward, they would move
{mwords(saved)} million words less than with unfused additions; `millrace fuse` lists every pair and triple, and
measurement chooses.
"""
    return INTRODUCTION + "\n" + table(analysis, fused) + "\n" + notes


if __name__ == "__main__":
    print(page(paper_rows.printed_by("analyze"), paper_rows.printed_by("fuse")), end="")
