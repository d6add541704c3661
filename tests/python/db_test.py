"""Tests `millrace db`: where the database is, its output, and the exit codes."""

import json
import os
import sqlite3
import stat
import subprocess
import tempfile
import unittest
from pathlib import Path

from command_test_case import BINARY
DONE, FAILED, WRONG_USAGE = 0, 1, 2


def row(candidate: str, **changes) -> dict:
    made = {
        "schema_version": 2, "device": "H200 ± driver 1", "partition": "softmax[4,8]", "candidate": candidate,
        "outcome": "measured", "seconds": 0.001, "low": 0.0009, "high": 0.0011, "samples": 30, "detail": "",
        "when": "2024-05-31T23:59:59Z",
    }
    return {**made, **changes}


def lines(*rows: dict) -> str:
    return "".join(json.dumps(one, ensure_ascii=False, separators=(",", ":")) + "\n" for one in rows)


class DbTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.environment = {**os.environ, "MILLRACE_DATA_DIR": str(self.folder / "data" / "millrace")}
        self.database = self.folder / "data" / "millrace" / "measurements.db"

    def millrace(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [BINARY, *arguments], cwd=self.folder, env={**self.environment, **environment},
            capture_output=True, text=True, timeout=60,
        )

    def db(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        return self.millrace("db", *arguments, **environment)

    def succeed(self, *arguments: str, **environment: str) -> str:
        done = self.db(*arguments, **environment)
        self.assertEqual((done.returncode, done.stderr), (DONE, ""))
        return done.stdout

    def fails(self, code: int, *arguments: str, **environment: str) -> str:
        done = self.db(*arguments, **environment)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertIn("error: ", done.stderr)
        return done.stderr

    def import_rows(self, *rows: dict, name: str = "rows.jsonl") -> dict:
        (self.folder / name).write_text(lines(*rows))
        return json.loads(self.succeed("import", name, "--json"))

    def test_before_anything_was_measured(self) -> None:
        self.assertIn("no measurements in", self.succeed("list"))
        self.assertEqual(json.loads(self.succeed("list", "--json"))["devices"], [])
        self.assertEqual(self.succeed("export"), "")
        self.assertFalse(self.database.parent.exists(), "list and export create nothing")
        self.assertIn("absent.db", self.fails(WRONG_USAGE, "list", "--db", "absent.db"))

    def test_import_and_export(self) -> None:
        rows = [row("a"), row("b", outcome="wrong", seconds=0.0, low=0.0, high=0.0, samples=0, detail="d_x[1] is NaN")]
        merged = self.import_rows(*reversed(rows))
        self.assertEqual(merged, {"schema_version": 2, "added": 2, "replaced": 0, "kept": 0, "known": 0})
        self.assertEqual(self.import_rows(*rows)["known"], 2)
        self.assertEqual([json.loads(line) for line in self.succeed("export").splitlines()], rows)
        self.assertEqual(self.succeed("export", "out.jsonl"), "2 rows written to out.jsonl\n")
        self.assertEqual((self.folder / "out.jsonl").read_text(), self.succeed("export"))
        for path, mode in ((self.database, 0o600), (self.database.parent, 0o700), (self.database.parents[1], 0o700)):
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), mode, path)

    def test_list(self) -> None:
        self.import_rows(row("a"), row("b", outcome="hung"), row("a", device="CPU\x1b[31m\nlong " + "x" * 300))
        text = self.succeed("list")
        self.assertNotIn("\x1b", text)
        self.assertLessEqual(max(len(line) for line in text.splitlines()[1:]), 100)
        device = json.loads(self.succeed("list", "--json"))["devices"][1]
        self.assertEqual((device["device"], device["rows"], device["partitions"]), ("H200 ± driver 1", 2, 1))
        self.assertEqual((device["outcomes"]["measured"], device["outcomes"]["hung"]), (1, 1))

    def test_a_bad_line_is_named_and_nothing_imported(self) -> None:
        (self.folder / "bad.jsonl").write_text(lines(row("a"), row("b", seconds=-1.0), row("c", outcome="good")))
        message = self.fails(WRONG_USAGE, "import", "bad.jsonl")
        self.assertIn("bad.jsonl:2:1: error: ", message)
        self.assertIn("bad.jsonl:3:1: error: ", message)
        self.assertEqual(self.succeed("export"), "")

    def test_merge(self) -> None:
        self.import_rows(row("a"), row("b"))
        (self.folder / "rows.jsonl").write_text(lines(row("b", when="2025-01-01T00:00:00Z", samples=31), row("c")))
        self.succeed("import", "rows.jsonl", "--db", "other.db")
        self.assertIn("1 rows added, 1 replaced", self.succeed("merge", "other.db"))
        samples = [json.loads(line)["samples"] for line in self.succeed("export").splitlines()]
        self.assertEqual(samples, [30, 31, 30])
        self.assertIn("no-such.db", self.fails(WRONG_USAGE, "merge", "no-such.db"))

    def test_merge_of_several(self) -> None:
        for name in ("a", "b", "c"):
            (self.folder / "rows.jsonl").write_text(lines(row(name)))
            self.succeed("import", "rows.jsonl", "--db", f"{name}.db")
        merged = json.loads(self.succeed("merge", "a.db", "b.db", "c.db", "b.db", "--db", "all.db", "--json"))
        self.assertEqual(merged, {"schema_version": 2, "added": 3, "replaced": 0, "kept": 0, "known": 1})

    def test_a_damaged_database_says_how_to_recover(self) -> None:
        self.import_rows(*(row(f"candidate {k}") for k in range(500)))
        with sqlite3.connect(self.database) as connection:
            connection.execute("UPDATE measurement SET seconds = 1e-9 WHERE id = 7")
        connection.close()
        message = self.fails(FAILED, "list")
        self.assertIn("millrace db export", message)
        saved = self.db("export", "rows.jsonl")
        self.assertEqual((saved.returncode, saved.stdout), (DONE, "499 rows written to rows.jsonl\n"))
        self.assertRegex(saved.stderr, "499 rows of .* could be recovered")
        self.database.rename(self.folder / "damaged.db")
        self.assertIn("499 rows added", self.succeed("import", "rows.jsonl"))

    def test_a_database_without_a_readable_row(self) -> None:
        self.import_rows(row("a"))
        self.database.write_bytes(self.database.read_bytes()[:4096])
        message = self.fails(FAILED, "export")
        self.assertIn("is damaged", message)
        self.assertIn("move it away", message)

    def test_where_the_database_is(self) -> None:
        (self.folder / "rows.jsonl").write_text(lines(row("a")))
        for environment, path in (
            ({"MILLRACE_DATA_DIR": "", "XDG_DATA_HOME": str(self.folder / "xdg")}, "xdg/millrace"),
            ({"MILLRACE_DATA_DIR": "", "XDG_DATA_HOME": "", "HOME": str(self.folder)}, ".local/share/millrace"),
        ):
            self.succeed("import", "rows.jsonl", **environment)
            self.assertTrue((self.folder / path / "measurements.db").exists(), path)
        nowhere = {"MILLRACE_DATA_DIR": "", "XDG_DATA_HOME": "", "HOME": ""}
        self.assertIn("MILLRACE_DATA_DIR", self.fails(WRONG_USAGE, "list", **nowhere))
        (self.folder / "file").write_text("")
        self.assertIn("file", self.fails(FAILED, "import", "rows.jsonl", MILLRACE_DATA_DIR=str(self.folder / "file/x")))

    def test_a_file_that_cannot_be_opened_is_wrong_usage(self) -> None:
        (self.folder / "text.py").write_text("def f(): pass\n" * 100)
        (self.folder / "text.py").chmod(0o600)
        os.mkfifo(self.folder / "pipe")
        for arguments in (["list"], ["export"], ["prune", "--refused"]):
            with self.subTest(arguments=arguments):
                self.assertIn("text.py", self.fails(WRONG_USAGE, *arguments, "--db", "text.py"))
                self.fails(WRONG_USAGE, *arguments, "--db", ".")
                self.fails(WRONG_USAGE, *arguments, "--db", "absent/x.db")
                self.assertIn("not a plain file", self.fails(WRONG_USAGE, *arguments, "--db", "pipe"))

    def test_a_named_database_must_exist_to_be_read(self) -> None:
        (self.folder / "layer.py").write_text("def layer(x: float32[2, 3]):\n    return x + 1\n")
        for command in (["select"], ["report"], ["db", "show"]):
            with self.subTest(command=command):
                failed = self.millrace(*command, "layer.py", "--db", "absent.db")
                self.assertEqual(failed.returncode, WRONG_USAGE, failed.stderr)
                self.assertIn("cannot open the database 'absent.db'", failed.stderr)
        self.assertFalse((self.folder / "absent.db").exists())

    def test_prune(self) -> None:
        self.import_rows(row("a"), row("b", when="2023-01-01T00:00:00Z"), row("c", device="A100"))
        self.assertIn("1 row would be deleted", self.succeed("prune", "--before", "2024-01-01", "--dry-run"))
        self.assertEqual(len(self.succeed("export").splitlines()), 3)
        deleted = json.loads(self.succeed("prune", "--before", "2024-01-01", "--json"))
        self.assertEqual(deleted, {"schema_version": 2, "deleted": 1, "selected": 1})
        self.assertIn("1 row deleted from", self.succeed("prune", "--other-than", "H200"))
        self.assertEqual([json.loads(line)["candidate"] for line in self.succeed("export").splitlines()], ["a"])
        self.assertIn("all rows would be deleted", self.fails(WRONG_USAGE, "prune", "--other-than", "H20O"))
        for day in ("yesterday", "2024-13-01", "2024-1-1", "2024-01-01T00", "2024-02-30", "2023-02-29"):
            self.assertIn("invalid day", self.fails(WRONG_USAGE, "prune", "--before", day))

    def test_wrong_usage(self) -> None:
        for arguments in (["unknown"], ["merge"], ["prune"], ["show"], ["import"], ["list", "more"], ["export", "a", "b"]):
            with self.subTest(arguments=arguments):
                self.assertEqual(self.db(*arguments).returncode, WRONG_USAGE)

    def test_the_helps_examples_run(self) -> None:
        self.import_rows(row("a"))
        for line in self.succeed("--help").split("Examples:\n")[1].splitlines():
            if " show " not in line:  # needs a program that was measured
                self.succeed(*line.split()[2:])


if __name__ == "__main__":
    unittest.main()
