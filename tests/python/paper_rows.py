"""The paper's table of flop and words (section A.4), row by row next to our operators.

The test that compares (paper_test.py) and the page that shows the comparison (tests/scripts/paper_table.py) share this
mapping. A row of the paper may be several of our operators. Such a group reads the tensors that none of its operators
writes. It writes the tensors that are read outside of it, are saved for backward, or have no reader (a result, or an
argument's gradient).
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests/data/table-flop-analysis.csv"

# In the paper's order: the row's name, and our operators' names in models/bert_encoder.py.
ROWS = [
    ("Q, K, V", ["q_projected einsum", "k_projected einsum", "v_projected einsum"]),
    ("Input bias", ["qq bias", "kk bias", "vv bias"]),
    ("QKT", ["beta einsum"]),
    ("Scaled softmax", ["weights softmax", "alpha dropout"]),
    ("Gamma", ["gamma einsum"]),
    ("Out", ["attn einsum"]),
    ("Output bias", ["attn_biased bias"]),
    ("Dropout", ["attn_dropped dropout"]),
    ("Residual", ["attn_residual residual"]),
    ("LayerNorm", ["attn_norm layernorm"]),
    ("Linear", ["linear1 einsum"]),
    ("Bias", ["linear1_biased bias"]),
    ("ReLU", ["activated relu"]),
    ("Dropout", ["hidden dropout"]),
    ("Linear", ["linear2 einsum"]),
    ("Bias", ["linear2_biased bias"]),
    ("Dropout", ["linear2_dropped dropout"]),
    ("Residual", ["linear2_residual residual"]),
    ("LayerNorm", ["out layernorm"]),
    ("LayerNorm dW", ["out layernorm dW"]),
    ("LayerNorm dX", ["out layernorm d_linear2_residual"]),
    ("Dropout dX", ["linear2_dropped dropout d_linear2_biased"]),
    ("Linear+Bias dX", ["linear2 einsum d_hidden"]),
    ("Linear dW", ["linear2 einsum d_w2"]),
    ("Bias dW", ["linear2_biased bias d_b2"]),
    ("Dropout dX", ["hidden dropout d_activated"]),
    ("ReLU dX", ["activated relu d_linear1_biased"]),
    ("Bias dW", ["linear1_biased bias d_b1"]),
    ("Linear+Bias dX", ["linear1 einsum d_attn_norm"]),
    ("Linear dW", ["linear1 einsum d_w1"]),
    ("Residual", ["d_attn_norm sum"]),
    ("LayerNorm dW", ["attn_norm layernorm dW"]),
    ("LayerNorm dX", ["attn_norm layernorm d_attn_residual"]),
    ("Dropout dX", ["attn_dropped dropout d_attn_biased"]),
    ("Output bias dW", ["attn_biased bias d_bo"]),
    ("Out dX", ["attn einsum d_gamma"]),
    ("Out dW", ["attn einsum d_wo"]),
    ("Gamma dX1", ["gamma einsum d_alpha"]),
    ("Gamma dX2", ["gamma einsum d_vv"]),
    ("Scaled softmax dX", ["alpha dropout d_weights", "weights softmax d_beta"]),
    ("QKT dX1", ["beta einsum d_kk"]),
    ("QKT dX2", ["beta einsum d_qq"]),
    ("Q, K, V dX", ["q_projected einsum d_x", "k_projected einsum d_x", "v_projected einsum d_x"]),
    ("Q, K, V dW", ["q_projected einsum d_wq", "k_projected einsum d_wk", "v_projected einsum d_wv"]),
    ("Input bias dW", ["qq bias d_bq", "kk bias d_bk", "vv bias d_bv"]),
    ("Residual", ["d_x sum"]),
]

# The gradients of Q, K and V are one tensor in the paper's row. Ours are summed by separate operators: their words
# belong to the row, their flop do not.
WORDS_ONLY = {"Q, K, V dX": ["d_x sum 2", "d_x sum 3"]}


@dataclass
class Row:
    number: int  # in the paper's order, from 1
    name: str
    passes: str  # forward or backward
    operator_class: str
    paper_gflop: str
    paper_input: str  # in 10^6 words, as printed
    paper_output: str
    flop: int = 0
    input_words: int = 0
    output_words: int = 0
    classes: set[str] = field(default_factory=set)

    @property
    def figures(self) -> dict[str, tuple[str, str]]:
        """Gflop, and 10^6 words in and out: the paper's and ours, as the paper prints them."""
        return {
            "gflop": (self.paper_gflop, f"{self.flop / 1e9:.3f}" if self.flop else ""),
            "in": (self.paper_input, mwords(self.input_words)),
            "out": (self.paper_output, mwords(self.output_words)),
        }


def mwords(words: int) -> str:
    return "<0.01" if words < 10_000 else f"{words / 1e6:.2f}"


