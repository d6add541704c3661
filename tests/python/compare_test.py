"""Tests the parts of bench/compare.py that need no torch: sizes, programs, statistics, table, JSON, tensors."""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

import safetensors_io
from command_test_case import BINARY, ROOT
from numpy_program import load_program

sys.path.insert(0, str(ROOT / "bench"))
from peers import agreement, environment, millrace_peer, program, report  # noqa: E402  (the path above comes first)
from peers import attention_cases, bert_tensors, contestants, gpu_comparison, gpu_report  # noqa: E402
from peers import mha_tensors, worker  # noqa: E402
from peers.report import RoundTime  # noqa: E402
from peers.worker_peer import WorkerFailed, WorkerPeer  # noqa: E402

BERT = ROOT / "models/bert_encoder.py"


class StartTest(unittest.TestCase):
    def test_starts_in_a_python_without_numpy(self) -> None:
        """compare.py installs numpy itself, in an environment of its own."""
        start = (f"import runpy, sys; sys.modules['numpy'] = None; sys.argv = ['compare.py', '--help']\n"
                 f"runpy.run_path({str(ROOT / 'bench/compare.py')!r}, run_name='__main__')")
        done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


class ProgramTest(unittest.TestCase):
    def test_derived_sizes_follow_and_later_sizes_take_precedence(self) -> None:
        sizes = program.sizes_of(BERT.read_text(), ["base", "B=2,J=16"])
        expected = {"P": 64, "W": 64, "H": 12, "I": 768, "B": 2, "J": 16, "K": 16, "U": 3072}
        self.assertEqual(sizes, expected)
        self.assertEqual(program.sizes_of(BERT.read_text(), ["B=2", "base"])["B"], 4)
        self.assertEqual(program.sizes_of(BERT.read_text(), [])["J"], 512)

    def test_unknown_sizes_are_named(self) -> None:
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


class AttentionCasesTest(unittest.TestCase):
    def test_every_case_is_a_program(self) -> None:
        for case in attention_cases.CASES:
            small = dataclasses.replace(case, batch=2, groups=2, queries=8, keys=case.keys and 12, columns=4,
                                        window=case.window and 3)
            with self.subTest(case.name), tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "attention.py")
                path.write_text(attention_cases.program_text(small, case.dropout))
                made = subprocess.run([BINARY, "analyze", path, "--json"], capture_output=True, text=True)
                self.assertEqual(made.returncode, 0, made.stderr)
                shapes = load_program(path).shapes
                self.assertEqual(shapes["q"], (2, 8, 2, case.heads_per_group, 4))
                self.assertEqual(shapes["k"], (2, 12 if case.keys else 8, 2, 4))

    def test_flop_of_hidden_scores_do_not_count(self) -> None:
        case = attention_cases.Case("", batch=1, groups=2, queries=10, columns=4, heads_per_group=3)
        self.assertEqual(case.forward_flop(), 4 * 6 * 10 * 10 * 4)
        self.assertEqual(dataclasses.replace(case, causal=True).step_flop(), 3.5 * 4 * 6 * 10 * 10 * 4 / 2)
        self.assertEqual(dataclasses.replace(case, window=5).seen_share(), 0.5)


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
            self.assertEqual([entry.name for entry in path.parent.iterdir()], [path.name], "a temporary file remains")

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

    def test_missing_tensors_and_wrong_shapes(self) -> None:
        for made, said in (({"out": self.expected["out"]}, "d_bk, d_bq"),
                           ({**self.expected, "out": np.zeros((2, 1))}, "shape")):
            with self.subTest(said), self.assertRaisesRegex(ValueError, said):
                agreement.largest_difference(self.expected, made, {})


