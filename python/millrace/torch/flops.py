"""What PyTorch's flop counter (torch.utils.flop_counter) counts for a plan: the matrix products of the pass, as it
counts PyTorch's. Test: tests/torch/observation_test.py"""

from __future__ import annotations

import functools
import json
import tempfile
from collections import Counter
from pathlib import Path

import torch
from torch.utils.flop_counter import register_flop_formula

from millrace.commands import analyze


@functools.cache
def _flops(path: str) -> Counter:
    """The flop of the contractions of each pass, from the program that the plan holds."""
    program = json.loads(Path(path, "plan.json").read_text())["program"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "program.py")
        file.write_text(program["text"])
        found = analyze(file, sizes=program["sizes"], dtype=program["dtype"] or None, entry=program["entry"] or None,
                        quiet=True)
    made: Counter = Counter()
    for one in found["operators"]:
        if one["class"] == "contraction":
            made[one["pass"]] += one["flop"]
    return made


@register_flop_formula(torch.ops.millrace.forward)
def _(path, *arguments, **named) -> int:
    return _flops(path)["forward"]


@register_flop_formula(torch.ops.millrace.backward)
def _(path, *arguments, **named) -> int:
    return _flops(path)["backward"]
