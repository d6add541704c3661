"""Tests how bench/host_cost.py evaluates a profile."""

from __future__ import annotations

import sys
import unittest

from numpy_program import ROOT

sys.path.insert(0, str(ROOT / "bench"))
from host_cost import Kernel, gaps_between  # noqa: E402  (the path above comes first)


class GapsTest(unittest.TestCase):
    def test_by_kernels_before_and_after(self):
        step = [Kernel("a", 0, 10), Kernel("b", 13, 20), Kernel("c", 25, 30)]
        kernels = step + [Kernel(kernel.name, kernel.begin + 40, kernel.end + 40) for kernel in step]
        self.assertEqual(gaps_between(list(reversed(kernels)), 2), [(5, "c", "a"), (5, "b", "c"), (3, "a", "b")])

    def test_kernels_that_overlap_leave_none(self):
        kernels = [Kernel("long", 0, 30), Kernel("short", 2, 5), Kernel("after", 31, 32), Kernel("at once", 32, 40)]
        self.assertEqual(gaps_between(kernels, 1), [(1, "long", "after")])
        self.assertEqual(gaps_between([], 1), [])


if __name__ == "__main__":
    unittest.main()