class DistanceTest(unittest.TestCase):
    def test_rounded_to_types_of_few_bits(self) -> None:
        # The first two are halfway between two bfloat16 values: ties round to even, once down and once up.
        tensor = np.array([[1 + 2.0**-8, 1 + 3 * 2.0**-8], [-1 - 2.0**-7, 1e-3]])
        expected = np.array([[1.0, 1 + 2.0**-6], [-1 - 2.0**-7, 0.00099945068359375]])
        np.testing.assert_array_equal(agreement.rounded(tensor, "bfloat16"), expected)
        self.assertEqual(agreement.rounded(np.array(1 / 3), "float16"), float(np.float16(1 / 3)))
        self.assertEqual(agreement.rounded(np.array(0.125), "bfloat16").shape, ())

    def test_distances_and_the_worst(self) -> None:
        expected = {"out": np.array([[3.0, 4.0]]), "d_bq": np.array([10.0]), "d_bk": np.array([0.0])}
        made = {"out": np.array([[3.0, 4.5]]), "d_bq": np.array([10.0]), "d_bk": np.array([2.0])}
        distances = agreement.relative_distances(expected, made, {"d_bk": "d_bq"})
        self.assertEqual(distances, {"out": 0.1, "d_bq": 0.0, "d_bk": 0.2})
        self.assertEqual(agreement.worst_distance(distances), (0.2, "d_bk"))
        made["out"][0, 0] = np.nan
        worst, tensor = agreement.worst_distance(agreement.relative_distances(expected, made, {"d_bk": "d_bq"}))
        self.assertEqual(tensor, "out")
        self.assertFalse(worst <= agreement.DISTANCE_TOLERANCE["bfloat16"])

    def test_types_of_few_bits_are_compared_by_distance(self) -> None:
        expected = {"out": np.array([3.0, 4.0])}
        made = {"out": np.array([3.0, 4.5])}
        self.assertEqual(agreement.worst(expected, made, {}, "bfloat16"), (0.1, "out", 1e-1))
        self.assertEqual(agreement.worst(expected, made, {}, "float32"), (0.125, "out", 1e-4))


class TensorsTest(unittest.TestCase):
    """A layer has the program's tensors, and converting them to the frameworks' layouts and back is lossless."""

    def test_of_both_programs(self) -> None:
        for path, tensors in ((BERT, bert_tensors), (ROOT / "models/mha.py", mha_tensors)):
            with self.subTest(path.stem):
                sizes = program.sizes_of(path.read_text(), ["tiny"])
                drawn = tensors.draw(sizes, 3)
                shapes = load_program(path, "tiny").shapes
                given = {name: tensor.shape for name, tensor in drawn.items() if name != "d_out"}
                self.assertEqual({name: tuple(shape or ()) for name, shape in shapes.items()}, given)
                roles = tensors.to_roles(drawn)
                self.assertEqual(roles["qkv.weight"].shape, (3 * sizes["I"], sizes["I"]))
                for name, tensor in tensors.from_roles(roles, sizes).items():
                    np.testing.assert_array_equal(tensor, drawn[name], name)
                self.assertEqual(set(tensors.INPUTS) - set(drawn), set())
                x = drawn[tensors.INPUTS[0]]
                self.assertEqual(tensors.to_torch_layout(x).shape, (sizes["B"], sizes["J"], sizes["I"]))
                np.testing.assert_array_equal(tensors.from_torch_layout(tensors.to_torch_layout(x)), x)
                self.assertTrue(np.any(tensors.draw(sizes, 4)["wq"] != drawn["wq"]))


