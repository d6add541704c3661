"""Tests that plans are released when many shapes come, and that a plan that cannot be loaded falls back."""

from __future__ import annotations

import os
import shutil
import tempfile
import unittest
import unittest.mock
import warnings
from pathlib import Path

import torch

import millrace
import millrace.torch
from millrace._library import MillraceError
from millrace.torch import operator
from support import TorchTest, pair

TEXT = "A = 3\n\ndef f(x: float64[A]):\n    return x * 2\n"
MANY = 100  # more than the operator keeps


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


class LoadedPlansTest(TorchTest):
    def test_many_plans_do_not_keep_files_open(self):
        plan = millrace.find_plan(TEXT, {}, "float64", threads=1)
        x = torch.randn(3, dtype=torch.float64)
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o700)
            before = open_files()
            for k in range(MANY):
                copy = shutil.copytree(plan, Path(folder, str(k)))
                (y,) = operator.run(str(copy), [x], [1], [], None)
                self.assert_close(y, x * 2)
            self.assertLess(open_files() - before, 80)
            (y,) = operator.run(str(Path(folder, "0")), [x], [1], [], None)  # released and loaded again
            self.assert_close(y, x * 2)

    def test_a_program_says_that_its_plan_cannot_be_loaded(self):
        with self.assertRaisesRegex(MillraceError, "nowhere"):
            operator.run("/nowhere", [torch.ones(3)], [1], [], None)

    def test_a_layer_falls_back(self):
        ours, theirs = pair(8, 2, 12, dropout=0.0, batch_first=True)
        x = torch.randn(2, 3, 8)
        with unittest.mock.patch("millrace.torch.encoder_layer._plan", lambda *_: ("/nowhere", False, None)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self.assert_close(ours(x), theirs(x))
        message = "".join(str(one.message) for one in caught)
        self.assertIn("falls back to PyTorch", message)
        self.assertIn("nowhere", message)
        self.assertEqual(caught[0].filename, __file__, "the warning is at the user's line")
        self.assertIn("nowhere", millrace.torch.plan_of(ours).why_not)
        self.assert_close(ours(x), theirs(x), tolerance=1e-4)
        self.assertTrue(Path(millrace.torch.plan_of(ours).plan, "plan.json").exists())


if __name__ == "__main__":
    unittest.main()
