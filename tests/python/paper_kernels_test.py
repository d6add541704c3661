"""Tests `millrace fuse models/bert_encoder.py` against the paper's own kernels, and the page that shows both."""

from __future__ import annotations

import importlib.util
import unittest

import paper_rows
from paper_kernels import ALONE, KERNELS, PAPER_REDUCTION, words_with_the_papers_kernels
from paper_rows import ROOT


class PaperKernelsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.analysis = paper_rows.printed_by("analyze")
        cls.fused = paper_rows.printed_by("fuse")

    def test_the_lists_cover_all_but_contractions(self) -> None:
        listed = sorted([name for _, names in KERNELS for name in names] + ALONE)
        ours = sorted(op["name"] for op in self.analysis["operators"] if op["kind"] != "contraction")
        self.assertEqual(listed, ours)

    def test_each_kernel_is_inside_one_group_and_named_there(self) -> None:
        for name, operators in KERNELS:
            with self.subTest(kernel=name, operators=operators):
                around = [g for g in self.fused["groups"] if set(operators) & set(g["operators"])]
                self.assertEqual(len(around), 1)
                self.assertLessEqual(set(operators), set(around[0]["operators"]))
                self.assertIn(name, around[0]["paper_name"].split("+"))

    def test_no_more_words_than_the_papers_kernels(self) -> None:
        self.assertLessEqual(self.fused["words_after"], words_with_the_papers_kernels(self.analysis))

    def test_unfused_words_are_those_of_the_analysis(self) -> None:
        self.assertEqual(self.fused["words_before"], self.analysis["totals"]["words"])

    def test_reduction(self) -> None:
        self.assertGreaterEqual(self.fused["reduction"], PAPER_REDUCTION)
        masks = self.fused["masks"]
        self.assertEqual(masks["words"]["words_after"], self.fused["words_after"])
        self.assertGreater(masks["bits"]["reduction"], masks["words"]["reduction"])
        self.assertGreater(masks["regenerated"]["reduction"], masks["bits"]["reduction"])

    def test_the_page_is_up_to_date(self) -> None:
        spec = importlib.util.spec_from_file_location("fusion_table", ROOT / "tests/scripts/fusion_table.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        page = (ROOT / "docs/fusion-table.md").read_text()
        self.assertEqual(page, module.page(self.analysis, self.fused), "regenerate it: tests/scripts/fusion_table.py")


if __name__ == "__main__":
    unittest.main()
