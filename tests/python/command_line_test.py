"""Tests what the command line itself does: help, errors as text and JSON, quiet and verbose, files of another kind."""

import json
import re
import unittest

from command_test_case import CommandTest, NO_CONFIGURATION, ROOT, WRONG_USAGE

ON_A_GPU = {"relative_clock", "idle_gapped_step_seconds"}  # keys that only a GPU has
LAYER = """
B, I, O = 4, 8, 8

def layer(x: float32[B, I], w: float32[O, I]):
    return relu(np.einsum("bi,oi->bo", x, w))
"""


class CommandLineTest(CommandTest):
    programs = {"layer": LAYER}

    def test_without_a_command_it_prints_the_help(self) -> None:
        self.assertEqual(self.succeed(), self.succeed("--help"))
        self.assertEqual(self.succeed(), self.succeed("help"))
        self.assertEqual(self.succeed("db"), self.succeed("help", "db"))
        self.assertEqual(self.succeed("help", "db", "list"), self.succeed("db", "list", "-h"))
        self.assertEqual({self.succeed(one) for one in ("version", "-V", "--version")}, {self.succeed("version")})

    def test_examples_are_those_of_the_command(self) -> None:
        for names in (("db", "list"), ("db", "export"), ("db", "import"), ("db", "merge"), ("cache", "show"), ("cache", "clean")):
            self.assertIn(f"Examples:\n  millrace {' '.join(names)}", self.succeed("help", *names))

    def test_options_before_the_command(self) -> None:
        self.assertEqual(self.succeed("-q", "analyze", "layer.py"), self.succeed("analyze", "layer.py"))
        self.assertIn("write options after it: millrace analyze --size", self.fails(WRONG_USAGE, "--size", "analyze", "layer.py"))

    def test_a_file_may_have_the_name_of_a_command(self) -> None:
        (self.folder / "run").write_text(LAYER)
        self.assertIn("relu", self.succeed("analyze", "run"))

    def test_errors_as_json(self) -> None:
        for code, *arguments in (
            (WRONG_USAGE, "analyze", "--json"),
            (WRONG_USAGE, "analyze", "layer.py", "--jsno", "--json"),
            (WRONG_USAGE, "optimise", "--json"),
            (WRONG_USAGE, "optimize", "layer.py", "--device", "gpu", "--json"),
            (WRONG_USAGE, "analyze", "layer.py", "--dtype", "fp16", "--json"),
            (WRONG_USAGE, "select", "layer.py", "--db", "/", "--json"),
            (NO_CONFIGURATION, "select", "layer.py", "--json"),
        ):
            with self.subTest(arguments=arguments):
                done = self.millrace(*arguments)
                self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
                error = json.loads(done.stderr)["error"]
                self.assertEqual(error["exit_code"], code)
                self.assertTrue(error["messages"][0]["message"])
        (self.folder / "wrong.py").write_text("def f(x: float32[4]):\n    return y\n")
        message = json.loads(self.millrace("analyze", "wrong.py", "--json").stderr)["error"]["messages"][0]
        self.assertEqual((message["file"], message["line"], message["column"]), ("wrong.py", 2, 12))

    def test_explain_as_json(self) -> None:
        told = json.loads(self.succeed("explore", "layer.py", "--explain", "--json"))
        text = self.succeed("explore", "layer.py", "--explain")
        total = sum(partition["candidates"] for partition in told["partitions"])
        self.assertIn(f"{len(told['partitions'])} partitions of layer, {total:,.0f} candidates", text)

    def test_quiet_and_verbose(self) -> None:
        self.assertEqual(self.millrace("select", "absent.py", "-q").stderr.count("error: "), 1)
        self.assertIn("parse: ", self.millrace("analyze", "layer.py", "--verbose").stderr)

    def test_control_characters_are_never_printed(self) -> None:
        evil = self.folder / "a\x1b[2Jb.py"
        evil.write_text("def f(x: float32[4]):\n    return y\n")
        done = self.millrace("analyze", evil.name)
        self.assertEqual(done.returncode, WRONG_USAGE)
        self.assertNotIn("\x1b", done.stderr)
        self.assertIn(r"a\x1b[2Jb.py:2:12: error:", done.stderr)
        self.assertNotIn("\x1b", self.millrace("analyze", "layer.py", "--\x1bx").stderr)


