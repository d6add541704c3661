"""Tests reports in headless Chromium, at the widths of phones and desktops, light and dark.

Screenshots are kept in build/screenshots/. Without Chromium these tests are skipped.
"""

from __future__ import annotations

import csv
import html
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import unittest.mock
import xml.etree.ElementTree
from pathlib import Path

from command_test_case import BINARY, ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SECTIONS = ["answer", "dataflow", "operators", "violins", "roofline", "selection", "memory", "exploration"]
SCREENSHOTS = ROOT / "build/screenshots"
FIVE_MEGABYTES = 5_000_000

MLP = """
B = 4
I = 6
U = 8


def mlp(x: float32[B, I], w1: float32[I, U], b1: float32[U], w2: float32[U, I], g: float32[I], b: float32[I]):
    hidden = np.maximum(np.einsum("bi,iu->bu", x, w1) + b1, 0)
    return layernorm(x + np.einsum("bu,ui->bi", hidden, w2), g, b)
"""
SCALED = """
A = 5


def scaled(x: float64[A, 4], w: float64[4]):
    return x * w + x
"""
# A path may contain any characters.
HOSTILE = "<b>&'\"</script><script>window.hostile=1</script>=1.py"


def run(*arguments: str, cwd: Path, code: int = 0) -> subprocess.CompletedProcess:
    environment = dict(os.environ, NO_COLOR="1")
    done = subprocess.run([BINARY, *arguments], cwd=cwd, capture_output=True, text=True, timeout=120, env=environment)
    if done.returncode != code:
        raise AssertionError(f"{arguments}: exit {done.returncode}: {done.stderr}")
    return done


class ReportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        (cls.folder / HOSTILE).parent.mkdir(parents=True)
        (cls.folder / HOSTILE).write_text(MLP)
        (cls.folder / "scaled.py").write_text(SCALED)
        cls.programs = {
            "mha": [str(ROOT / "models/mha.py"), "--size", "tiny"],
            "hostile": [HOSTILE],
            "scaled": ["scaled.py"],
        }
        cls.reports = {}
        for name, program in cls.programs.items():
            run("explore", *program, "--budget", "5s", "--db", "t.db", cwd=cls.folder)
            out = f"{name}.html"
            done = run("report", *program, "--db", "t.db", "--out", out, "--json", cwd=cls.folder)
            cls.reports[name] = (cls.folder / out, json.loads(done.stdout))

    def test_is_one_small_file_that_refers_to_no_other(self) -> None:
        for name, (path, _) in self.reports.items():
            text = path.read_text()
            self.assertLess(len(text), FIVE_MEGABYTES, name)
            self.assertNotRegex(text, r"https?://|//[a-z]+\.[a-z]{2,}/|@import|url\(", name)

    def test_numbers_agree_with_each_other(self) -> None:
        for name, (_, report) in self.reports.items():
            with self.subTest(name):
                launches = report["tables"]["launches"]
                operators = report["tables"]["operators"]
                facts = report["facts"]
                self.assertAlmostEqual(sum(row["seconds"] for row in launches), facts["step_seconds"]["after"], delta=1e-12)
                before = facts["step_seconds"]["before"]  # a measured step, if there was time for it
                self.assertTrue(before is None or before > 0, before)
                for rows, which in ((operators, "before"), (launches, "after")):
                    words = sum(row["input_words"] + row["output_words"] for row in rows)
                    self.assertEqual(words, facts["words"][which])
                    self.assertEqual(len(rows), facts["launches"][which])
                self.assertGreaterEqual(facts["step_seconds"]["after"], facts["bound_seconds"]["after"] * (1 - 1e-9))
                self.assertTrue(report["tables"]["candidates"])
                for row in report["tables"]["candidates"]:
                    self.assertGreater(row["candidates"], 0)
                    if row["selected_seconds"] is not None:
                        self.assertGreaterEqual(row["selected_seconds"], row["fastest_seconds"])
                for row in launches:
                    self.assertLessEqual(row["mue"] or 0, 100 * (1 + 1e-9))

    def test_tables_and_pictures_as_files(self) -> None:
        done = run("report", *self.programs["hostile"], "--db", "t.db", "--out", "f.html", "--csv", "tables", "--svg",
                   "pictures", "--json", cwd=self.folder)
        report = json.loads(done.stdout)
        for table, rows in report["tables"].items():
            with open(self.folder / "tables" / f"{table}.csv", newline="", encoding="utf-8") as file:
                read = list(csv.DictReader(file))
            self.assertEqual(len(read), len(rows), table)
            for got, row in zip(read, rows):
                for key, value in row.items():
                    if isinstance(value, float | int):
                        self.assertEqual(float(got[key]), value)
        pictures = sorted((self.folder / "pictures").iterdir())
        self.assertGreaterEqual(len(pictures), 9)
        for picture in pictures:
            xml.etree.ElementTree.parse(picture)

    def test_summary_fits_a_terminal(self) -> None:
        for name, program in self.programs.items():
            text = run("report", *program, "--db", "t.db", "--out", "s.html", cwd=self.folder).stdout
            self.assertIn("s.html", text)
            self.assertNotIn("\x1b", text)
            if name != "hostile":  # its path alone is longer
                self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_a_plan_and_two(self) -> None:
        run("optimize", "scaled.py", "--budget", "5s", "--db", "t.db", "--out", "a.plan", cwd=self.folder)
        self.assertTrue((self.folder / "a.plan/report.html").exists(), "optimize writes a report next to the plan")
        done = run("report", "a.plan", "--db", "t.db", "--out", "p.html", "--json", cwd=self.folder)
        self.assertGreater(len(json.loads(done.stdout)["tables"]["candidates"]), 0)
        for row in json.loads(done.stdout)["tables"]["path"]:
            self.assertRegex(row["implementation"], "^(GEMM|loops|layout conversion)")
        shutil.copytree(self.folder / "a.plan", self.folder / "b.plan", dirs_exist_ok=True)
        done = run("report", "--compare", "a.plan", "b.plan", "--out", "c.html", "--svg", "both", "--json", cwd=self.folder)
        self.assertTrue((self.folder / "both/compared_timeline.svg").exists())
        compared = json.loads(done.stdout)
        self.assertEqual({row["ratio"] for row in compared["tables"]["compared_launches"]}, {1})
        self.assertEqual(compared["tables"]["compared_layouts"], [])
        run("report", "--compare", "a.plan", "b.plan", "scaled.py", cwd=self.folder, code=2)
        run("report", cwd=self.folder, code=2)
        run("bench", "a.plan", "--seconds", "0.05", "--trace", "t.json", cwd=self.folder)
        events = json.loads((self.folder / "t.json").read_text())["traceEvents"]
        self.assertEqual(len([event for event in events if event.get("cat") == "pass"]), 6)

    def test_a_dot_that_fails_changes_only_the_drawing(self) -> None:
        folder = self.folder / "bin"
        folder.mkdir()
        (folder / "dot").write_text('#!/bin/sh\ncat >>"$0.given"\nexit 1\n')
        (folder / "dot").chmod(0o755)
        path = f"{folder}:{os.environ['PATH']}"
        with unittest.mock.patch.dict(os.environ, {"PATH": path}):
            done = run("report", *self.programs["hostile"], "--db", "t.db", "--out", "d.html", "--json", cwd=self.folder)
        self.assertIn("Millrace laid out the boxes and lines itself: Graphviz&#39;s dot failed", (self.folder / "d.html").read_text())
        tables = json.loads(done.stdout)["tables"]
        self.assertEqual(tables["launches"], self.reports["hostile"][1]["tables"]["launches"])
        given = (folder / "dot.given").read_text()
        self.assertRegex(given, r"\A(digraph \{\n|  (graph|node|edge) \[[a-z0-9=.,\" ]*\]\n"
                                r"|  \d+ \[width=[\d.]+, height=[\d.]+\]\n|  \d+ -> \d+\n|\}\n)+\Z", "no name reaches it")

    def test_a_plans_report_is_in_its_folder_and_opens(self) -> None:
        run("optimize", "scaled.py", "--budget", "5s", "--db", "t.db", "--out", "my plan", cwd=self.folder)
        report = self.folder / "my plan/report.html"
        folder = self.folder / "opener"
        folder.mkdir()
        (folder / "xdg-open").write_text('#!/bin/sh\necho "$1" >"$0.part"\nmv "$0.part" "$0.given"\n')
        (folder / "xdg-open").chmod(0o755)
        for plan in ("my plan", "my plan/plan.json"):
            report.unlink()
            given = folder / "xdg-open.given"
            given.unlink(missing_ok=True)
            with unittest.mock.patch.dict(os.environ, {"PATH": f"{folder}:{os.environ['PATH']}"}):
                done = run("report", plan, "--db", "t.db", "--open", cwd=self.folder)
            self.assertIn("The report is my plan/report.html.", done.stdout)
            self.assertIn("millrace bench 'my plan", done.stdout + report.read_text().replace("&#39;", "'"))
            end = time.monotonic() + 30
            while not given.exists() and time.monotonic() < end:
                time.sleep(0.05)
            self.assertEqual(given.read_text(), "my plan/report.html\n")

    def test_without_measurements_says_what_to_do(self) -> None:
        done = run("report", "scaled.py", "--db", "empty.db", cwd=self.folder, code=4)
        self.assertIn("explore", done.stderr)
        self.assertFalse((self.folder / "report.html").exists())

    @unittest.skipUnless(CHROMIUM, "no Chromium: reports are not opened")
    def test_in_a_browser(self) -> None:
        views = {"mha": [(1280, False), (360, True)], "hostile": [(1280, True), (390, False)], "scaled": [(360, False)]}
        for name, wanted in views.items():
            for width, dark in wanted:
                with self.subTest(name, width=width, dark=dark):
                    self.open(name, width, dark)

    def open(self, name: str, width: int, dark: bool) -> None:
        path, report = self.reports[name]
        expected = json.dumps({"sections": SECTIONS, "json": report}).replace("<", "\\u003c")
        check = (Path(__file__).parent / "report_check.js").read_text()
        page = path.read_text().replace("</body>", f"<script>const EXPECTED = {expected};\n{check}</script></body>")
        height = 12_000_000 // width  # enough for all sections
        # In a frame: Chromium's own window is never narrower than 500 pixels.
        copy = self.folder / "opened.html"
        copy.write_text(f'<!DOCTYPE html><style>:root {{ color-scheme: light dark; }} body {{ margin: 0; }} '
                        f'iframe {{ display: block; border: 0; width: {width}px; height: {height}px; }}</style>'
                        f'<iframe srcdoc="{html.escape(page)}"></iframe>')
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        shot = SCREENSHOTS / f"{name}-{width}-{'dark' if dark else 'light'}.png"
        done = subprocess.run(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
             f"--user-data-dir={self.folder / 'profile'}", f"--window-size={width},{height}", f"--screenshot={shot}",
             f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--dump-dom", copy.as_uri()],
            capture_output=True, text=True, timeout=60)
        self.assertEqual([line for line in done.stderr.splitlines() if "CONSOLE" in line], [])
        result = re.search(r"FOUND(\{.*?\})DNUOF", done.stdout, re.DOTALL)
        self.assertIsNotNone(result, done.stderr[-2000:])
        seen = json.loads(html.unescape(result[1]))
        self.assertEqual(seen["found"], [])
        self.assertEqual(seen["dark"], dark)
        self.assertEqual(seen["width"], width)
        self.assertTrue(shot.exists())


if __name__ == "__main__":
    unittest.main()