class GpuReportTest(unittest.TestCase):
    rounds = {
        "Millrace": [{"graph": RoundTime(2e-4, 6e-4, 8e-4 + 1e-5 * k)} for k in range(3)],
        "torch": [gpu_report.round_of({"called": [1e-3, 3e-3], "one_thread": [1e-3, 2e-3],
                                       "graph": [4e-4, 1.6e-3 + 2e-5 * k]}) for k in range(3)],
        "JAX": [gpu_report.round_of({"called": [5e-4, 1.2e-3]}) for _ in range(3)],
    }

    def test_backward_is_the_rest_of_a_step(self) -> None:
        self.assertEqual(gpu_report.round_of({"graph": [1.0, 3.5]}), {"graph": RoundTime(1.0, 2.5, 3.5)})

    def test_rows(self) -> None:
        base, steps = gpu_report.base_times(self.rounds, "Millrace")
        rows = {row["name"]: row for row in gpu_report.contestant_rows(self.rounds, steps, {"JAX": "less dropout"})}
        self.assertEqual(base, "Millrace")
        self.assertNotIn("called", rows["Millrace"])
        self.assertNotIn("graph", rows["JAX"])
        self.assertAlmostEqual(rows["torch"]["graph"]["step_ratio"]["low"], 2.0)
        self.assertAlmostEqual(rows["torch"]["graph"]["step_ratio"]["high"], 2.0)
        self.assertAlmostEqual(rows["JAX"]["called"]["step_ratio"]["median"], 1.2e-3 / 8.1e-4)
        self.assertEqual(rows["JAX"]["note"], "less dropout")

    def test_without_millrace_the_fastest_is_the_base(self) -> None:
        others = {name: times for name, times in self.rounds.items() if name != "Millrace"}
        self.assertEqual(gpu_report.base_times(others, "Millrace")[0], "JAX")

    def test_table(self) -> None:
        base, steps = gpu_report.base_times(self.rounds, "Millrace")
        rows = gpu_report.contestant_rows(self.rounds, steps, {"JAX": "less dropout"})
        lines = gpu_report.table(rows, base, {"flash": "no kernel"}).splitlines()
        self.assertEqual(len(set(map(len, lines[:4]))), 1, "the columns are not aligned")
        self.assertEqual(lines[1].split(), ["Millrace", "-", "-", "-", "200.0", "600.0", "810.0", "[800.0,", "820.0]",
                                            "-", "1.000"])
        self.assertEqual(lines[2].split()[:5], ["torch", "1000.0", "3000.0", "2000.0", "400.0"])
        called = ["JAX", "500.0", "1200.0", "-", "-", "-", "-", "[1200.0,", "1200.0]", "1.481", "-"]
        self.assertEqual(lines[3].split(), called)
        self.assertEqual(lines[4:], ["flash: did not run: no kernel", "JAX: less dropout", "base: Millrace's step"])

    def test_agreement_table(self) -> None:
        judged = {"name": "torch", "result_distance": 4e-4, "worst_distance": 0.5, "worst_tensor": "d_b1",
                  "agrees": False}
        lines = gpu_report.agreement_table([judged, {"name": "JAX", "error": "no jax"}]).splitlines()
        self.assertEqual(lines[1].split(), ["torch", "4.0e-04", "5.0e-01", "d_b1", "NO"])
        self.assertEqual(lines[2], "JAX: not compared: no jax")

    def test_file_name(self) -> None:
        self.assertEqual(gpu_report.file_name("NVIDIA H200", ["large"], "float16"), "compare-h200-large-float16.json")
        self.assertEqual(gpu_report.file_name("NVIDIA H200", ["large", "B=1"], "float32"),
                         "compare-h200-large-b-1-float32.json")


class ContestantsTest(unittest.TestCase):
    def test_names_are_distinct_and_chosen_by_parts_of_them(self) -> None:
        for model in contestants.CONTESTANTS:
            names = [one.name for one in contestants.chosen(model, None)]
            self.assertEqual(len(names), len(set(names)))
            compiled = [one.name for one in contestants.chosen(model, ["COMPILE", "flash"])]
            self.assertTrue(compiled and all("compile" in name or "flash" in name for name in compiled))

    def test_a_specification_is_json(self) -> None:
        made = contestants.REFERENCE.specification(model="bert", sizes={"B": 2}, dtype="float64")
        self.assertEqual(json.loads(json.dumps(made)), made)


class Echo:
    """Stands in for a contestant."""

    def __init__(self, specification: dict):
        if specification.get("broken"):
            raise RuntimeError("it is\nbroken")

    def round(self) -> dict:
        return {"called": [1.0, 2.0]}

    def prepare(self) -> dict:
        raise ValueError("no kernel")


class WorkerTest(unittest.TestCase):
    def answers(self, specification: dict, *requests: str) -> list[dict]:
        written = []
        printed = mock.patch("builtins.print", lambda text, **_: written.append(text))
        with mock.patch("traceback.print_exception"), printed:
            worker.serve(specification, iter(requests), None, Echo)
        return [json.loads(line) for line in written]

    def test_a_failure_is_an_answer_and_the_next_request_is_taken(self) -> None:
        answers = self.answers({}, '{"do": "prepare"}', '{"do": "round"}', '{"do": "dance"}', "{")
        self.assertEqual(answers[:3], [{"failed": "ValueError: no kernel"}, {"done": {"called": [1.0, 2.0]}},
                                       {"failed": "ValueError: unknown request 'dance'"}])
        self.assertIn("JSONDecodeError", answers[3]["failed"])

    def test_a_failed_construction_is_reported(self) -> None:
        self.assertEqual(self.answers({"broken": True}, '{"do": "round"}'), [{"failed": "RuntimeError: it is broken"}])