class StoredTest(CommandTest):
    """One folder with a plan and measurements, for all that needs them."""

    programs = {"layer": LAYER}

    def test_plans_measurements_and_the_cache(self) -> None:
        self.environment["MILLRACE_CACHE_DIR"] = str(self.folder / "cache")
        self.assertIn("no candidate of layer.py has been measured", self.fails(NO_CONFIGURATION, "db", "show", "layer.py"))
        self.explore()
        self.optimize()
        self.check_kinds()
        self.check_names()
        self.check_documented_json()
        self.clean()

    def explore(self) -> None:
        command = ("explore", "layer.py", "--budget", "2s", "--out", "m.json")
        done = self.millrace(*command, "-v")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("enumerating\n", done.stderr)
        self.assertRegex(done.stderr, r"\d+ partitions, [\d,]+ candidates besides layout conversions; ")
        self.assertEqual(self.millrace("optimize", "layer.py", "--budget", "1s", "--out", "my plan", "-q").stderr, "")

    def optimize(self) -> None:
        done = json.loads(self.succeed("optimize", "layer.py", "--budget", "1s", "--out", "my plan", "--json"))
        self.assertTrue(done["replaced"])
        self.assertEqual(done["launches"], self.launches_of_plan())
        text = self.succeed("optimize", "layer.py", "--budget", "1s", "--out", "my plan")
        self.assertIn("The plan is in my plan/, in place of the plan that was there.", text)
        self.assertIn("millrace bench 'my plan' ", text)
        self.assertIn(f" into {self.launches_of_plan()} launches, ", text)
        timed = json.loads(self.succeed("bench", "my plan", "--seconds", "0.05", "--json"))
        self.assertEqual(len(timed["launches"]), self.launches_of_plan())

    def launches_of_plan(self) -> int:
        return len(json.loads((self.folder / "my plan/plan.json").read_text())["launches"])

    def check_kinds(self) -> None:
        for expected, *arguments in (
            ("'layer.py' is a program, and a plan is needed here\n  make a plan of it: millrace optimize layer.py",
             "bench", "layer.py"),
            ("'my plan' is a plan, and a program is needed here", "analyze", "my plan"),
            ("or report 'my plan'", "optimize", "my plan"),
            ("'my plan/plan.json' is a plan, and a program is needed here", "fuse", "my plan/plan.json"),
            ("'my plan/plan.json' is a plan, and measurements are needed here", "select", "my plan/plan.json"),
            ("'m.json' is measurements, and a plan is needed here", "bench", "m.json"),
            ("'m.json' is measurements, and a program is needed here", "analyze", "m.json"),
        ):
            with self.subTest(arguments=arguments):
                self.assertIn(expected, self.fails(WRONG_USAGE, *arguments))

    def check_names(self) -> None:
        listed = json.loads(self.succeed("db", "list", "--json"))
        self.assertEqual([one["program"] for one in listed["programs"]], ["layer.py"])
        self.assertGreater(listed["programs"][0]["rows"], 0)
        self.assertIn("layer.py", self.succeed("db", "list"))
        self.assertRegex(self.succeed("db", "show", "layer.py"), "GEMM|loops")
        self.assertRegex(self.succeed("select", "layer.py"), "GEMM|loops")
        self.assertTrue(json.loads(self.succeed("db", "show", "layer.py", "--json"))["partitions"])

    def check_documented_json(self) -> None:
        """Every key of the first level is in the table of docs/command-line.md, and every key of the table is printed."""
        rows = re.findall(r"(?m)^\| (`[a-z].*?) \| (.*) \|$", (ROOT / "docs/command-line.md").read_text().split("**Results as JSON.**")[1])
        documented = {}
        for commands, keys in rows:
            for command in re.findall("`(.*?)`", commands):
                documented[command] = set(re.findall("`([a-z_]+)`", keys)) - ON_A_GPU
        self.succeed("db", "export", "rows.jsonl")
        for command, *arguments in (
            ("version",), ("analyze", "layer.py"), ("fuse", "layer.py"), ("run", "layer.py"),
            ("explore", "layer.py", "--budget", "1s"), ("explore --explain", "layer.py"), ("select", "layer.py"),
            ("optimize", "layer.py", "--budget", "1s", "--out", "my plan"), ("bench", "my plan", "--seconds", "0.05"),
            ("report", "my plan", "--out", "r.html"), ("doctor",), ("db list",), ("db show", "layer.py"),
            ("db import", "rows.jsonl"), ("db merge", "data/measurements.db"), ("db prune", "--refused", "--dry-run"),
            ("cache show",),
        ):
            with self.subTest(command=command):
                printed = json.loads(self.succeed(*command.split(), *arguments, "--json"))
                self.assertEqual(set(printed) - {"schema_version"}, documented[command])
                self.assertNotRegex(json.dumps(printed), r"_?(candidates|tried|words|launches)\": \d+\.0\b")

    def test_a_folder_with_control_characters(self) -> None:
        folder = str(self.folder / "a\x1b[31m\nb")
        self.assertIn("a\\x1b[31m\\nb", self.succeed("cache", "show", MILLRACE_CACHE_DIR=folder))

    def clean(self) -> None:
        cache = self.folder / "cache"
        other = [cache / "plans" / "kept", cache / "k_not_a_kernel.so", cache / "notes.txt"]
        for file in other:
            file.parent.mkdir(exist_ok=True)
            file.write_text("")
        self.assertGreater(json.loads(self.succeed("cache", "show", "--json"))["files"], 0)
        self.assertIn("deleted from", self.succeed("cache", "clean"))
        self.assertEqual(json.loads(self.succeed("cache", "show", "--json"))["files"], 0)
        self.assertTrue(all(file.exists() for file in other))
        self.succeed("bench", "my plan", "--seconds", "0.05")


if __name__ == "__main__":
    unittest.main()