# (number, "in" or "out"): (the paper's figure, ours, why). A row is listed here if its figure does not follow from the
# paper's own shapes; everything else must agree.
EXCEPTIONS = {
    (43, "in"): (
        "15.73", "19.92",
        "we add the products to the residual's gradient one by one, the paper adds the products first: 15.73 + the sum "
        "of the residual's and V's gradients, 4.194",
    ),
    (43, "out"): (
        "4.19", "8.39",
        "likewise: V's gradient, 4.194, goes to the residual's row, and the whole sum, 4.194, leaves this row",
    ),
    (10, "out"): (
        "4.19", "4.20",
        "the result 4.194 + mean and rstd 0.008 = 4.203: the paper's own dX rows (8.40) read both, but this row does not "
        "write them",
    ),
    (19, "in"): (
        "8.39", "4.20",
        "the residual 4.194 + weight and bias 0.002 = 4.196; the first LayerNorm, the same operator, has 4.20",
    ),
    (19, "out"): (
        "4.19", "4.20",
        "the result 4.194 + mean and rstd 0.008 = 4.203, as in the first LayerNorm",
    ),
    (20, "in"): (
        "8.39", "8.40",
        "x 4.194 + the gradient 4.194 + mean and rstd 0.008 = 8.397: this row omits the statistics, the dX row below it "
        "counts them",
    ),
    (32, "in"): (
        "8.39", "8.40",
        "x 4.194 + the gradient 4.194 + mean and rstd 0.008 = 8.397, as in the other LayerNorm dW",
    ),
    (36, "in"): (
        "4.33", "5.24",
        "d_attn 4.194 + wo 1.049 = 5.243; forward's Out, with the same matrices, has 5.24",
    ),
    (39, "in"): (
        "67.11", "37.75",
        "alpha 33.554 + d_gamma 4.194 = 37.749; 67.11 is two tensors of alpha's shape, which a softmax's gradient "
        "without dropout reads",
    ),
    (39, "out"): ("33.55", "4.19", "d_vv has vv's shape, 64 x 16 x 8 x 512 = 4.194; 33.55 is alpha's"),
    (40, "in"): (
        "12.58", "100.66",
        "weights 33.554 + mask 33.554 + d_alpha 33.554 = 100.663; 12.58 is three tensors of 4.194, less than one "
        "tensor of 16 x 8 x 512 x 512",
    ),
    (40, "out"): ("4.19", "33.55", "d_beta has beta's shape, 16 x 8 x 512 x 512 = 33.554; 4.19 is d_qq's"),
    (44, "in"): (
        "20.46", "16.78",
        "x 4.194 + d_qq, d_kk and d_vv 3 x 4.194 = 16.777; no sum of these gives 20.46",
    ),
    (44, "out"): ("1.05", "3.15", "d_wq, d_wk and d_wv, 3 x 1.049 = 3.146; 1.05 is one of them"),
}


def printed_by(command: str, program: str = "models/bert_encoder.py") -> dict:
    """The JSON that `millrace COMMAND PROGRAM --json` prints."""
    binary = os.environ.get("MILLRACE") or str(ROOT / "build/release/millrace")
    done = subprocess.run([binary, command, program, "--json"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def count_group(row: Row, group: set[str], analysis: dict) -> None:
    """Fills in the words that the operators of the group move, taken as one operator."""
    read: dict[str, int] = {}
    written: dict[str, int] = {}
    read_outside = {entry["tensor"] for entry in analysis["kept"] if entry["keeping"] == "saved"}
    read_at_all = set()
    for op in analysis["operators"]:
        names = {tensor["tensor"] for tensor in op["inputs"]}
        read_at_all |= names
        if op["name"] in group:
            read.update({tensor["tensor"]: tensor["words"] for tensor in op["inputs"]})
            written.update({tensor["tensor"]: tensor["words"] for tensor in op["outputs"]})
        else:
            read_outside |= names
    row.input_words = sum(words for name, words in read.items() if name not in written)
    row.output_words = sum(
        words for name, words in written.items() if name in read_outside or name not in read_at_all
    )


def paper_lines() -> list[dict[str, str]]:
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file))


def paper_rows(analysis: dict) -> list[Row]:
    """The paper's rows with our figures."""
    lines = [line for line in paper_lines() if line["pass"] != "total"]
    operators = {op["name"]: op for op in analysis["operators"]}
    if [line["operator"] for line in lines] != [name for name, _ in ROWS]:
        raise ValueError("the rows of the CSV are not those of ROWS")
    rows = []
    for number, (line, (name, names)) in enumerate(zip(lines, ROWS), start=1):
        row = Row(number, name, line["pass"], line["class"], line["gflop"], line["input_mwords"], line["output_mwords"])
        row.flop = sum(operators[n]["flop"] for n in names)
        row.classes = {operators[n]["class"] for n in names}
        count_group(row, set(names) | set(WORDS_ONLY.get(name, [])), analysis)
        rows.append(row)
    return rows
