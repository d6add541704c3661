"""Base class for tests of the `millrace` command: each test has its own folder, data and cache."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("MILLRACE") or str(ROOT / "build/release/millrace")
EMULATED_GPU = os.environ.get("MILLRACE_EMULATED_GPU") or str(ROOT / "build/release/tests/libmillrace_emulated_gpu.so")
DONE, FAILED, WRONG_USAGE, UNAVAILABLE, NO_CONFIGURATION = range(5)


def long(test):
    """Marks tests that only `./millrace test --long` runs."""
    test.is_long = True
    return test


class CommandTest(unittest.TestCase):
    programs: dict[str, str] = {}  # texts of the programs in the folder, by name
    seconds = 120  # time limit of a command

    @classmethod
    def setUpClass(cls) -> None:
        # Tests share compiled kernels.
        cls.shared = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.shared.cleanup)

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name, text in self.programs.items():
            (self.folder / f"{name}.py").write_text(text)
        self.environment = {
            **os.environ,
            "MILLRACE_DATA_DIR": str(self.folder / "data"),
            "MILLRACE_CACHE_DIR": str(Path(self.shared.name) / "cache"),
        }

    def millrace(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [BINARY, *arguments], cwd=self.folder, env={**self.environment, **environment}, capture_output=True,
            text=True, timeout=self.seconds,
        )

    def succeed(self, *arguments: str, **environment: str) -> str:
        done = self.millrace(*arguments, **environment)
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.check_messages(done.stderr)
        return done.stdout

    def check_messages(self, messages: str) -> None:
        """Checks the messages of a command that succeeded."""

    def fails(self, code: int, *arguments: str, **environment: str) -> str:
        """Checks that the command fails with the code and an error message, and prints no data; returns the message."""
        done = self.millrace(*arguments, **environment)
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        self.assertEqual(done.stdout, "", "printed data although it failed")
        self.assertIn("error: ", done.stderr)
        return done.stderr

    def rows(self) -> list[dict]:
        return [json.loads(line) for line in self.succeed("db", "export").splitlines()]
