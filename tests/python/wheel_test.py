"""Tests what a wheel contains: the files that CMake installs for it, next to the modules. Building a whole wheel takes
minutes; tests/scripts/check_packages.sh does it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from command_test_case import BINARY

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/scripts"))
import check_wheel  # noqa: E402  (the path above comes first)

ENTRY_POINTS = "\n\n".join(check_wheel.ENTRY_POINTS)


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        shutil.copytree(ROOT / "python/millrace", cls.folder / "millrace", ignore=shutil.ignore_patterns("__pycache__"))
        subprocess.run(["cmake", "--install", Path(BINARY).parent, "--component", "python", "--prefix", cls.folder],
                       check=True, capture_output=True)

    def test_everything_is_there_and_nothing_else(self) -> None:
        self.assertEqual(check_wheel.problems_of(files_in(self.folder), ENTRY_POINTS), [])

    def test_the_check_finds_what_is_wrong(self) -> None:
        names = files_in(self.folder) - {"millrace/py.typed"} | {"millrace/notes.txt"}
        self.assertEqual(check_wheel.problems_of(names, check_wheel.ENTRY_POINTS[0]),
                         ["missing: millrace/py.typed", "unexpected: millrace/notes.txt",
                          "no entry point: millrace = millrace.torch.backend:compile_graph"])

    def test_pyproject_declares_the_entry_points(self) -> None:
        text = (ROOT / "pyproject.toml").read_text()
        for entry in check_wheel.ENTRY_POINTS:
            name, target = entry.splitlines()[-1].split(" = ")
            self.assertRegex(text, rf'\b{name} = "{re.escape(target)}"')

    def test_doctor_answers_without_a_compiler(self) -> None:
        hidden = ("CXX", "MILLRACE_CXX", "MILLRACE_LIBRARY")
        environment = {name: value for name, value in os.environ.items() if name not in hidden}
        environment.update(PATH="/nonexistent", PYTHONPATH=str(self.folder),
                           MILLRACE_CACHE_DIR=str(self.folder / "cache"), MILLRACE_DATA_DIR=str(self.folder / "data"))
        done = subprocess.run([sys.executable, "-m", "millrace", "doctor"], env=environment, cwd=self.folder,
                              capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"(?m)^compiler +missing: .*apt-get install g\+\+")


if __name__ == "__main__":
    unittest.main()
