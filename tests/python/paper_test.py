"""Tests `millrace analyze models/bert_encoder.py` against the paper's own table, row by row.

The mapping and the list of rows that contradict the paper's shapes are in paper_rows.py.
"""

from __future__ import annotations

import importlib.util
import unittest
from pathlib import Path

import paper_rows
from paper_rows import EXCEPTIONS, ROOT, ROWS, WORDS_ONLY


def load_page_script():
    spec = importlib.util.spec_from_file_location("paper_table", ROOT / "tests/scripts/paper_table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class PaperTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.analysis = paper_rows.printed_by("analyze")
        cls.rows = paper_rows.paper_rows(cls.analysis)

    def check(self, column: str) -> None:
        """Every row agrees as printed, except those that differ exactly as listed."""
        for row in self.rows:
            with self.subTest(row=row.number, name=row.name, column=column):
                expected = row.figures[column][0]
                if (row.number, column) in EXCEPTIONS:
                    paper, expected, reason = EXCEPTIONS[(row.number, column)]
                    self.assertEqual(row.figures[column][0], paper, "the exception misquotes the paper")
                    self.assertNotEqual(paper, expected, "the row agrees: not an exception")
                    self.assertTrue(reason)
                self.assertEqual(row.figures[column][1], expected)

    def test_there_are_46_rows(self) -> None:
        self.assertEqual(len(self.rows), 46)

    def test_flop_of_every_row(self) -> None:
        self.check("gflop")

    def test_words_in(self) -> None:
        self.check("in")

    def test_words_out(self) -> None:
        self.check("out")

    def test_classes(self) -> None:
        for row in self.rows:
            with self.subTest(row=row.number, name=row.name):
                self.assertEqual(row.classes, {row.operator_class})

    def test_every_operator_is_in_one_row(self) -> None:
        mapped = [name for _, names in ROWS for name in names]
        mapped += [name for names in WORDS_ONLY.values() for name in names]
        self.assertEqual(sorted(mapped), sorted(op["name"] for op in self.analysis["operators"]))

    def test_passes(self) -> None:
        passes = {op["name"]: op["pass"] for op in self.analysis["operators"]}
        for row, (_, names) in zip(self.rows, ROWS):
            self.assertEqual({passes[name] for name in names}, {row.passes}, row.name)

    def test_flop_of_every_class(self) -> None:
        by_class = self.analysis["totals"]["by_class"]
        extra = sum(op["flop"] for op in self.analysis["operators"] if op["name"] in WORDS_ONLY["Q, K, V dX"])
        self.assertEqual(extra, 2 * 1024 * 8 * 512)
        totals = {line["class"]: line["gflop"] for line in paper_rows.paper_lines() if line["pass"] == "total"}
        for name in ("contraction", "normalization", "elementwise"):
            flop = by_class[name]["flop"] - (extra if name == "elementwise" else 0)
            self.assertEqual(f"{flop / 1e9:.3f}", totals[name], name)
        self.assertEqual(f"{(self.analysis['totals']['flop'] - extra) / 1e9:.3f}", totals["total"])

    def test_shares_of_table_1(self) -> None:
        shares = {"contraction": "99.80", "normalization": "0.17", "elementwise": "0.03"}
        for name, share in shares.items():
            self.assertEqual(f"{100 * self.analysis['totals']['by_class'][name]['flop_share']:.2f}", share, name)

    def test_the_page_is_up_to_date(self) -> None:
        page = load_page_script().page(self.analysis)
        path = ROOT / "docs/paper-table.md"
        self.assertTrue(path.exists() and path.read_text() == page,
                        "regenerate it: python3 tests/scripts/paper_table.py > docs/paper-table.md")

    def test_the_table_is_the_papers(self) -> None:
        """The copy in tests/data is identical to the paper's, if its folder is present."""
        original = Path(ROOT, "..", "shared/paper/table-flop-analysis.csv")
        if not original.exists():
            self.skipTest(f"no {original}")
        self.assertEqual(original.read_bytes(), paper_rows.TABLE.read_bytes())


if __name__ == "__main__":
    unittest.main()
