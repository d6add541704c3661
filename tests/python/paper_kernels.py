"""The paper's fused kernels (its section A.2) as sets of our operators of models/bert_encoder.py.

One list for the test (paper_kernels_test.py) and for the page (tests/scripts/fusion_table.py).
"""

from __future__ import annotations

from paper_rows import Row, count_group

KERNELS = [
    ("AIB", ["qq bias", "kk bias", "vv bias"]),
    ("SM", ["weights softmax", "alpha dropout"]),
    ("BDRLN", ["attn_biased bias", "attn_dropped dropout", "attn_residual residual", "attn_norm layernorm"]),
    ("BRD", ["linear1_biased bias", "activated relu", "hidden dropout"]),
    ("BDRLN", ["linear2_biased bias", "linear2_dropped dropout", "linear2_residual residual", "out layernorm"]),
    ("BSB", ["out layernorm dW"]),
    ("BLNRD", ["out layernorm d_linear2_residual", "linear2_dropped dropout d_linear2_biased"]),
    ("BDRB", ["hidden dropout d_activated", "activated relu d_linear1_biased", "linear1_biased bias d_b1"]),
    ("EBSB", ["d_attn_norm sum", "attn_norm layernorm dW"]),
    ("BLNRD", ["attn_norm layernorm d_attn_residual", "attn_dropped dropout d_attn_biased"]),
    ("BAOB", ["attn_biased bias d_bo"]),
    ("BS", ["alpha dropout d_weights", "weights softmax d_beta"]),
    ("BAIB", ["qq bias d_bq", "kk bias d_bk", "vv bias d_bv"]),
    # The paper's one addition; where Q, K and V are not stacked their sums are fused with it.
    ("BEI", ["d_x sum", "d_x sum 2", "d_x sum 3"]),
]

# Section A.2 lists no kernel for it. The table's brace includes it in BDRB, which runs after it; there it would read
# d_linear2_biased once more, so a separate kernel moves the same words.
ALONE = ["linear2_biased bias d_b2"]

PAPER_REDUCTION = 0.2291


def words_as_one(names: list[str], analysis: dict) -> int:
    """The words that the operators move as one kernel: reads inputs from outside once, writes what others need."""
    row = Row(0, "", "", "", "", "", "")
    count_group(row, set(names), analysis)
    return row.input_words + row.output_words


def words_apart(names: list[str], analysis: dict) -> int:
    return sum(op["input_words"] + op["output_words"] for op in analysis["operators"] if op["name"] in names)


def words_with_the_papers_kernels(analysis: dict) -> int:
    fused = {name for _, names in KERNELS for name in names}
    rest = [op["name"] for op in analysis["operators"] if op["name"] not in fused]
    return words_apart(rest, analysis) + sum(words_as_one(names, analysis) for _, names in KERNELS)
