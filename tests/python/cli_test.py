"""Tests the `millrace` command: exit codes, standard output and error, formats, files.

The command is $MILLRACE, or build/release/millrace.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

import safetensors_io
from command_test_case import BINARY, ROOT
from numpy_program import load_program

MODELS = sorted((ROOT / "models").glob("*.py"))
DONE, WRONG_USAGE, UNAVAILABLE = 0, 2, 3
# Their examples measure or need plans. db_test.py, optimize_test.py and report_test.py test these commands.
ELSEWHERE = {"db", "cache", "explore", "select", "optimize", "bench", "report", "completion"}

PROGRAM = """
A = 3
SIZES = {"tiny": {"A": 2}}


def layer(x: float64[A, 4], w: float64[4], s: float64):
    y = s * x * w
    return y, np.sum(x, axis=0)
"""


def millrace(*arguments: str, cwd: Path = ROOT, **options) -> subprocess.CompletedProcess:
    return subprocess.run([BINARY, *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, **options)


class CliTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.program = self.folder / "layer.py"
        self.program.write_text(PROGRAM)

    def succeed(self, *arguments: str) -> str:
        done = millrace(*arguments, cwd=self.folder)
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(done.stderr, "", "unexpected messages")
        return done.stdout

    def fails(self, code: int, *arguments: str) -> str:
        """Checks that the command fails with the code and a message, and prints no data; returns the message."""
        done = millrace(*arguments, cwd=self.folder)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "", "printed data although it failed")
        self.assertNotEqual(done.stderr, "")
        return done.stderr


class UsageTest(CliTest):
    def test_wrong_usage_is_2(self) -> None:
        for arguments in (
            ["unknown"], ["analyze"], ["analyze", "layer.py", "--unknown"], ["--unknown"],
            ["analyze", "layer.py", "--json", "--dot"], ["analyze", "layer.py", "more.py"],
            ["analyze", "layer.py", "--fast-memory", "0"], ["analyze", "layer.py", "--fast-memory", "much"],
            ["run", "layer.py", "--seed", "one"], ["run", "layer.py", "--seed", "-1"],
            ["run", "layer.py", "--step", "-1"], ["run"],
        ):
            with self.subTest(arguments=arguments):
                self.fails(WRONG_USAGE, *arguments)

    def test_bad_input_is_2(self) -> None:
        Path(self.folder, "wrong.py").write_text("def f(x: float32[4]):\n    return y\n")
        message = self.fails(WRONG_USAGE, "analyze", "wrong.py")
        self.assertTrue(message.startswith("wrong.py:2:12: error: unknown name 'y'\n"), message)
        self.assertIn("absent.py", self.fails(WRONG_USAGE, "analyze", "absent.py"))
        self.assertIn("directory", self.fails(WRONG_USAGE, "analyze", "."))
        self.assertIn("float8", self.fails(WRONG_USAGE, "analyze", "layer.py", "--dtype", "float8"))
        self.fails(WRONG_USAGE, "run", "wrong.py")

    def test_an_unknown_device_is_2(self) -> None:
        self.assertIn("tpu", self.fails(WRONG_USAGE, "run", "layer.py", "--device", "tpu"))
        self.assertIn("tpu", self.fails(WRONG_USAGE, "optimize", "layer.py", "--device", "tpu"))

    def test_a_gpu_without_its_backend_is_3(self) -> None:
        with mock.patch.dict(os.environ, {"MILLRACE_CUDA_BACKEND": "/nowhere/libmillrace_cuda.so"}):
            self.assertIn("GPU backend", self.fails(UNAVAILABLE, "optimize", "layer.py", "--device", "cuda"))

    def test_a_full_disk_is_1(self) -> None:
        if not Path("/dev/full").exists():
            self.skipTest("no /dev/full")
        with open("/dev/full", "w") as full:
            done = subprocess.run([BINARY, "analyze", str(self.program)], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard output", done.stderr)

    def commands(self) -> list[str]:
        """The commands that the help lists."""
        lines = self.succeed("--help").split("Commands:\n")[1].split("\n\n")[0].splitlines()
        return [line.split()[0] for line in lines if line[2:3].strip()]

    def test_help_has_examples(self) -> None:
        self.assertIn("millrace analyze models/bert_encoder.py", self.succeed("--help"))
        self.assertLessEqual({"analyze", "run"}, set(self.commands()))
        for command in self.commands():
            text = self.succeed(command, "--help")
            self.assertIn(f"Examples:\n  millrace {command}", text)
            self.assertLessEqual(max(len(line) for line in text.splitlines()), 100)

    def test_examples_of_the_help_run(self) -> None:
        for command in self.commands():
            if command in ELSEWHERE:
                continue
            lines = self.succeed(command, "--help").split("Examples:\n")[1].splitlines()
            for line in lines:
                words = line.split("|")[0].split()
                if "--in" in words:
                    continue  # needs a file
                with self.subTest(line=line):
                    done = millrace(*words[1:])
                    self.assertEqual(done.returncode, DONE, done.stderr)

    def test_warnings_go_to_standard_error_and_into_json(self) -> None:
        Path(self.folder, "masked.py").write_text(
            "def layer(s: float16[2, 3], keep: float16[3]):\n    return softmax(s + (keep - 1) * 1e9)\n"
        )
        for command in ("analyze", "fuse", "run"):
            done = millrace(command, "masked.py", cwd=self.folder)
            self.assertEqual(done.returncode, DONE, done.stderr)
            self.assertTrue(done.stderr.startswith("masked.py:2:35: warning: 1e+09 is beyond the largest float16"))
            self.assertEqual(done.stderr.count("warning"), 1)
        found = json.loads(self.succeed("analyze", "masked.py", "--json"))["warnings"]
        self.assertEqual([(each["line"], each["column"]) for each in found], [(2, 35)])
        self.assertNotIn("warnings", json.loads(self.succeed("analyze", "layer.py", "--json")))

    def test_version(self) -> None:
        self.assertRegex(self.succeed("--version"), r"^\d+\.\d+\.\d+\n$")

    def test_sizes(self) -> None:
        tiny = json.loads(self.succeed("analyze", "layer.py", "--size", "tiny", "--json"))
        self.assertEqual(tiny["sizes"]["A"], 2)
        several = json.loads(self.succeed("analyze", "layer.py", "--size", "tiny,A=7", "--json"))
        self.assertEqual(several["sizes"]["A"], 7)
        again = json.loads(self.succeed("analyze", "layer.py", "--size", "tiny", "--size", "A=7", "--json"))
        self.assertEqual(again, several)

    def test_wrong_sizes_suggest_right_ones(self) -> None:
        self.assertIn("did you mean 'tiny'?", self.fails(WRONG_USAGE, "analyze", "layer.py", "--size", "tinny"))
        self.assertIn("(sets: tiny)", self.fails(WRONG_USAGE, "analyze", "layer.py", "--size", "enormous"))
        self.assertIn("did you mean 'A'?", self.fails(WRONG_USAGE, "analyze", "layer.py", "--size", "AA=4"))
        self.assertIn("not a positive integer", self.fails(WRONG_USAGE, "analyze", "layer.py", "--size", "A=few"))
        self.assertIn("functions: layer", self.fails(WRONG_USAGE, "analyze", "layer.py", "--entry", "other"))

    def test_timings_are_messages(self) -> None:
        done = millrace("analyze", "layer.py", "--timings", cwd=self.folder)
        self.assertEqual(done.returncode, DONE)
        self.assertEqual(done.stdout, self.succeed("analyze", "layer.py"))
        for stage in ("parse", "differentiate", "analyze"):
            self.assertRegex(done.stderr, rf"(?m)^{stage}: \d+(\.\d+)?(e-\d+)? ms$")


class FormatsTest(CliTest):
    def test_json_has_the_documented_schema(self) -> None:
        for path in MODELS:
            with self.subTest(model=path.stem):
                self.check_schema(json.loads(self.succeed("analyze", str(path), "--size", "tiny", "--json")))

    def check_schema(self, root: dict) -> None:
        self.assertEqual(root["schema_version"], 1)
        self.assertIsInstance(root["program"], str)
        names = [op["name"] for op in root["operators"]]
        self.assertEqual(len(names), len(set(names)), "names are not unique")
        for op in root["operators"]:
            self.assertIn(op["pass"], ("forward", "backward"))
            self.assertIn(op["class"], ("contraction", "normalization", "elementwise"))
            for count in ("flop", "input_words", "output_words", "io_lower_bound_words"):
                self.assertIsInstance(op[count], int)
                self.assertGreaterEqual(op[count], 0)
            distinct = {tensor["tensor"]: tensor["words"] for tensor in op["inputs"]}
            self.assertEqual(op["input_words"], sum(distinct.values()))
            self.assertEqual(op["output_words"], sum(tensor["words"] for tensor in op["outputs"]))
            for index in op["space"]:
                self.assertIn(index["kind"], ("independent", "reduced"))
                self.assertGreaterEqual(index["extent"], 1)
        totals = root["totals"]
        for count in ("flop", "input_words", "output_words", "io_lower_bound_words"):
            self.assertEqual(totals[count], sum(op[count] for op in root["operators"]))
            for split in ("by_class", "by_pass"):
                self.assertEqual(totals[count], sum(partition[count] for partition in totals[split].values()))
        self.assertEqual(set(totals["by_class"]), {"contraction", "normalization", "elementwise"})
        self.assertEqual(set(totals["by_pass"]), {"forward", "backward"})

    def test_tables_fit_100_columns(self) -> None:
        for path in MODELS:
            for size_set in [None, *load_program(path).function.__globals__["SIZES"]]:
                with self.subTest(model=path.stem, size=size_set):
                    text = self.succeed("analyze", str(path), *(["--size", size_set] if size_set else []))
                    self.assertIn("forward", text)
                    self.assertIn("backward", text)
                    for line in text.splitlines():
                        self.assertLessEqual(len(line), 100, line)
                        self.assertEqual(line, line.rstrip())

    def test_tables_fit_100_columns_with_long_names_and_large_sizes(self) -> None:
        name = "a_name_that_is_much_longer_than_any_column_should_be" * 2
        Path(self.folder, "long.py").write_text(
            f"A = 1048576\ndef f({name}: float32[A, A]):\n    {name}_2 = -{name}\n    return {name}_2 * 2\n"
        )
        for line in self.succeed("analyze", "long.py").splitlines():
            self.assertLessEqual(len(line), 100, line)

    def test_dot_is_a_graph_for_graphviz(self) -> None:
        nop = shutil.which("nop")
        if nop is None:
            self.skipTest("Graphviz is not installed")
        for path in MODELS:
            with self.subTest(model=path.stem):
                text = self.succeed("analyze", str(path), "--size", "tiny", "--dot")
                # Reads and prints the graph without placing its nodes, which takes minutes for a large one.
                done = subprocess.run([nop], input=text, capture_output=True, text=True, timeout=60)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertGreater(done.stdout.count("->"), 20)

    def test_dot_has_words_on_its_edges(self) -> None:
        text = self.succeed("analyze", "layer.py", "--dot")
        edges = [line for line in text.splitlines() if "->" in line]
        self.assertTrue(edges)
        for edge in edges:
            self.assertRegex(edge, r'label="')
        self.assertRegex(text.replace("\n", "\\n"), r'label="x\\n12"')

    def test_the_graph_shows_what_is_saved_for_backward(self) -> None:
        text = self.succeed("analyze", "layer.py", "--graph")
        self.assertTrue(text.startswith("program layer\nargument x: float64[A=3, 4]\n"), text)
        self.assertIn("kept for backward\n", text)

    def test_a_smaller_fast_memory_raises_the_bound(self) -> None:
        def bound(memory: str) -> int:
            text = self.succeed("analyze", str(MODELS[0]), "--json", "--fast-memory", memory)
            return json.loads(text)["totals"]["io_lower_bound_words"]

        self.assertLess(bound("50MiB"), bound("1KiB"))
        self.assertEqual(bound("1KiB"), bound("1024"))


class RunTest(CliTest):
    def arguments(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(1)
        return {"x": rng.standard_normal((3, 4)), "w": rng.standard_normal(4), "s": np.asarray(0.5)}

    def run_with(self, tensors: dict[str, np.ndarray]) -> subprocess.CompletedProcess:
        safetensors_io.write(self.folder / "in.safetensors", tensors)
        command = ["run", "layer.py", "--in", "in.safetensors", "--out", "out.safetensors"]
        return millrace(*command, cwd=self.folder)

    def test_round_trip(self) -> None:
        given = self.arguments()
        gradients = {"d_y": np.full((3, 4), 2.0), "d_result_1": np.arange(4.0)}
        done = self.run_with({**given, **gradients})
        self.assertEqual((done.returncode, done.stderr), (DONE, ""))
        made = safetensors_io.read(self.folder / "out.safetensors")
        self.assertEqual(set(made), {"y", "result_1", "d_x", "d_w"})
        x, w = given["x"], given["w"]
        np.testing.assert_allclose(made["y"], 0.5 * x * w, rtol=1e-15)
        np.testing.assert_allclose(made["result_1"], x.sum(axis=0), rtol=1e-14)
        np.testing.assert_allclose(made["d_x"], np.tile(0.5 * w * 2 + np.arange(4.0), (3, 1)), rtol=1e-14)
        np.testing.assert_allclose(made["d_w"], (0.5 * x * 2).sum(axis=0), rtol=1e-14)

    def test_gradients_of_results_are_drawn_when_left_out(self) -> None:
        self.assertEqual(self.run_with(self.arguments()).returncode, DONE)

    def test_without_a_file_tensors_are_drawn_from_the_seed(self) -> None:
        def drawn(name: str, *arguments: str) -> bytes:
            self.succeed("run", "layer.py", "--out", name, *arguments)
            return Path(self.folder, name).read_bytes()

        self.assertEqual(drawn("a", "--seed", "1"), drawn("b", "--seed", "1"))
        self.assertNotEqual(drawn("a", "--seed", "1"), drawn("b", "--seed", "2"))

    def test_the_step_changes_dropout_only(self) -> None:
        Path(self.folder, "drop.py").write_text(
            "def f(x: float64[64]):\n    return dropout(x, 0.5), np.exp(x)\n"
        )
        made = []
        for step in ("0", "1"):
            self.succeed("run", "drop.py", "--step", step, "--out", "o.safetensors")
            made.append(safetensors_io.read(self.folder / "o.safetensors"))
        self.assertTrue(np.any(made[0]["result_0"] != made[1]["result_0"]))
        np.testing.assert_array_equal(made[0]["result_1"], made[1]["result_1"])

    def test_json(self) -> None:
        root = json.loads(self.succeed("run", "layer.py", "--json"))
        self.assertEqual(root["schema_version"], 1)
        self.assertEqual([tensor["name"] for tensor in root["tensors"]], ["y", "result_1", "d_x", "d_w"])
        self.assertEqual(root["tensors"][0]["shape"], [3, 4])

    def expect_error(self, tensors: dict[str, np.ndarray], *partitions: str) -> None:
        done = self.run_with(tensors)
        self.assertEqual(done.returncode, WRONG_USAGE, done.stderr)
        self.assertEqual(done.stdout, "")
        for partition in ("in.safetensors", *partitions):
            self.assertIn(partition, done.stderr)
        self.assertFalse(Path(self.folder, "out.safetensors").exists())

    def test_a_missing_argument_is_named(self) -> None:
        tensors = self.arguments()
        del tensors["w"]
        self.expect_error(tensors, "argument 'w' is missing", "[4]")

    def test_a_wrong_shape_is_named(self) -> None:
        self.expect_error({**self.arguments(), "x": np.zeros((4, 3))}, "'x' has shape [4, 3]", "[3, 4]")
        self.expect_error({**self.arguments(), "d_y": np.zeros(4)}, "'d_y' has shape [4]", "[3, 4]")
        self.expect_error({**self.arguments(), "s": np.zeros(1)}, "'s' has shape [1]", "[]")

    def test_an_unknown_name_is_named(self) -> None:
        self.expect_error({**self.arguments(), "bias": np.zeros(4)}, "no argument 'bias'", "x, w, s, d_y, d_result_1")

    def test_all_errors_are_reported_at_once(self) -> None:
        self.expect_error({"x": np.zeros(4), "z": np.zeros(4)}, "'x' has shape", "'w' is missing", "'s' is missing", "'z'")

    def test_missing_files_and_files_that_are_not_safetensors(self) -> None:
        self.assertIn("absent", self.fails(WRONG_USAGE, "run", "layer.py", "--in", "absent"))
        self.assertIn("layer.py", self.fails(WRONG_USAGE, "run", "layer.py", "--in", "layer.py"))

    def test_an_output_that_cannot_be_written_is_1(self) -> None:
        self.assertIn("no/such/folder", self.fails(1, "run", "layer.py", "--out", "no/such/folder/o"))

    def test_a_program_too_large_for_the_reference_is_refused(self) -> None:
        Path(self.folder, "large.py").write_text("def f(x: float32[1099511627776]):\n    return -x\n")
        self.fails(WRONG_USAGE, "run", "large.py")


if __name__ == "__main__":
    unittest.main()
