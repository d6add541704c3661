"""The parts of bench/compare.py that need no torch: sizes, programs, statistics, table, JSON, tensors."""

from __future__ import annotations

import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

import safetensors_io
from numpy_program import ROOT, load_program

sys.path.insert(0, str(ROOT / "bench"))
from peers import agreement, environment, millrace_peer, program, report  # noqa: E402  (the path above comes first)
from peers.report import RoundTime  # noqa: E402

BERT = ROOT / "models/bert_encoder.py"


class ProgramTest(unittest.TestCase):
    def test_sizes_follow_what_is_chosen_and_later_ones_win(self) -> None:
        sizes = program.sizes_of(BERT.read_text(), ["base", "B=2,J=16"])
        expected = {"P": 64, "W": 64, "H": 12, "I": 768, "B": 2, "J": 16, "K": 16, "U": 3072}
        self.assertEqual(sizes, expected)
        self.assertEqual(program.sizes_of(BERT.read_text(), ["B=2", "base"])["B"], 4)
        self.assertEqual(program.sizes_of(BERT.read_text(), [])["J"], 512)

    def test_sizes_that_are_not_there_are_named(self) -> None:
        for chosen, named in (("huge", "no set of sizes 'huge'"), ("Z=3", "no size Z"), ("B=x", "B=x"), ("B=0", "B=0")):
            with self.subTest(chosen), self.assertRaisesRegex(ValueError, named):
                program.sizes_of(BERT.read_text(), [chosen])

    def test_dropout_is_put_in_every_call(self) -> None:
        text = "é = 1\ndef f(x):\n    é, y = dropout(x), np.exp(dropout(dropout(x, 0.5), p=0.25))\n"
        expected = "é = 1\ndef f(x):\n    é, y = dropout(x, 0.0), np.exp(dropout(dropout(x, 0.0), p=0.0))\n"
        self.assertEqual(program.with_dropout(text, 0.0), expected)

    def test_the_model_without_dropout_is_the_same_at_every_step(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "bert.py")
            path.write_text(program.with_dropout(BERT.read_text(), 0.0))
            with_none, model = load_program(path, "tiny"), load_program(BERT, "tiny")
        rng = np.random.default_rng(3)
        arguments = {name: rng.standard_normal(shape) for name, shape in model.shapes.items()}
        first, second = (with_none.run(arguments, 1, step)["out"] for step in (0, 1))
        np.testing.assert_array_equal(first, second)
        self.assertTrue(np.any(model.run(arguments, 1, 0)["out"] != model.run(arguments, 1, 1)["out"]))


class ReportTest(unittest.TestCase):
    rounds = {
        "Millrace": [RoundTime(0.01, 0.02, 0.03 + 0.001 * k) for k in range(3)],
        "eager": [RoundTime(0.02, 0.04, 2 * (0.03 + 0.001 * k)) for k in range(3)],
    }

    def test_interval_of_a_median(self) -> None:
        self.assertEqual(report.median_interval([2.0]), (2.0, 2.0))
        self.assertEqual(report.median_interval([3.0, 1.0, 2.0]), (1.0, 3.0))
        # Order statistics for 95 %, from tables: of 9 values the 2nd to the 8th, of 15 the 4th to the 12th.
        self.assertEqual(report.median_interval(list(range(9, 0, -1))), (2, 8))
        self.assertEqual(report.median_interval(list(range(1, 16))), (4, 12))

    def test_ratios_are_taken_round_by_round(self) -> None:
        rows = {row["name"]: row for row in report.contestant_rows(self.rounds, "Millrace")}
        self.assertAlmostEqual(rows["eager"]["step_ratio"]["low"], 2.0)
        self.assertAlmostEqual(rows["eager"]["step_ratio"]["high"], 2.0)
        self.assertEqual(rows["Millrace"]["step_ratio"]["median"], 1.0)
        self.assertAlmostEqual(rows["Millrace"]["step_seconds"]["median"], 0.031)
        self.assertAlmostEqual(rows["Millrace"]["step_seconds"]["best"], 0.030)

    def test_base_is_the_preferred_or_the_fastest(self) -> None:
        self.assertEqual(report.base_of(self.rounds, "eager"), "eager")
        self.assertEqual(report.base_of(self.rounds, "absent"), "Millrace")

    def test_table(self) -> None:
        rows = report.contestant_rows(self.rounds, "Millrace")
        lines = report.table(rows, "Millrace", {"compile": "no compiler"}).splitlines()
        self.assertEqual(len(lines), 4)
        self.assertIn("step / Millrace's", lines[0])
        shown = r"^eager +20\.00 +40\.00 +62\.00 +\[60\.00, 64\.00\] +60\.00 +2\.000 \[2\.000, 2\.000\]$"
        self.assertRegex(lines[2], shown)
        self.assertEqual(lines[3].split(maxsplit=1), ["compile", "did not run: no compiler"])

    def test_a_case_replaces_itself_and_leaves_others(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "new", report.file_name("aarch64", "Neoverse-V1 (r1p1)"))
            self.assertEqual(path.name, "compare-aarch64-neoverse-v1-r1p1.json")
            for case, value in (("a", 1), ("b", 2), ("a", 3)):
                report.write_run(path, case, {"value": value})
            written = json.loads(path.read_text())
            self.assertEqual(written, {"schema_version": 1, "runs": {"a": {"value": 3}, "b": {"value": 2}}})
            self.assertEqual([entry.name for entry in path.parent.iterdir()], [path.name], "something was left behind")

    def test_a_file_that_is_no_report_is_not_overwritten(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "compare.json")
            for text in ("{", "[]", '{"schema_version": 2, "runs": {}}', '{"schema_version": 1}'):
                path.write_text(text)
                with self.subTest(text), self.assertRaisesRegex(ValueError, "--out"):
                    report.write_run(path, "a", {})
                self.assertEqual(path.read_text(), text)


