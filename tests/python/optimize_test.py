"""Tests `millrace explore`, `select` and `optimize`: what they print, keep and refuse, and what happens when they are
stopped. Over 500 lines, because the cases share a few small programs."""

import contextlib
import json
import os
import random
import signal
import subprocess
import time
import unittest
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import safetensors_io
from command_test_case import (
    BINARY, DONE, FAILED, NO_CONFIGURATION, ROOT, UNAVAILABLE, WRONG_USAGE, CommandTest, long,
)

NOBODY = 65534
PAGE = os.sysconf("SC_PAGE_SIZE")

PROGRAM = '''"""One matrix product, one softmax, one dropout."""

import numpy as np
from millrace.numpy import dropout, float32, softmax

B = 3
J = 5
K = 7


def small(x: float32[B, J], w: float32[J, K]):
    y = np.einsum("bj,jk->bk", x, w)
    return dropout(softmax(y), p=0.25)
'''

TINY = '''import numpy as np
from millrace.numpy import float32

N = 64


def tiny(x: float32[N]):
    return x * x + 1
'''

# Three projections of one tensor.
STACKED = '''import numpy as np
from millrace.numpy import float32

B = 3
I = 8
O = 4


def stacked(x: float32[B, I], wq: float32[O, I], wk: float32[O, I], wv: float32[O, I]):
    q = np.einsum("bi,oi->bo", x, wq)
    k = np.einsum("bi,oi->bo", x, wk)
    v = np.einsum("bi,oi->bo", x, wv)
    return np.exp(q) * k + v
'''

# Replaces millrace-worker: every candidate is correct, and its text determines its time. With HOLD_AFTER it stops
# answering after that many trials.
WORKER = """#!/usr/bin/env python3
import json, os, sys, time, zlib
hold_after = int(os.environ.get("HOLD_AFTER", "1000000"))
sys.stdin.readline()
print("ready", flush=True)
for number, line in enumerate(sys.stdin):
    if number == hold_after:
        time.sleep(600)
    seconds = 1e-4 + zlib.crc32(json.loads(line)["candidate"].encode()) % 1000 * 1e-6
    print(json.dumps({"outcome": "measured", "seconds": seconds, "low": seconds, "high": seconds, "samples": 6,
                      "detail": ""}), flush=True)
"""


# Replaces the compiler when no worker loads its output.
COMPILER = """#!/bin/sh
case "$*" in *--version*) echo pretended 1; exit ;; esac
for out; do :; done
echo an object >"$out"
"""


# A compiler whose kernels compute tanh in place of exp.
WRONG_COMPILER = """#!/bin/sh
for word; do
  case "$word" in *.cpp) sed -i '/#define MILLRACE_KERNEL/,$ s/exp(/tanh(/g' "$word" ;; esac
done
exec g++ "$@"
"""


