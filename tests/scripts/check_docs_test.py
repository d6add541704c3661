"""check_docs.py sees names and links of files that do not exist, and nothing else."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).with_name("check_docs.py")
FILES = {"src/ir/graph.h": "", "src/ir/operators.inc": "", "src/measure/gpu/gpu_trial.cpp": "", "tests/ir/graph_test.cpp": ""}


def check(architecture, readme=""):
    """Runs the script on a tree with these texts; returns its lines."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in (FILES | {"docs/ARCHITECTURE.md": architecture, "README.md": readme}).items():
            target = pathlib.Path(root, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        outcome = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, check=False)
        lines = outcome.stdout.splitlines()
        if outcome.returncode != (1 if lines else 0):
            raise AssertionError(outcome)
        return lines


class CheckDocs(unittest.TestCase):
    def test_files_that_exist(self):
        self.assertEqual(check("`ir/graph.h`, `src/ir/graph`, `graph_test.cpp`, `src/ir/`, `ir/*.inc`, `measure/gpu/`"), [])

    def test_what_is_no_file(self):
        self.assertEqual(check("`Graph`, `graph`, `B·H / 2`, `--size tiny`, `plan.json`"), [])

    def test_files_that_do_not_exist(self):
        for name in ("ir/tree.h", "src/tree/", "tree_test.cpp", "ir/*.py"):
            lines = check(f"# Architecture\n\nThe file `{name}` has it.")
            self.assertEqual(lines, [f"docs/ARCHITECTURE.md:3: names {name}, which does not exist"])

    def test_tables_name_files_of_the_sections_folder(self):
        table = "### Trials: `src/measure/`\n\n| file | does |\n| --- | --- |\n| `{}`, `gpu/gpu_trial` | runs one; `Trial` |\n"
        self.assertEqual(check(table.format("gpu/*")), [])
        self.assertEqual(
            check(table.format("trial")), ["docs/ARCHITECTURE.md:5: names trial, which does not exist"]
        )

    def test_links(self):
        self.assertEqual(check("[graph](../src/ir/graph.h#L3), [web](https://example.org/x.md), [here](#links)"), [])
        self.assertEqual(
            check("", "see\n[the glossary](docs/glossary.md)"),
            ["README.md:2: links to docs/glossary.md, which does not exist"],
        )


if __name__ == "__main__":
    unittest.main()