class AgreementTest(unittest.TestCase):
    expected = {"out": np.array([1.0, -4.0]), "d_bq": np.array([2.0]), "d_bk": np.array([0.0])}

    def test_largest_difference_and_its_tensor(self) -> None:
        made = {"out": np.array([1.0, -4.1]), "d_bq": np.array([2.0]), "d_bk": np.array([0.001])}
        difference, tensor = agreement.largest_difference(self.expected, made, {"d_bk": "d_bq"})
        self.assertEqual(tensor, "out")
        self.assertAlmostEqual(difference, 0.025)

    def test_nan_disagrees(self) -> None:
        made = {**self.expected, "d_bq": np.array([np.nan])}
        difference, tensor = agreement.largest_difference(self.expected, made, {"d_bk": "d_bq"})
        self.assertEqual(tensor, "d_bq")
        self.assertFalse(difference <= agreement.TOLERANCE["float32"])

    def test_what_is_missing_or_of_another_shape(self) -> None:
        for made, said in (({"out": self.expected["out"]}, "d_bk, d_bq"),
                           ({**self.expected, "out": np.zeros((2, 1))}, "shape")):
            with self.subTest(said), self.assertRaisesRegex(ValueError, said):
                agreement.largest_difference(self.expected, made, {})


class MillracePeerTest(unittest.TestCase):
    """With a script in Millrace's place."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def peer(self, body: str) -> millrace_peer.MillracePeer:
        script = self.folder / "millrace"
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
        return millrace_peer.MillracePeer(str(script), BERT, ["base", "B=2"], "float32", "5s", self.folder / "plan")

    def test_commands(self) -> None:
        log = self.folder / "log"
        printed = '{"schema_version": 1, "forward_seconds": 1, "backward_seconds": 2, "step_seconds": {"median": 3.5}}'
        peer = self.peer(f"echo \"$@\" >> {log}\ncase $1 in bench) echo '{printed}';; run) cp \"$4\" \"$6\";; esac")
        peer.prepare()
        self.assertEqual(peer.round(), RoundTime(1, 2, 3.5))
        tensors = {"x": np.arange(6.0).reshape(2, 3).T, "y": np.array(0.5)}
        made = peer.results(tensors)
        for name, tensor in tensors.items():
            np.testing.assert_array_equal(made[name], tensor)
        self.assertEqual(safetensors_io.read(peer.folder / "in.safetensors")["x"].dtype, np.float32)
        plan = self.folder / "plan"
        self.assertEqual(log.read_text().splitlines(), [
            f"optimize {BERT} --dtype float32 --budget 5s --out {plan} --size base --size B=2",
            f"bench {plan}/plan.json --json",
            f"run {plan}/plan.json --in {plan}/in.safetensors --out {plan}/out.safetensors",
        ])

    def test_failures_say_what_was_printed(self) -> None:
        with self.assertRaisesRegex(millrace_peer.MillraceFailed, "optimize .* exit 3: no such device"):
            self.peer("echo no such device >&2; exit 3").prepare()
        for printed in ("", "{}", '{"schema_version": 2}', "[]"):
            with self.subTest(printed), self.assertRaisesRegex(millrace_peer.MillraceFailed, "not its report"):
                self.peer(f"echo '{printed}'").round()


class EnvironmentTest(unittest.TestCase):
    def test_what_is_installed_from_where(self) -> None:
        self.assertEqual(environment.install_commands(["pip"], "aarch64", None), [["pip", "torch", "numpy"]])
        from_index, from_pypi = environment.install_commands(["pip"], "x86_64", "2.10.0")
        self.assertEqual(from_pypi, ["pip", "torch==2.10.0", "numpy"])
        self.assertEqual(from_index[: len(from_pypi) + 2], [*from_pypi, "--index-url", environment.CPU_INDEX])

    def test_no_waiting_for_calm_unless_asked(self) -> None:
        with mock.patch("time.sleep") as sleep:
            environment.wait_for_calm(0)
        sleep.assert_not_called()
        busy, total = environment.busy_and_total()
        self.assertTrue(0 < busy < total)


if __name__ == "__main__":
    unittest.main()