def pages_of(path: Path) -> int:
    """The size of a file, or of all files in a folder."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(-(-file.stat().st_size // PAGE) for file in files)


class OptimizeTest(CommandTest):
    programs = {"small": PROGRAM, "stacked": STACKED, "tiny": TINY}

    def pretended(self) -> dict[str, str]:
        """The environment in which scripts replace the worker and the compiler."""
        for name, text in (("worker.py", WORKER), ("compiler.sh", COMPILER)):
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)
        return {
            "MILLRACE_WORKER": str(self.folder / "worker.py"), "MILLRACE_CXX": str(self.folder / "compiler.sh"),
            "MILLRACE_CACHE_DIR": str(self.folder / "cache"),
        }


class EndToEndTest(OptimizeTest):
    def test_program_to_plan(self) -> None:
        text = self.succeed("optimize", "small.py", "--budget", "10s")
        for words in ("small.plan", "before", "after", "words moved", "agree with the reference", "explored", "selected"):
            self.assertIn(words, text)
        self.assertLessEqual(max(map(len, text.splitlines())), 120)
        self.assertTrue((self.folder / "small.plan" / "plan.json").exists())
        self.assertEqual({row["outcome"] for row in self.rows()}, {"measured"}, "a candidate is wrong")

        # Again, from the database: nothing is measured, and the JSON has the same values.
        told = json.loads(self.succeed("optimize", "small.py", "--budget", "0s", "--json", "--out", "again.plan"))
        self.assertIsInstance(told, dict)
        self.assertIn("again.plan", json.dumps(told))
        self.assertTrue((self.folder / "again.plan" / "plan.json").exists())

        self.assertIn("d_w", self.succeed("run", "small.plan", "--out", "r.safetensors"))
        self.assertTrue((self.folder / "r.safetensors").stat().st_size > 0)
        self.assertIn("softmax", self.succeed("bench", "small.plan"))
        given = {"x": np.ones((3, 5)), "w": np.ones((5, 7))}
        safetensors_io.write(self.folder / "in.safetensors", given)
        self.assertIn("step", self.succeed("bench", "small.plan", "--in", "in.safetensors", "--seconds", "0.1"))
        safetensors_io.write(self.folder / "in.safetensors", given | {"other": np.ones(3)})
        self.assertIn("no argument 'other'", self.fails(WRONG_USAGE, "bench", "small.plan", "--in", "in.safetensors"))
        json.loads(self.succeed("bench", "small.plan", "--json"))
        kernels = json.loads(self.succeed("bench", "small.plan", "--kernels", "--seconds", "0.1", "--json"))
        self.assertNotIn("step_seconds", kernels)
        self.assertTrue(kernels["launches"])
        self.assertFalse([one["name"] for one in kernels["launches"] if "einsum" in one["name"]])

        # select uses these measurements, with both methods.
        exact = json.loads(self.succeed("select", "small.py", "--json"))
        sssp = json.loads(self.succeed("select", "small.py", "--json", "--method", "sssp"))
        self.assertLessEqual(exact["cost"], sssp["cost"] * (1 + 1e-9))

    @long
    def test_a_complete_exploration_is_certified(self) -> None:
        """All candidates of a tiny program that could be part of a faster plan are tried before the budget ends."""
        made = json.loads(self.succeed("optimize", "tiny.py", "--budget", "10m", "--json"))
        certificate = made["certificate"]
        self.assertTrue(certificate["certified"], certificate)
        self.assertGreaterEqual(certificate["lower_bound_seconds"], 0.999 * certificate["step_seconds"])
        self.assertGreater(certificate["candidates"], 0)
        self.assertIn("certified: no plan of these", self.succeed("explore", "tiny.py", "--budget", "10m"))
        self.assertIn("ertified: no plan of these", (self.folder / "tiny.plan/report.html").read_text())

    def test_the_layer_of_the_readme(self) -> None:
        # In some of its sixteen draws, an argument of ReLU is within rounding error of 0.
        model = str(ROOT / "models" / "bert_encoder.py")
        text = self.succeed("optimize", model, "--size", "tiny", "--budget", "0s", "--out", "bert.plan")
        self.assertIn("agree with the reference", text)

    def test_the_callers_layouts(self) -> None:
        text = self.succeed(
            "optimize", "small.py", "--budget", "1s", "--layout", "x=JB", "--layout", "d_w=any", "--layout", "w=KJ"
        )
        self.assertIn("agree with the reference", text)
        plan = json.loads((self.folder / "small.plan" / "plan.json").read_text())
        self.assertIn("JB", json.dumps(plan))

    def test_stacked_tensors_of_the_caller(self) -> None:
        pins = [partition for names in ("wq+wk+wv", "d_wq+d_wk+d_wv") for partition in ("--layout", f"{names}=stacked")]
        text = self.succeed("optimize", "stacked.py", "--budget", "1s", *pins)
        self.assertIn("agree with the reference", text)
        plan = json.loads((self.folder / "stacked.plan" / "plan.json").read_text())
        self.assertIn({"tensor": "wq+wk+wv", "layout": "stacked"}, plan["program"]["layouts"])
        self.succeed("run", "stacked.plan")
        self.succeed("bench", "stacked.plan", "--seconds", "0.1")
        # Tensors that would be aligned to less than 16 bytes are not stacked, with a message.
        text = self.succeed("explore", "stacked.py", "--explain", "--size", "I=5", "--size", "O=3", *pins)
        self.assertIn("wq + wk + wv stacked by the caller: wq takes 60 bytes", text)
        for value, words in {"wq+w=stacked": "no argument or result 'w'", "wq+wq=stacked": "named twice",
                             "wq=stacked": "not a stack", "wq+wk=OI": "wq+wk=stacked"}.items():
            self.assertIn(words, self.fails(WRONG_USAGE, "optimize", "stacked.py", "--layout", value), value)

    def test_explain(self) -> None:
        text = self.succeed("explore", "small.py", "--explain")
        self.assertIn("rejected, with the reason", text)
        self.assertIn("candidates", text)
        self.assertFalse((self.folder / "data" / "measurements.db").exists(), "it measured")

    def test_measurements_travel_as_a_file(self) -> None:
        self.environment.update(self.pretended())
        self.succeed("explore", "small.py", "--budget", "0s", "--out", "m.json")
        from_file = json.loads(self.succeed("select", "m.json", "--json"))
        from_database = json.loads(self.succeed("select", "small.py", "--json"))
        self.assertEqual(from_file, from_database)


class RefusalTest(OptimizeTest):
    def test_wrong_options(self) -> None:
        for value in ("x", "-1s", "1d", "nan", "inf", "1e99h", "3 s", "0x10"):
            message = self.fails(WRONG_USAGE, "optimize", "small.py", f"--budget={value}")
            self.assertIn("90s", message, value)
        message = self.fails(WRONG_USAGE, "optimize", "small.py", "--method", "magic")
        self.assertIn("exact or sssp", message)
        for value, words in {"x": "NAME=AXES", "=JB": "NAME=AXES", "x=JJ": "as in BJ, or any", "x=": "as in BJ",
                             "q=any": "no argument or result", "d_xx=any": "did you mean d_x?"}.items():
            self.assertIn(words, self.fails(WRONG_USAGE, "optimize", "small.py", "--layout", value), value)
        self.assertIn("absent.py", self.fails(WRONG_USAGE, "optimize", "absent.py"))
        for command in ("explore", "optimize"):
            gone = {"MILLRACE_CUDA_BACKEND": str(self.folder / "absent.so")}
            self.assertIn("absent.so", self.fails(UNAVAILABLE, command, "small.py", "--device", "cuda", **gone))
        self.assertEqual(self.millrace("optimize", "small.py", "--threads", "0").returncode, WRONG_USAGE)
        self.assertFalse((self.folder / "small.plan").exists())

    def test_the_gpu_of_this_machine(self) -> None:
        if json.loads(self.succeed("doctor", "--json"))["gpu"] is None:
            self.assertIn("cuda", self.fails(UNAVAILABLE, "explore", "small.py", "--device", "cuda"))
        else:
            self.succeed("explore", "small.py", "--device", "cuda", "--budget", "0s")
            self.assertEqual({row["outcome"] for row in self.rows()}, {"measured"}, "a candidate is wrong")

    def test_a_wrong_method_is_refused_before_the_work(self) -> None:
        begin = time.monotonic()
        self.fails(WRONG_USAGE, "optimize", "small.py", "--method", "magic", "--budget", "60s")
        self.assertLess(time.monotonic() - begin, 30)

    def test_without_a_compiler(self) -> None:
        message = self.fails(UNAVAILABLE, "optimize", "small.py", "--budget", "1s", MILLRACE_CXX="/nonexistent")
        self.assertIn("'/nonexistent' does not exist", message)
        self.assertIn("MILLRACE_CXX", message)
        self.assertFalse((self.folder / "small.plan").exists())

    def test_without_a_worker(self) -> None:
        message = self.fails(UNAVAILABLE, "optimize", "small.py", MILLRACE_WORKER="/nonexistent/worker")
        self.assertIn("/nonexistent/worker", message)

    def test_a_worker_that_cannot_start(self) -> None:
        (self.folder / "broken").write_text("#!/bin/sh\nexit 3\n")
        (self.folder / "broken").chmod(0o755)
        self.fails(FAILED, "optimize", "small.py", "--budget", "10s", MILLRACE_WORKER=str(self.folder / "broken"))

    def test_select_before_anything_was_measured(self) -> None:
        message = self.fails(NO_CONFIGURATION, "select", "small.py")
        self.assertIn("explore", message)
        self.assertFalse((self.folder / "data").exists(), "created by a command that only reads")

    def test_a_program_whose_name_is_not_utf8(self) -> None:
        name = os.fsencode(self.folder) + b"/\xff\xfe.py"
        Path(os.fsdecode(name)).write_text(PROGRAM)
        done = subprocess.run(
            [BINARY, "explore", name, "--budget", "0s"], cwd=self.folder, capture_output=True, timeout=120,
            env={**self.environment, **self.pretended()},
        )
        self.assertEqual(done.returncode, DONE, done.stderr)


class StorageTest(OptimizeTest):
    """Unusable folders; most tests run as a user other than root."""

    def as_nobody(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        if os.getuid() != 0:
            return self.millrace(*arguments, **environment)
        self.folder.chmod(0o755)
        return subprocess.run(
            [BINARY, *arguments], cwd=self.folder, env={**self.environment, **environment}, capture_output=True,
            text=True, timeout=120, user=NOBODY, group=NOBODY, extra_groups=[],
        )

    def reachable(self) -> None:
        if os.getuid() == 0:
            probe = subprocess.run(["test", "-x", BINARY], user=NOBODY, group=NOBODY, extra_groups=[])
            if probe.returncode != 0:
                self.skipTest("another user cannot run the program where it is")

    def refused(self, done: subprocess.CompletedProcess, words: str) -> None:
        self.assertNotEqual(done.returncode, DONE, done.stdout)
        self.assertGreater(done.returncode, 0, "ended by a signal")
        self.assertEqual(done.stdout, "")
        self.assertIn("error: ", done.stderr)
        self.assertIn(words, done.stderr)

    def test_a_data_folder_that_cannot_be_written(self) -> None:
        self.reachable()
        (self.folder / "data").mkdir()
        (self.folder / "data").chmod(0o555)
        self.refused(self.as_nobody("optimize", "small.py", "--budget", "1s"), str(self.folder / "data"))

    def test_a_cache_that_cannot_be_written(self) -> None:
        self.reachable()
        for name in ("data", "cache"):
            (self.folder / name).mkdir()
            os.chown(self.folder / name, NOBODY, NOBODY) if os.getuid() == 0 else None
        (self.folder / "data").chmod(0o700)
        (self.folder / "cache").chmod(0o500)
        done = self.as_nobody("explore", "small.py", "--budget", "10s", MILLRACE_CACHE_DIR=str(self.folder / "cache"))
        self.refused(done, "MILLRACE_CACHE_DIR")
        # The failure is not recorded for any candidate, and everything works once the folder is writable.
        (self.folder / "cache").chmod(0o700)
        done = self.as_nobody("explore", "small.py", "--budget", "0s", MILLRACE_CACHE_DIR=str(self.folder / "cache"))
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertNotIn("failed", done.stdout)

    def test_a_database_of_another_user(self) -> None:
        if os.getuid() != 0:
            self.skipTest("only root can make another user's files")
        (self.folder / "data").mkdir(mode=0o700)
        os.chown(self.folder / "data", NOBODY, NOBODY)
        self.refused(self.millrace("optimize", "small.py", "--budget", "1s"), str(self.folder / "data"))

    @contextlib.contextmanager
    def disk_of(self, pages: int) -> Iterator[Path]:
        """A tmpfs of that many pages, at least one: a size of 0 would mean no limit."""
        disk = self.folder / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={max(pages, 1) * PAGE},mode=700", "none", disk]
        if subprocess.run(mount, capture_output=True).returncode != 0:
            self.skipTest("no small disk can be mounted here")
        try:
            yield disk
        finally:
            subprocess.run(["umount", disk], check=True)
            disk.rmdir()

    def test_a_full_disk(self) -> None:
        """A disk without space for a kernel, and with half of the space that rows, the plan and its report need."""
        own = {"MILLRACE_CACHE_DIR": str(self.folder / "cache")}
        self.succeed("optimize", "small.py", "--budget", "0s", "--out", "whole", **own)
        with self.disk_of(2) as disk:
            done = self.millrace("optimize", "small.py", "--budget", "0s", MILLRACE_CACHE_DIR=str(disk / "cache"))
            self.refused(done, str(disk))
        with self.disk_of(pages_of(self.folder / "data") // 2) as disk:
            done = self.millrace("optimize", "small.py", "--budget", "0s", MILLRACE_DATA_DIR=str(disk / "data"), **own)
            self.refused(done, str(disk))
        kernels, plan, report = (
            pages_of(self.folder / "whole" / name) for name in ("kernels.so", "plan.json", "report.html")
        )
        with self.disk_of(plan // 2) as disk:
            done = self.millrace("optimize", "small.py", "--budget", "0s", "--out", str(disk / "plan"), **own)
            self.refused(done, str(disk))
            self.assertFalse((disk / "plan" / "plan.json").exists(), "an incomplete plan")
        with self.disk_of(kernels + plan + report // 2) as disk:
            done = self.millrace("optimize", "small.py", "--budget", "0s", "--out", str(disk / "plan"), **own)
            self.refused(done, "report.html")
            self.assertFalse((disk / "plan" / "report.html").exists(), "an incomplete report")
            self.succeed("run", str(disk / "plan"), **own)


class WrongPlanTest(OptimizeTest):
    def wrong(self) -> dict[str, str]:
        """The environment in which every candidate passes, but compiled kernels are wrong."""
        environment = self.pretended()
        (self.folder / "compiler.sh").write_text(WRONG_COMPILER)
        return environment

    def test_a_plan_that_fails_its_check_is_not_written(self) -> None:
        message = self.fails(FAILED, "optimize", "small.py", "--budget", "1s", **self.wrong())
        self.assertIn("differs from the reference", message)
        self.assertIn("no plan was written to 'small.plan'", message)
        self.assertFalse((self.folder / "small.plan").exists())

    def test_an_earlier_plan_stays(self) -> None:
        self.succeed("optimize", "small.py", "--budget", "1s")
        folder = self.folder / "small.plan"
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.fails(FAILED, "optimize", "small.py", "--budget", "1s", MILLRACE_DATA_DIR=str(self.folder / "other"),
                   **self.wrong())
        self.assertEqual({path.name: path.read_bytes() for path in folder.iterdir()}, before)
        self.succeed("run", "small.plan", "--out", "r.safetensors")


class OutputTest(OptimizeTest):
    def test_out_may_be_a_device_a_pipe_or_a_link(self) -> None:
        self.succeed("optimize", "small.py", "--budget", "1s")
        (self.folder / "null").symlink_to("/dev/null")
        (self.folder / "link").symlink_to("target")
        for command in (
            ("run", "small.plan", "--out"), ("report", "small.plan", "--out"),
            ("bench", "small.plan", "--seconds", "0.1", "--trace"), ("db", "export"),
        ):
            self.succeed(*command, "null")
            self.assertTrue((self.folder / "null").is_char_device(), command)
            self.succeed(*command, "link")
            self.assertTrue((self.folder / "link").is_symlink(), command)
            self.assertGreater((self.folder / "target").stat().st_size, 0, command)
            (self.folder / "target").unlink()

    def test_links_in_the_folder_of_a_plan_are_not_followed(self) -> None:
        """An archive with a plan may contain them."""
        self.succeed("optimize", "small.py", "--budget", "1s")
        folder, precious = self.folder / "small.plan", self.folder / "precious"
        names = ["report.html", "plan.json", "search.json", "times.json", "kernels.so"]
        tables = ("report", "small.plan", "--csv", "tables", "--svg", "tables")
        self.succeed(*tables)
        made = [*(folder / name for name in names), *(self.folder / "tables").iterdir()]
        precious.write_text("precious")

        def plant(paths: list[Path]) -> None:
            for path in paths:
                path.unlink(missing_ok=True)
                path.symlink_to(precious)

        plant([made[0], *made[len(names):]])
        self.succeed(*tables)
        self.assertEqual(precious.read_text(), "precious")
        plant(made[:len(names)])
        self.succeed("optimize", "small.py", "--budget", "1s")
        self.assertEqual(precious.read_text(), "precious")

    def test_a_closed_stream_does_not_become_a_file(self) -> None:
        """Otherwise messages would be written into a result or the database."""
        (self.folder / "large.py").write_text(TINY.replace("N = 64", "N = 100_000"))
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        process = subprocess.Popen(
            ["sh", "-c", 'exec "$0" run large.py --out pipe <&- >&- 2>&-', BINARY], cwd=self.folder,
            env=self.environment,
        )
        with pipe.open("rb") as results:
            results.read(1)  # it waits until the rest is read
            streams = [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in range(3)]
            results.read()
        self.assertEqual(process.wait(timeout=self.seconds), FAILED)
        self.assertEqual(streams, ["/dev/null"] * 3)

    def test_select_and_report_of_a_database_that_is_only_read(self) -> None:
        self.succeed("optimize", "small.py", "--budget", "1s")
        data = self.folder / "data"
        wanted = self.succeed("select", "small.py")
        for path in (*data.iterdir(), data):
            path.chmod(path.stat().st_mode & 0o555)
        before = {path.name: path.read_bytes() for path in data.iterdir()}
        self.assertEqual(self.succeed("select", "small.py"), wanted)
        self.succeed("report", "small.plan", "--out", "r.html")
        self.assertEqual({path.name: path.read_bytes() for path in data.iterdir()}, before)
        for path in (data, *data.iterdir()):
            path.chmod(path.stat().st_mode | 0o200)

    def test_texts_of_imported_rows_are_printed_without_control_characters(self) -> None:
        self.environment.update(self.pretended())
        self.succeed("explore", "small.py", "--exhaustive")
        rows = self.rows()
        rows[0].update(outcome="wrong", seconds=0, low=0, high=0, samples=0, detail="\x9b31m\nerror: fake")
        (self.folder / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
        self.succeed("db", "import", "rows.jsonl", "--db", "other.db")
        for command in ("explore", "optimize"):
            text = self.millrace(command, "small.py", "--budget", "0s", "--db", "other.db").stdout
            if command == "explore":
                self.assertIn(r"the first that failed: ", text)
                self.assertIn(r"\x9b31m", text)
            self.assertNotIn("\x9b", text)
            self.assertNotIn("\nerror: fake", text)

    def test_a_limit_of_file_sizes_is_an_error(self) -> None:
        done = subprocess.run(
            ["sh", "-c", 'ulimit -f 0; exec "$0" run small.py --out r.safetensors', BINARY], cwd=self.folder,
            env=self.environment, capture_output=True, text=True, timeout=self.seconds,
        )
        self.assertEqual(done.returncode, FAILED, done.stderr)
        self.assertIn("File too large", done.stderr)
        self.assertFalse((self.folder / "r.safetensors").exists())

    def test_a_pipe_in_place_of_the_plan(self) -> None:
        (self.folder / "small.plan").mkdir()
        os.mkfifo(self.folder / "small.plan" / "plan.json")
        self.assertIn("not a regular file", self.fails(WRONG_USAGE, "run", "small.plan", "--out", "r.safetensors"))


class StoppedTest(OptimizeTest):
    def start(self, *arguments: str, interrupts=signal.SIG_DFL, **environment: str) -> subprocess.Popen:
        process = subprocess.Popen(
            [BINARY, *arguments], cwd=self.folder, env={**self.environment, **environment}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, interrupts),
        )
        self.addCleanup(process.communicate)
        return process

    def wait_for_rows(self, count: int) -> None:
        database = self.folder / "data" / "measurements.db"
        for _ in range(600):
            if database.exists() and len(self.rows()) >= count:
                return
            time.sleep(0.05)
        self.fail("nothing was measured")

    def test_an_interrupt_ends_it_and_loses_no_rows(self) -> None:
        self.environment.update(self.pretended())
        process = self.start("explore", "small.py", "--exhaustive", HOLD_AFTER="5")
        self.wait_for_rows(3)
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=30)
        self.assertIn(process.returncode, (130, -signal.SIGINT))
        self.assertIn("interrupted: the measurements so far are kept; the same command continues", message)
        kept = self.rows()
        self.assertGreaterEqual(len(kept), 3)
        self.succeed("explore", "small.py", "--budget", "0s")
        after = self.rows()
        for row in kept:
            self.assertIn(row, after, "a row was measured again, or lost")

    def test_an_interrupt_that_the_caller_ignores_does_not_end_it(self) -> None:
        """A script that starts a command with & makes it ignore interrupts of the terminal."""
        self.environment.update(self.pretended())
        process = self.start("explore", "small.py", "--exhaustive", interrupts=signal.SIG_IGN)
        self.wait_for_rows(1)
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=self.seconds)
        self.assertEqual(process.returncode, DONE, message)
        self.assertNotIn("interrupted", message)

    def test_folders_of_killed_compilers_disappear(self) -> None:
        """Probes run in the cache, where the next command removes what a killed one left."""
        cache, temporary = self.folder / "cache", self.folder / "temporary"
        for folder in (cache, temporary):
            folder.mkdir(mode=0o700)
        slow = self.folder / "slow.sh"
        slow.write_text("#!/bin/sh\ncase \"$*\" in *--version*) echo slow 1; exit ;; esac\nexec sleep 600\n")
        slow.chmod(0o755)
        own = {"MILLRACE_CACHE_DIR": str(cache), "TMPDIR": str(temporary)}
        process = self.start("explore", "small.py", MILLRACE_CXX=str(slow), **own)
        for _ in range(600):
            if list(cache.glob("millrace-tmp.*")):
                break
            time.sleep(0.05)
        process.kill()
        process.communicate(timeout=30)
        self.assertEqual(list(temporary.iterdir()), [])
        left = list(cache.glob("millrace-tmp.*"))
        self.assertTrue(left)
        for folder in left:
            os.utime(folder, (0, 0))
        self.succeed("explore", "small.py", "--budget", "0s", **own)
        self.assertEqual(list(cache.glob("millrace-tmp.*")), [])
        self.assertEqual(list(temporary.iterdir()), [])

    def test_folders_of_a_first_command_that_was_killed_disappear(self) -> None:
        """Before there is a cache, probes run in the system's folder."""
        temporary = self.folder / "temporary"
        temporary.mkdir()
        slow = self.folder / "slow.sh"
        slow.write_text("#!/bin/sh\ncase \"$*\" in *--version*) echo slow 1; exit ;; esac\nexec sleep 600\n")
        slow.chmod(0o755)
        own = {"MILLRACE_CACHE_DIR": str(self.folder / "cache"), "TMPDIR": str(temporary)}
        process = self.start("explore", "small.py", MILLRACE_CXX=str(slow), **own)
        for _ in range(600):
            if list(self.folder.glob("*/millrace-tmp.*")):
                break
            time.sleep(0.05)
        process.kill()
        process.communicate(timeout=30)
        left = list(self.folder.glob("*/millrace-tmp.*"))
        self.assertTrue(left)
        for folder in left:
            os.utime(folder, (0, 0))
        self.succeed("explore", "small.py", "--budget", "0s", **own)
        self.assertEqual(list(self.folder.glob("*/millrace-tmp.*")), [])

    def test_what_a_compiler_started_ends_too(self) -> None:
        marker = self.folder / "started.pid"
        slow = self.folder / "slow.sh"
        slow.write_text(
            "#!/bin/sh\ncase \"$*\" in *--version*) echo slow 1; exit ;; esac\n"
            f"sleep 600 &\necho $! >{marker}.new\nmv {marker}.new {marker}\nwait\n"
        )
        slow.chmod(0o755)
        process = self.start("explore", "small.py", MILLRACE_CXX=str(slow))
        for _ in range(600):
            if marker.exists():
                break
            time.sleep(0.05)
        process.kill()
        process.communicate(timeout=30)
        self.assertTrue(self.goes_away(int(marker.read_text())), "it lives on")

    def goes_away(self, number: int) -> bool:
        for _ in range(200):
            if not Path(f"/proc/{number}").exists() or "zombie" in Path(f"/proc/{number}/status").read_text():
                return True
            time.sleep(0.05)
        return False

    def test_the_worker_ends_too(self) -> None:
        marker = self.folder / "worker.pid"
        worker = self.folder / "slow.py"
        worker.write_text(
            "#!/usr/bin/env python3\nimport os, sys, time\nsys.stdin.readline()\n"
            f"open({str(marker)!r}, 'w').write(str(os.getpid()))\nprint('ready', flush=True)\ntime.sleep(600)\n"
        )
        worker.chmod(0o755)
        process = self.start("explore", "small.py", "--exhaustive", MILLRACE_WORKER=str(worker))
        for _ in range(600):
            if marker.exists() and marker.read_text():
                break
            time.sleep(0.05)
        number = int(marker.read_text())
        process.kill()
        process.communicate(timeout=30)
        self.assertTrue(self.goes_away(number), "the worker lives on")

    def test_killed_at_any_moment_it_resumes_to_the_same_selection(self) -> None:
        self.environment.update(self.pretended())
        whole = self.folder / "whole"
        self.succeed("explore", "small.py", "--exhaustive", MILLRACE_DATA_DIR=str(whole))
        wanted = json.loads(self.succeed("select", "small.py", "--json", MILLRACE_DATA_DIR=str(whole)))
        chance = random.Random(1)
        counts = []
        for round in range(5):
            process = self.start("explore", "small.py", "--exhaustive")
            time.sleep(chance.uniform(0.05, 0.8))
            if round == 4:
                self.wait_for_rows(1)  # even on a slow machine
            process.kill()
            process.communicate(timeout=30)
            if (self.folder / "data" / "measurements.db").exists():
                counts.append(len(self.rows()))
        self.assertGreaterEqual(counts[-1], 1)
        self.assertEqual(counts, sorted(counts), "rows were lost")
        self.succeed("explore", "small.py", "--exhaustive")
        self.assertEqual(json.loads(self.succeed("select", "small.py", "--json")), wanted)
        same = [{key: row[key] for key in row if key != "when"} for row in self.rows()]
        self.environment["MILLRACE_DATA_DIR"] = str(whole)
        self.assertEqual([{key: row[key] for key in row if key != "when"} for row in self.rows()], same)


if __name__ == "__main__":
    unittest.main()
