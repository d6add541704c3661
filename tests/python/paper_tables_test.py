"""Tests bench/paper_tables.py with made-up plans and measurements."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import paper_rows
from command_test_case import BINARY, ROOT

sys.path.insert(0, str(ROOT / "bench"))
from beside_paper import launched, tables  # noqa: E402  (the path above comes first)
from beside_paper.launched import Launch  # noqa: E402
from beside_paper.measured import Measured, Tried, Unusable, join_rows, told_attributes  # noqa: E402

DEVICE = "gpu NVIDIA H200, sm_90, 132 multiprocessors; driver 13.0"


def product(layouts: str, algorithm: str, micro: float, cores: str = "tensor") -> Tried:
    return Tried(f"{layouts}; cublaslt m 0 n 1 k 2 on {cores} algorithm {algorithm}", micro * 1e-6)


def table_of(text: str, title: str) -> dict[str, list[str]]:
    """The rows under a heading, by their first two cells."""
    section = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return {" ".join(row[:2]).strip(): row for row in rows[2:]}


class MeasuredTest(unittest.TestCase):
    def test_candidates(self) -> None:
        one = product("012 021 01", "66.20.35.1.0.0.1.0.3", 5)
        self.assertEqual((one.layouts, one.algorithm, one.is_written), ("012 021 01", "66.20.35.1.0.0.1.0.3", False))
        self.assertTrue(product("012 01", "heuristic", 5).is_written)
        self.assertIsNone(product("01", "heuristic", 5, "plain").algorithm)
        kernel = Tried("012 bits; flat loops 0.1 vector 1 threads 1 block -1 gpu 8.1.128.0.0", 1e-6)
        self.assertEqual((kernel.is_product, kernel.algorithm, kernel.is_written), (False, None, False))
        self.assertEqual(told_attributes("66.20.35.1.0.0.1.0.3"), "id 66, tile 20, stages 35, custom 1, cluster 3")

    def test_rows_are_found_by_what_was_explored(self) -> None:
        fast, slow, kernel = product("01", "66.1.1.1.0.0.0.0.0", 3), product("01", "heuristic", 4), "01; flat loops 0.1"
        explored = {"partitions": [
            {"name": "q", "candidates": [{"candidate": fast.candidate, "seconds": fast.seconds}]},
            {"name": "norm", "candidates": [{"candidate": kernel, "seconds": 1e-6}]}, {"name": "never", "candidates": []}]}
        rows = [{"partition": "text of q", "candidate": one.candidate, "seconds": one.seconds} for one in (fast, slow)]
        rows.append({"partition": "another", "candidate": fast.candidate, "seconds": 9e-6})
        measured = join_rows(explored, rows)
        self.assertEqual(measured.of("q"), [fast, slow])
        self.assertEqual(measured.fastest("norm"), 1e-6)
        self.assertEqual(measured.of("never"), [])
        self.assertIsNone(measured.together(["q", "never"]))
        with self.assertRaisesRegex(Unusable, "0 partitions of the database match the measurements of q"):
            join_rows(explored, rows[1:])


class TablesTest(unittest.TestCase):
    def test_gaps_are_of_the_same_layouts(self) -> None:
        gaps = tables.gaps_of([
            product("01 10", "heuristic", 11), product("01 10", "66.1.1.1.0.0.0.0.0", 10), product("01 10", "1.2", 12),
            product("10 10", "heuristic", 8), product("10 10", "66.1.1.1.0.0.0.0.0", 9),
            product("10 01", "heuristic", 5),  # nothing to compare with
            product("01 01", "66.1.1.1.0.0.0.0.0", 5),  # not measured with the heuristic
            product("01 10", "heuristic", 2, "plain")])
        self.assertEqual([round(gap.percent, 6) for gap in gaps], [0, 10])
        self.assertEqual(gaps[1].best.algorithm, "66.1.1.1.0.0.0.0.0")

    def test_the_fastest_two_and_their_sums(self) -> None:
        q, k, v = (f"{letter}_projected einsum d_x" for letter in "qkv")
        times = {q: 10, k: 10, v: 10, "residual*3 (d_x.sum.3)": 8, f"{q} with d_x sum 3": 11, f"{v} with d_x sum": 12,
                 f"{q} + {k} with d_x sum 2, d_x sum 3": 21, f"{k} + {v} with d_x sum, d_x sum 2": 21}
        measured = Measured({name: [Tried("", time * 1e-6)] for name, time in times.items()})
        row = tables.algebraic_table(measured).splitlines()[4]
        self.assertEqual([cell.strip() for cell in row.strip("|").split("|")],
                         ["dX, added to the residual's gradient", "342", "312", "291", "38.0", "**32.0 (kv)**",
                          "not measured"])

    def test_rows_that_share_launches(self) -> None:
        def launch(name: str, *operators: str) -> Launch:
            return Launch(name, frozenset(operators), 1.0, 1, "elementwise")

        ab, c, d, copy = launch("ab", "a", "b2"), launch("c", "c"), launch("d", "d"), launch("copy")
        shared = launched.shared_rows([{"a"}, {"c", "d"}, {"b", "b2"}, {"e"}], [ab, c, d, copy])
        self.assertEqual([(rows, [one.name for one in of]) for rows, of in shared],
                         [([0, 2], ["ab"]), ([1], ["c", "d"]), ([3], [])])


class WholeTest(unittest.TestCase):
    """Every operator takes 10 µs; a bias, ReLU and dropout run as one launch of 12 µs, which stores the mask as bits."""

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.analysis = paper_rows.printed_by("analyze")
        cls.write_plan()
        cls.write_measurements()
        cls.done = cls.run_script("--out", str(cls.folder / "tables.md"))
        cls.text = (cls.folder / "tables.md").read_text() if cls.done.returncode == 0 else ""

    @classmethod
    def run_script(cls, *arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, str(ROOT / "bench/paper_tables.py"), str(cls.folder), "--millrace", BINARY,
                   "--explored", str(cls.folder / "explored.json"), "--rows", str(cls.folder / "rows.jsonl")]
        return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60)

    @classmethod
    def write_plan(cls) -> None:
        fused = ["linear1_biased bias", "activated relu", "hidden dropout"]
        words = {t["tensor"]: t["words"] for op in cls.analysis["operators"] for t in op["inputs"] + op["outputs"]}
        numbers = {tensor: number for number, tensor in enumerate(words)}
        buffers = [{"tensor": tensor, "bytes": 2 * count} for tensor, count in words.items()]
        buffers[numbers["hidden.mask"]]["bytes"] //= 16
        numbers["hidden.positive"] = len(buffers)  # not in the paper's graph
        buffers.append({"tensor": "hidden.positive", "bytes": 0})
        launches = []
        for op in cls.analysis["operators"]:
            tensors = [t["tensor"] for t in op["inputs"] + op["outputs"]]
            launch = {"partition": op["name"], "predicted_seconds": 1e-5}
            if op["name"] in fused[:2]:
                continue
            if op["name"] == fused[2]:
                tensors = ["b1", "linear1", "hidden", "hidden.mask", "hidden.positive"]
                launch = {"partition": "bias-relu-dropout (hidden.mask)", "predicted_seconds": 1.2e-5}
            launches.append({**launch, "buffers": [numbers[tensor] for tensor in tensors]})
        launches.append({"conversion_of": "qq", "predicted_seconds": 4e-6, "buffers": [numbers["qq"], len(buffers)]})
        buffers.append({"tensor": "qq", "bytes": 2 * words["qq"]})
        text = (ROOT / "models/bert_encoder.py").read_text()
        plan = {"device": DEVICE, "date": "2026-01-02", "version": "0", "sha256": "5" * 64, "buffers": buffers,
                "launches": launches,
                "program": {"file": "x/bert_encoder.py", "text": text, "sizes": [], "dtype": "", "entry": "",
                            "layouts": []}}
        (cls.folder / "plan.json").write_text(json.dumps(plan))

    @classmethod
    def write_measurements(cls) -> None:
        partitions, rows = [], []
        for number, op in enumerate(cls.analysis["operators"]):
            candidates = []
            if op["class"] == "contraction":
                faster = product("10 01 01", "66.20.35.1.0.0.1.0.3", 10 + 1e-9 * number)
                candidates = [product("01 01 01", "heuristic", 20 + number), faster]
                tried = [*candidates, product("10 01 01", "heuristic", 11)]
                rows += [{"device": f"{DEVICE}; from memory", "partition": op["name"], "candidate": one.candidate,
                          "outcome": "measured", "seconds": one.seconds, "when": "2026-01-01T"} for one in tried]
            elif op["name"] != "out layernorm":
                candidates = [Tried("01; flat loops 0.1", 1e-5)]
            partitions.append({"name": op["name"], "candidates": [{"candidate": one.candidate, "seconds": one.seconds}
                                                       for one in candidates]})
        (cls.folder / "explored.json").write_text(json.dumps({"partitions": partitions}))
        (cls.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def test_head(self) -> None:
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        self.assertIn(f"| machine | {DEVICE} |", self.text)
        self.assertIn("| measured | 72 candidates, of other programs too, 2026-01-01 |", self.text)
        self.assertIn("989 Tflop/s", self.text)

    def test_class_shares(self) -> None:
        shares = table_of(self.text, "Shares of the classes")
        self.assertEqual(shares["contraction 99.80"][3:], ["61.0", "65.5", "240.0", "40.7", "240.0", "41.0"])
        self.assertEqual(shares["conversion"][-2:], ["4.0", "0.7"])
        self.assertIn("excludes 1 operators that were not measured alone: out layernorm.", self.text)

    def test_every_operator(self) -> None:
        rows = table_of(self.text, "Every operator")
        self.assertEqual(rows["1 Q, K, V"][3:],
                         ["25.770", "7.34", "12.58", "333", "306", "30.0", "30.0", "86.8", "1.89", "39.3"])
        moved = 2 * (2 * 16_777_216 + 4096) + 16_777_216 // 8
        self.assertEqual(rows["12 Bias"][8:], ["10.0", "12.0", "0.3", f"{moved / 12e-6 / 1e12:.2f}",
                                               f"{moved / 12e-6 / 4.8e10:.1f}"])
        self.assertEqual(rows["14 Dropout"][7:10], ["in 12", "10.0", "in 12"])
        self.assertEqual(rows["19 LayerNorm"][8:10], ["not measured", "10.0"])
        self.assertEqual(rows["conversion of qq"][9], "4.0")
        self.assertEqual(rows["all"][6:10], ["8110", "6739", "not measured", "586.0"])

    def test_algorithms_and_layouts(self) -> None:
        heuristic = table_of(self.text, "The library's heuristic against the best algorithm")
        row = next(row for row in heuristic.values() if row[0] == "beta einsum")
        self.assertEqual(row[1:], ["10 01 01", "id 66, tile 20, stages 35, custom 1, cluster 3", "11.00", "10.00",
                                   "10.00", "1", "10.00"])
        self.assertIn("Largest gap: **10.00 %**", self.text)
        row = next(row for row in table_of(self.text, "Layouts").values() if row[0] == "q_projected einsum")
        self.assertEqual(row[1:], ["10 01 01", "20.00", "10.00", "100.00", "20.00", "2"])

    def test_files_that_do_not_match(self) -> None:
        other = self.folder / "other.jsonl"
        other.write_text((self.folder / "rows.jsonl").read_text().replace("H200", "H100"))
        for rows, said in ((str(other), "no measurements from gpu NVIDIA H200"),
                           (str(self.folder / "plan.json"), "plan.json:1 is not a database row")):
            done = self.run_script("--rows", rows, "--out", str(self.folder / "none.md"))
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stderr)
            self.assertFalse((self.folder / "none.md").exists())


if __name__ == "__main__":
    unittest.main()
