"""Calls a compiled model with 300 shapes in a row: all are right, and files and memory do not grow."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import unittest
from pathlib import Path

import torch
from torch import nn

import millrace.torch
from support import TorchTest

SHAPES = 300
SETTLED = 100  # after this many shapes, nothing grows any more
PAGE = os.sysconf("SC_PAGESIZE")
MOST_GROWTH = 16 << 20  # bytes


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


class ManyShapesTest(TorchTest):
    def test_neither_fails_nor_leaks(self):
        torch._dynamo.reset()
        model = nn.Sequential(nn.Linear(8, 7), nn.GELU(), nn.Linear(7, 6))
        graphs = []
        run = torch.compile(model, backend=lambda graph, inputs: millrace.torch.backend.compile_graph(
            graph, inputs, options={"choose": "plan"}, listener=graphs.append))
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            for length in range(3, 3 + SHAPES):
                x = torch.randn(length, 8)
                made = run(x)
                torch.testing.assert_close(made, model(x))
                made.sum().backward()
                if length == 3 + SETTLED:
                    files, memory = open_files(), resident_bytes()
        self.assertLessEqual(open_files(), files)
        self.assertLess(resident_bytes() - memory, MOST_GROWTH)
        self.assertLessEqual(sum(len(graph.regions) for graph in graphs), 9, "the first, and eight of any shape")
        self.assertEqual(said.getvalue().count("goes to Inductor for new shapes"), 1)


if __name__ == "__main__":
    unittest.main()
