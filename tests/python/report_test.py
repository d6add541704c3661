"""Tests reports: their numbers and files, and in headless Chromium at the widths of phones and desktops, light and dark.

Screenshots are kept in build/screenshots/. Without Chromium the browser's tests are skipped.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import tempfile
import time
import unittest
import unittest.mock
import xml.etree.ElementTree
from pathlib import Path

from chromium import CHROMIUM, Chromium
from command_test_case import BINARY, ROOT, long

SECTIONS = ["answer", "dataflow", "operators", "violins", "roofline", "selection", "memory", "model", "exploration"]
CHECK = Path(__file__).parent / "report_check.js"
TAB = ("Tab", 9)
# Everything that can be used: controls, and elements whose mouse pointer shows that they can be clicked. The arrow keys
# reach a mark inside of an element that takes the focus.
USABLE = """
    for (const details of document.querySelectorAll("details")) details.open = true;
    const kFocusable = "a[href], button, input, select, textarea, summary, [tabindex]";
    window.wanted = new Set([...document.querySelectorAll("body *")].filter((element) => element.checkVisibility())
      .filter((element) => element.matches(kFocusable + ", [onclick], [role=button]")
        || ((getComputedStyle(element).cursor === "pointer" || element.matches("[data-tip]")) && !element.closest(kFocusable))));
    document.addEventListener("focusin", (event) => wanted.delete(event.target));
    wanted.size"""
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
        self.assertEqual({row["ratio"] for row in compared["tables"]["same_launches"]}, {1})
        self.assertEqual(compared["tables"]["compared_launches"], [])
        for row in compared["tables"]["same_launches"]:
            self.assertRegex(row["a_implementation"], "^(GEMM|loops|layout conversion)")
        self.assertEqual(compared["tables"]["compared_layouts"], [])
        self.assertNotIn("Warning", str(compared["next"]))
        self.assertGreater(compared["facts"]["measured_step_seconds"]["after"], 0)
        run("report", "--compare", "a.plan", "b.plan", "scaled.py", cwd=self.folder, code=2)
        run("report", cwd=self.folder, code=2)
        run("bench", "a.plan", "--seconds", "0.05", "--trace", "t.json", cwd=self.folder)
        events = json.loads((self.folder / "t.json").read_text())["traceEvents"]
        self.assertEqual(len([event for event in events if event.get("cat") == "pass"]), 6)

    @long
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
        done = run("report", "scaled.py", "--dtype", "float32", "--db", "t.db", cwd=self.folder, code=4)
        self.assertIn("explore", done.stderr)
        self.assertFalse((self.folder / "report.html").exists())

    # --- In a browser ---

    VIEWS = [(1400, False), (1400, True), (390, False), (390, True)]

    def load(self, browser: Chromium, name: str, width: int, dark: bool) -> None:
        browser.open(self.reports[name][0], width, 900 if width > 500 else 844, dark)
        self.assertEqual(browser.evaluate("innerWidth"), width)
        self.assertEqual(browser.evaluate('getComputedStyle(document.body).backgroundColor !== "rgb(255, 255, 255)"'), dark)
        browser.evaluate(CHECK.read_text())

    def found(self, browser: Chromium, name: str) -> list[str]:
        expected = json.dumps({"sections": SECTIONS, "json": self.reports[name][1]})
        return browser.evaluate(f"reportCheck({expected})")

    @unittest.skipUnless(CHROMIUM, "no Chromium: reports are not opened")
    def test_in_a_browser(self) -> None:
        views = {"mha": self.VIEWS, "hostile": [(390, False)], "scaled": [(1400, True)]}
        with Chromium() as browser:
            for name, wanted in views.items():
                for width, dark in wanted:
                    with self.subTest(name, width=width, dark=dark):
                        self.load(browser, name, width, dark)
                        shot = SCREENSHOTS / f"{name}-{width}-{'dark' if dark else 'light'}.png"
                        browser.screenshot(shot)
                        self.assertEqual(browser.evaluate("graphCheck()"), [])
                        self.assertEqual(self.found(browser, name), [])
                        self.assertEqual(browser.evaluate("useCheck()"), [])
                        self.assertEqual(browser.complaints(), [])

    @unittest.skipUnless(CHROMIUM, "no Chromium: reports are not opened")
    def test_the_graph_keeps_its_middle_in_another_window(self) -> None:
        middle = """{
            const view = document.querySelector(".viewer figure:not([hidden]) svg").viewBox.baseVal;
            new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() =>
              done([view.x + view.width / 2, view.y + view.height / 2]))));
        }"""
        with Chromium() as browser:
            self.load(browser, "scaled", 1400, False)
            before = browser.evaluate(middle)
            for shape in ("display: none", "width: 300px; height: 200px", ""):
                browser.evaluate(f'document.querySelector(".viewer figure:not([hidden]) .scroll").style = "{shape}"; 0')
                after = browser.evaluate(middle)
                self.assertAlmostEqual(before[0], after[0], delta=1, msg=shape)
                self.assertAlmostEqual(before[1], after[1], delta=1, msg=shape)

    def not_reached(self, browser: Chromium) -> list[str]:
        count = browser.evaluate(f"{{ {USABLE} }}")
        self.assertGreater(count, 20)
        for _ in range(count + 5):
            browser.press(*TAB)
        return browser.evaluate("[...wanted].map((element) => element.outerHTML.slice(0, 100))")

    @unittest.skipUnless(CHROMIUM, "no Chromium: reports are not opened")
    def test_tab_reaches_everything_and_arrows_every_mark(self) -> None:
        with Chromium() as browser:
            for width in (1400, 390):
                self.load(browser, "hostile", width, False)
                self.assertEqual(self.not_reached(browser), [], f"not reached by Tab at {width}")
            marks = browser.evaluate("""
                const svg = document.querySelector("#picture_timeline svg");
                svg.focus();
                [...svg.querySelectorAll("[data-tip]")].map((mark) => mark.dataset.tip)""")
            self.assertGreater(len(marks), 4)
            for mark in marks:
                browser.press("ArrowRight", 39)
                self.assertEqual(browser.evaluate('document.getElementById("tip").textContent'), mark)
            self.assertEqual(browser.evaluate('document.getElementById("tip").getAttribute("role")'), "status")
            # The graph by keyboard alone: to its first mark, and its details.
            browser.evaluate('document.querySelector(".viewer figure svg").focus()')
            browser.press("ArrowRight", 39)
            browser.press("Enter", 13)
            self.assertGreater(len(browser.evaluate('document.querySelector(".panel h3").textContent')), 0)

    @unittest.skipUnless(CHROMIUM, "no Chromium: reports are not opened")
    def test_the_checks_find_faults(self) -> None:
        faults = {
            'roofline: "': 'const [a, b] = document.querySelectorAll("#picture_roofline text"); b.setAttribute("x", a.getAttribute("x")); '
                        'b.setAttribute("y", a.getAttribute("y"))',
            '" overlaps "': 'document.querySelector("#picture_traffic_bars .legend").style.marginTop = "-60px"',
            "is covered by a mark": 'const text = [...document.querySelectorAll("#picture_timeline text")].at(-1); '
                                    'const mark = document.querySelector("#picture_timeline rect").cloneNode(); '
                                    'const place = {x: 0, y: text.getAttribute("y") - 20, width: 2000, height: 40}; '
                                    'for (const name in place) mark.setAttribute(name, place[name]); '
                                    'text.ownerSVGElement.append(mark)',
            "cut off": 'document.querySelector("#picture_timeline text").setAttribute("x", "-30")',
            "outside the page": 'document.querySelector("h1").style.marginLeft = "-400px"',
            "wide in a window": 'document.querySelector("h2").style.width = "3000px"',
            "contrast": 'document.querySelector("figcaption").style.color = "#bbbbbb"',
            'rect "buffer': 'const thin = document.querySelector("#picture_memory rect.buffer"); thin.setAttribute("height", 1); '
                            'thin.style.stroke = "#ffffff"',
            'rect "node': 'document.querySelector("#picture_timeline .node").style = "fill: #f0e442; stroke: none"',
            "no legend": 'document.querySelector("#picture_memory .legend").remove()',
            "where the JSON has": 'document.querySelector("#table_launches td.number").dataset.v = "-1"',
            "wider than its box": 'document.querySelector(".viewer .box text").textContent = "x".repeat(90)',
        }
        with Chromium() as browser:
            self.load(browser, "hostile", 1400, False)
            for fault in faults.values():
                browser.evaluate(f"{{ {fault} }} 0")
            found = self.found(browser, "hostile")
            for expected in faults:
                self.assertTrue(any(expected in text for text in found), f"{expected}: {found}")
            browser.evaluate("""{
                document.querySelector("#picture_timeline svg").removeAttribute("tabindex");
                Object.assign(document.querySelector(".bar button"), {tabIndex: -1, id: "bar_1"});
                Object.assign(document.querySelector("details th button"), {tabIndex: -1, id: "in_details"});
                document.body.append(Object.assign(document.createElement("div"), {textContent: "click", style: "cursor: pointer"}));
                } 0""")
            unreached = " ".join(self.not_reached(browser))
            for expected in ("bar_1", "in_details", "<div", "data-tip"):
                self.assertIn(expected, unreached)
            browser.evaluate('console.error("a fault"); 0')
            self.assertIn("a fault", str(browser.complaints()))


if __name__ == "__main__":
    unittest.main()