class WorkerPeerTest(unittest.TestCase):
    """A script replaces the worker."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def peer(self, body: str) -> WorkerPeer:
        script = self.folder / "worker.py"
        script.write_text(f"import sys, json, time, os\n{textwrap.dedent(body)}")
        made = WorkerPeer({"name": "echo"}, self.folder / "log", {"MARK": "here"}, worker=script)
        self.addCleanup(made.stop)
        return made

    def test_requests_and_answers(self) -> None:
        peer = self.peer("""
            for line in sys.stdin:
                request = json.loads(line)
                answer = {"done": [request["do"], json.loads(sys.argv[1])["name"], os.environ["MARK"]]}
                print(json.dumps({"failed": "why"} if request["do"] == "fail" else answer), flush=True)
        """)
        self.assertEqual(peer.ask({"do": "round"}, 20), ["round", "echo", "here"])
        with self.assertRaisesRegex(WorkerFailed, "^why$"):
            peer.ask({"do": "fail"}, 20)
        self.assertEqual(peer.ask({"do": "again"}, 20)[0], "again")

    def test_a_worker_that_ends_is_reported_with_its_last_line(self) -> None:
        peer = self.peer("sys.stdin.readline(); print('out of\\nmemory', file=sys.stderr); sys.exit(7)")
        for _ in range(2):
            with self.assertRaisesRegex(WorkerFailed, "ended with 7: memory"):
                peer.ask({"do": "round"}, 20)

    def test_a_worker_that_does_not_answer_is_killed(self) -> None:
        peer = self.peer("time.sleep(60)")
        with self.assertRaisesRegex(WorkerFailed, "no answer within"):
            peer.ask({"do": "round"}, 0.2)
        self.assertNotEqual(peer.process.wait(10), 0)


class GpuComparisonTest(unittest.TestCase):
    def comparison(self, part: str, folder: str, **more) -> gpu_comparison.GpuComparison:
        options = argparse.Namespace(**{
            "size": ["large", "B=2"], "dtype": "float16", "dropout": 0.1, "only": None, "plans": None, "plan": None,
            "attention_plan": None, "millrace": "millrace", "budget": "9s", "attention_budget": "7s",
            "torch_budget": "1s", "rounds": 3, **more})
        return gpu_comparison.GpuComparison(options, part, Path(folder), gpu_comparison.Clock(10))

    def test_arguments_of_millrace(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            layer, attention = (self.comparison(part, folder) for part in ("layer", "attention"))
            command = " ".join(layer.timed_millrace().optimize)
            self.assertIn("bench/programs/bert_encoder.py --dtype float16 --budget 9s", command)
            self.assertIn("--size large --size B=2 --device cuda", command)
            self.assertIn(f"--out {folder}/bert-large-B2-float16-p0.1", command)
            command = " ".join(attention.timed_millrace().optimize)
            self.assertIn("--budget 7s", command)
            self.assertIn("--size B=2 --size J=512 --size K=512", command)
            without = attention.millrace(0.0, "3s").optimize[1]
            self.assertEqual(Path(without).parent, Path(folder, "dropout_0"))
            self.assertIn("dropout(softmax(beta), 0.0)", Path(without).read_text())
            given = self.comparison("layer", folder, plan=Path("kept/plan")).timed_millrace()
            self.assertEqual(given.plan, "kept/plan/plan.json")

    def test_benchmark_programs_are_the_models_with_other_axes(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for part in ("layer", "attention"):
                comparison = self.comparison(part, folder, size=["odd", "W=3", "I=3"], dtype="float64")
                model = (gpu_comparison.MODEL_FOLDER / gpu_comparison.FILES[comparison.model]).read_text()
                for chosen in ([], ["tiny"], ["odd"], ["base"], ["large"], ["b96"]):
                    self.assertEqual(program.sizes_of(comparison.text, chosen), program.sizes_of(model, chosen))
                tensors = comparison.tensors.draw(comparison.sizes)
                own = program.transposed(tensors, model, comparison.text, comparison.tensors.LIKE)
                for name, tensor in safetensors_io.read(comparison.in_millraces_order(tensors)).items():
                    np.testing.assert_array_equal(tensor, own[name].astype("float32"), err_msg=name)
                self.assertNotEqual(own["wq"].shape, tensors["wq"].shape)
                expected = self.reference(folder, model, comparison.chosen_sizes, tensors)
                found = self.reference(folder, comparison.text, comparison.chosen_sizes, own)
                found = program.transposed(found, comparison.text, model, comparison.tensors.LIKE)
                self.assertEqual(expected.keys(), found.keys())
                self.assertIn("d_wo", found)
                for name, tensor in expected.items():
                    np.testing.assert_allclose(found[name], tensor, rtol=1e-9, atol=1e-12, err_msg=name)

    def reference(self, folder: str, text: str, sizes: list[str], tensors: dict) -> dict:
        """The reference results of a program without dropout."""
        path, given, made = (Path(folder, name) for name in ("p.py", "in.safetensors", "out.safetensors"))
        path.write_text(program.with_dropout(text, 0.0))
        millrace_peer.safetensors_io.write(given, tensors)
        chosen = [part for size in sizes for part in ("--size", size)]
        subprocess.run([BINARY, "run", path, *chosen, "--dtype", "float64", "--in", given, "--out", made],
                       check=True, capture_output=True)
        return millrace_peer.safetensors_io.read(made)

    def test_a_contestant_that_fails_in_a_round_is_left_out(self) -> None:
        with tempfile.TemporaryDirectory() as folder, mock.patch("peers.gpu_comparison.say"):
            comparison = self.comparison("layer", folder)
            taken = {"good": 0, "bad": 0}

            def turn(name: str):
                taken[name] += 1
                if name == "bad" and taken[name] == 2:
                    raise WorkerFailed("it fell over")
                return {"graph": RoundTime(1, 2, 3)}

            rounds = comparison.take_turns({name: lambda name=name: turn(name) for name in taken})
        self.assertEqual({name: len(times) for name, times in rounds.items()}, {"good": 3})
        self.assertEqual(comparison.failures, {"bad": "WorkerFailed: it fell over"})

    def test_success(self) -> None:
        ran = {"did_not_run": {}, "contestants": [{}], "agreement": [{"name": "Millrace", "agrees": True}]}
        self.assertTrue(gpu_comparison.succeeded({"layer": ran | {"did_not_run": {"JAX": "no"}}}))
        self.assertTrue(gpu_comparison.succeeded({"layer": ran | {"agreement": [{"name": "JAX", "error": "no jax"}]}}))
        self.assertFalse(gpu_comparison.succeeded({"layer": ran | {"did_not_run": {"Millrace": "no"}}}))
        self.assertFalse(gpu_comparison.succeeded({"layer": ran | {"agreement": [{"name": "x", "agrees": False}]}}))
        self.assertFalse(gpu_comparison.succeeded({"layer": ran | {"agreement": [{"name": "Millrace", "error": "x"}]}}))


class MillracePeerTest(unittest.TestCase):
    """A script replaces Millrace."""

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
        printed = '{"schema_version": 2, "forward_seconds": 1, "backward_seconds": 2, "step_seconds": {"median": 3.5}}'
        peer = self.peer(f"echo \"$@\" >> {log}\ncase $1 in bench) echo '{printed}';; run) cp \"$4\" \"$6\";; esac")
        peer.prepare()
        self.assertEqual(peer.round(), RoundTime(1, 2, 3.5))
        peer.take_inputs(Path("given.safetensors"))
        peer.round()
        tensors = {"x": np.arange(6.0).reshape(2, 3).T, "y": np.array(0.5)}
        made = peer.results(tensors)
        for name, tensor in tensors.items():
            np.testing.assert_array_equal(made[name], tensor)
        self.assertEqual(safetensors_io.read(peer.folder / "in.safetensors")["x"].dtype, np.float32)
        plan = self.folder / "plan"
        self.assertEqual(log.read_text().splitlines(), [
            f"optimize {BERT} --dtype float32 --budget 5s --out {plan} --size base --size B=2",
            f"bench {plan}/plan.json --json",
            f"bench {plan}/plan.json --json --in given.safetensors",
            f"run {plan}/plan.json --in {plan}/in.safetensors --out {plan}/out.safetensors",
        ])

    def test_failures_quote_the_output(self) -> None:
        with self.assertRaisesRegex(millrace_peer.MillraceFailed, "optimize .* exit 3: no such device"):
            self.peer("echo no such device >&2; exit 3").prepare()
        for printed in ("", "{}", '{"schema_version": 1}', "[]"):
            with self.subTest(printed), self.assertRaisesRegex(millrace_peer.MillraceFailed, "invalid report"):
                self.peer(f"echo '{printed}'").round()


class EnvironmentTest(unittest.TestCase):
    def test_install_commands(self) -> None:
        self.assertEqual(environment.install_commands(["pip"], "aarch64", None), [["pip", "torch", "numpy"]])
        from_index, from_pypi = environment.install_commands(["pip"], "x86_64", "2.10.0")
        self.assertEqual(from_pypi, ["pip", "torch==2.10.0", "numpy"])
        self.assertEqual(from_index[: len(from_pypi) + 2], [*from_pypi, "--index-url", environment.CPU_INDEX])

    def test_does_not_wait_for_calm_by_default(self) -> None:
        with mock.patch("time.sleep") as sleep:
            environment.wait_for_calm(0)
        sleep.assert_not_called()
        busy, total = environment.busy_and_total()
        self.assertTrue(0 < busy < total)


if __name__ == "__main__":
    unittest.main()
