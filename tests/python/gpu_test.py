"""Tests `millrace --device cuda` from program to plan on an emulated GPU (tests/device/emulated): exploring, resuming,
refusing and reporting. Needs no GPU, and times nothing."""

import json
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import numpy as np

import safetensors_io
from command_test_case import (
    BINARY, FAILED, NO_CONFIGURATION, EMULATED_GPU, ROOT, UNAVAILABLE, WRONG_USAGE, CommandTest, long,
)

sys.path.insert(0, str(ROOT / "bench"))
from efficiency.launches import BETWEEN_STEPS, kernel_names  # noqa: E402  (the path above comes first)

# Algorithms of the emulated GPU (emulated_gpu.h).
ALIGNED, FAST = 2, 3

HEAD = "import numpy as np\nfrom millrace.numpy import dropout, float16, float32, softmax\n\n"

# A product, a softmax, a dropout.
SMALL = HEAD + """B = 3
J = 5
K = 7


def small(x: float32[B, J], w: float32[J, K]):
    y = np.einsum("bj,jk->bk", x, w)
    return dropout(softmax(y), p=0.25)
"""

# Three products and no kernel: nothing has to be compiled.
PRODUCT = HEAD + """B = 8
J = 16
K = 24


def product(x: float16[B, J], w: float16[J, K]):
    return np.einsum("bj,jk->bk", x, w)
"""

# A product whose batch would need two strides in the program's own layouts.
HEADS = HEAD + """B = 2
H = 2
J = 3
K = 3
P = 4


def heads(x: float32[B, J, H, P], b: float32[H, P], y: float32[B, K, H, P], c: float32[H, P]):
    q = x + b
    k = y + c
    return softmax(np.einsum("bjhp,bkhp->bhjk", q, k))
"""

# Three projections of one tensor, with biases.
STACKED = HEAD + """B = 4
I = 16
O = 8


def stacked(x: float16[B, I], wq: float16[O, I], wk: float16[O, I], wv: float16[O, I],
            bq: float16[O], bk: float16[O], bv: float16[O]):
    q = np.einsum("bi,oi->bo", x, wq) + bq
    k = np.einsum("bi,oi->bo", x, wk) + bk
    v = np.einsum("bi,oi->bo", x, wv) + bv
    return np.exp(q) * k + v
"""

ONE = HEAD + """B = 4


def one(x: float32[B]):
    return x * 2
"""


@unittest.skipUnless(Path(EMULATED_GPU).exists(), "the emulated GPU was not built")
class GpuTest(CommandTest):
    programs = {"small": SMALL, "product": PRODUCT, "heads": HEADS, "stacked": STACKED, "one": ONE}
    seconds = 300

    def setUp(self) -> None:
        super().setUp()
        self.environment["MILLRACE_CUDA_BACKEND"] = EMULATED_GPU

    def check_messages(self, messages: str) -> None:
        self.assertNotIn("emulated GPU:", messages)

    def optimize(self, program: str, *arguments: str, **environment: str) -> str:
        text = self.succeed("optimize", program, "--device", "cuda", *arguments, **environment)
        self.assertIn("agree with the reference", text)
        return text

    def rows_by_algorithm(self, number: int) -> list[dict]:
        return [row for row in self.rows() if f" algorithm {number}." in row["candidate"]]

    def made_by(self, *arguments: str) -> dict[str, np.ndarray]:
        """The results of a run, by name."""
        self.succeed("run", *arguments, "--out", "made.safetensors")
        return safetensors_io.read(self.folder / "made.safetensors")


class EndToEndTest(GpuTest):
    def test_program_to_plan(self) -> None:
        text = self.optimize("small.py", "--budget", "10s")
        for words in ("Emulated GPU", "small.plan", "before", "after", "words moved", "explored", "selected"):
            self.assertIn(words, text)
        self.assertEqual({row["outcome"] for row in self.rows()}, {"measured"}, "a candidate is wrong")
        plan = json.loads((self.folder / "small.plan" / "plan.json").read_text())
        self.assertIn("Emulated GPU", json.dumps(plan))
        self.assertTrue((self.folder / "small.plan" / "kernels.cubins").exists())

        # bench/mue.py finds the names that ncu shows: they are in the cubins, and the plan's are not.
        bundle = (self.folder / "small.plan" / "kernels.cubins").read_bytes().split(b"\n", 1)[1]
        names = kernel_names(self.folder / "small.plan")
        functions = {launch["function"] for launch in plan["launches"] if "function" in launch}
        self.assertEqual(set(names), functions | {BETWEEN_STEPS})
        for function, name in names.items():
            self.assertIn(name.encode(), bundle)
            self.assertNotIn(function.encode(), bundle)

        # The plan's results match the reference's, and its masks depend on the seed and the step.
        wanted = self.made_by("small.py", "--seed", "4")
        found = self.made_by("small.plan", "--seed", "4")
        self.assertEqual(wanted.keys(), found.keys())
        for name, values in wanted.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5, err_msg=name)
        again = self.made_by("small.plan", "--seed", "4", "--device", "cuda")
        other = self.made_by("small.plan", "--seed", "5")
        for name, values in found.items():
            np.testing.assert_array_equal(again[name], values, name)
        self.assertFalse(all(np.array_equal(other[name], values) for name, values in found.items()))
        self.assertIn("made for --device cuda", self.fails(WRONG_USAGE, "run", "small.plan", "--device", "cpu"))

        text = self.succeed("bench", "small.plan", "--seconds", "0.1", "--trace", "trace.json")
        for words in ("softmax", "step", "Emulated GPU"):
            self.assertIn(words, text)
        events = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
        self.assertGreaterEqual(len(events), 3 * len(plan["launches"]))
        told = json.loads(self.succeed("bench", "small.plan", "--seconds", "0.1", "--json"))
        # Launches take simulated times, one after the other; a step has one more, which counts steps.
        self.assertGreater(told["step_seconds"]["median"], told["sum_of_launches_seconds"])
        self.assertLess(told["step_seconds"]["median"], 1.5 * told["sum_of_launches_seconds"])
        self.assertEqual(len(told["launches"]), len(plan["launches"]))

        self.assertIn("Emulated GPU", self.succeed("report", "small.plan", "--out", "r.html"))
        self.assertIn("small", (self.folder / "r.html").read_text())
        for method in ("exact", "sssp"):
            json.loads(self.succeed("select", "small.py", "--device", "cuda", "--method", method, "--json"))

        # Without a GPU its plan can be reported, but not run.
        gone = {"MILLRACE_CUDA_BACKEND": str(self.folder / "absent.so")}
        self.assertIn("absent.so", self.fails(UNAVAILABLE, "run", "small.plan", **gone))
        self.assertIn("another machine", self.succeed("report", "small.plan", "--out", "r.html", **gone))

    def test_the_callers_layouts(self) -> None:
        self.optimize("small.py", "--budget", "0s", "--layout", "x=JB", "--layout", "d_w=any", "--layout", "w=KJ")

    def test_stacked_tensors_of_the_caller(self) -> None:
        pins = [f"{name}q+{name}k+{name}v=stacked" for name in ("w", "d_w", "b", "d_b")]
        self.optimize("stacked.py", "--budget", "0s", *(partition for pin in pins for partition in ("--layout", pin)))
        self.assertEqual({row["outcome"] for row in self.rows()}, {"measured"}, "a candidate is wrong")
        wanted, found = self.made_by("stacked.py"), self.made_by("stacked.plan")
        for name, values in wanted.items():
            np.testing.assert_allclose(found[name], values, rtol=2e-2, atol=2e-2, err_msg=name)
        self.succeed("bench", "stacked.plan", "--seconds", "0.1")

    def test_a_partition_that_cannot_use_the_programs_layouts(self) -> None:
        made = json.loads(self.succeed("optimize", "heads.py", "--device", "cuda", "--budget", "0s", "--json"))
        self.assertTrue(made["checked"])
        self.assertTrue(made["conversions"] > 0 or made["baseline_kept"], made)  # generated loops need no conversion

    @long
    def test_a_model(self) -> None:
        model = str(ROOT / "models" / "bert_encoder.py")
        text = self.optimize(model, "--size", "tiny", "--dtype", "float16", "--budget", "0s", "--out", "bert.plan")
        self.assertIn("correct", text)
        found = self.made_by("bert.plan")
        self.assertTrue(all(np.isfinite(values).all() for values in found.values()))

    @long
    def test_a_lowered_clock(self) -> None:
        lowered = {"MILLRACE_EMULATED_CLOCK_KHZ": "750000"}
        text = " ".join(self.optimize("small.py", "--budget", "20s", **lowered).split())
        if "not measured (budget)" not in text:  # a busy machine may have no time left to read the clock
            self.assertRegex(text, "at 75 % of its highest clock; with idle gaps between steps they take .* at 75 %")
        self.assertNotIn("clock", self.optimize("small.py", "--budget", "0s"))
        text = self.succeed("bench", "small.plan", "--seconds", "0.1", **lowered)
        for words in (r"step +[0-9.]+ [mµ]s .* at 75 % of the highest clock", r"idle-gapped +[0-9.]+ [mµ]s .* at 75 %",
                      "predicted .* [mµ]s; candidates are measured at the highest clock"):
            self.assertRegex(text, words)
        self.assertNotIn("clock", self.succeed("bench", "small.plan", "--seconds", "0.1"))
        told = json.loads(self.succeed("bench", "small.plan", "--seconds", "0.1", "--json", **lowered))
        self.assertEqual(told["relative_clock"], 0.75)
        self.assertEqual(told["idle_gapped_step_seconds"]["relative_clock"], 0.75)
        self.assertAlmostEqual(told["idle_gapped_step_seconds"]["median"], told["step_seconds"]["median"], delta=1e-9)

    def test_the_worker_has_huge_pages(self) -> None:
        asked = self.folder / "tunables"
        script = self.folder / "worker.sh"
        worker = Path(BINARY).parent / "millrace-worker"
        script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$GLIBC_TUNABLES" >>{asked}\nexec {worker} "$@"\n')
        script.chmod(0o700)
        own = {"MILLRACE_WORKER": str(script)}
        self.optimize("one.py", "--budget", "0s", **own)
        self.assertEqual(asked.read_text(), "glibc.malloc.hugetlb=1\n")
        self.optimize("product.py", "--budget", "0s", **own, GLIBC_TUNABLES="glibc.malloc.check=0")
        self.assertEqual(set(asked.read_text().split()), {"glibc.malloc.hugetlb=1", "glibc.malloc.check=0"})
        asked.unlink()
        self.succeed("optimize", "one.py", "--budget", "0s", **own)
        self.assertEqual(asked.read_text(), "\n", "CPU kernels are timed with other pages than a plan's")

    def test_every_candidate_of_a_small_program(self) -> None:
        self.assertIn("a larger --budget tries more", self.optimize("one.py", "--budget", "0s"))
        self.assertNotIn("a larger --budget", self.optimize("one.py", "--exhaustive"))
        again = " ".join(self.optimize("one.py", "--exhaustive").split())
        self.assertIn("(0 new)", again)
        self.assertIn("are equal to these, or differ only in the strides between cache lines", again)

    def test_doctor(self) -> None:
        text = self.succeed("doctor")
        for words in ("Emulated GPU, sm_90", "NVRTC", "cuBLASLt", "cuDNN", EMULATED_GPU):
            self.assertIn(words, text)


class AlgorithmTest(GpuTest):
    """Products with every algorithm of the library."""

    def test_algorithms_are_tried_kept_and_selected(self) -> None:
        self.optimize("product.py", "--exhaustive")
        rows = self.rows()
        self.assertEqual({row["outcome"] for row in rows}, {"measured"})
        for number in range(4):
            self.assertTrue(self.rows_by_algorithm(number), number)
        plan = (self.folder / "product.plan" / "plan.json").read_text()
        self.assertEqual(plan.count(f" algorithm {FAST}."), 3, "the fastest one was not selected")
        # A second run finds all of them, with their algorithms, and makes the same plan without measuring.
        text = self.optimize("product.py", "--budget", "0s", "--out", "again.plan")
        self.assertIn("(0 new)", text)
        self.assertEqual(self.rows(), rows)
        again = (self.folder / "again.plan" / "plan.json").read_text()
        self.assertEqual(again.count(f" algorithm {FAST}."), 3)

    def test_wrong_and_failing_algorithms_are_never_selected(self) -> None:
        self.optimize("product.py", "--exhaustive", MILLRACE_EMULATED_WRONG=str(FAST), MILLRACE_EMULATED_REFUSED=str(ALIGNED))
        wrong = self.rows_by_algorithm(FAST)
        self.assertTrue(wrong)
        for row in wrong:
            self.assertEqual(row["outcome"], "wrong")
            self.assertIn(", expected ", row["detail"])
        for row in self.rows_by_algorithm(ALIGNED):
            self.assertEqual(row["outcome"], "failed")
        self.assertNotIn(f" algorithm {FAST}.", (self.folder / "product.plan" / "plan.json").read_text())
        # The next run, in which it would be correct, does not select it either: known candidates are not tried again.
        self.optimize("product.py", "--budget", "0s")
        self.assertNotIn(f" algorithm {FAST}.", (self.folder / "product.plan" / "plan.json").read_text())

    def test_an_algorithm_that_breaks_the_gpu_ends_only_its_worker(self) -> None:
        self.optimize("product.py", "--exhaustive", MILLRACE_EMULATED_LOST=str(FAST))
        lost = self.rows_by_algorithm(FAST)
        self.assertTrue(lost)
        self.assertEqual({row["outcome"] for row in lost}, {"crashed"})
        self.assertIn("ILLEGAL_ADDRESS", lost[0]["detail"])
        self.assertNotIn(f" algorithm {FAST}.", (self.folder / "product.plan" / "plan.json").read_text())

    def test_after_a_kill_it_resumes_to_the_same_selection(self) -> None:
        whole = {"MILLRACE_DATA_DIR": str(self.folder / "whole")}
        self.succeed("explore", "product.py", "--device", "cuda", "--exhaustive", **whole)
        wanted = json.loads(self.succeed("select", "product.py", "--device", "cuda", "--json", **whole))
        process = subprocess.Popen(
            [BINARY, "explore", "product.py", "--device", "cuda", "--exhaustive"], cwd=self.folder,
            env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(1200):
            if (self.folder / "data" / "measurements.db").exists() and len(self.rows()) >= 3:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        kept = self.rows()
        self.assertGreaterEqual(len(kept), 3)
        self.succeed("explore", "product.py", "--device", "cuda", "--exhaustive")
        after = self.rows()
        for row in kept:
            self.assertIn(row, after, "a row was measured again, or lost")
        self.assertEqual(json.loads(self.succeed("select", "product.py", "--device", "cuda", "--json")), wanted)

    @long
    def test_a_plan_on_another_gpu(self) -> None:
        self.optimize("small.py", "--budget", "0s")
        wanted = self.made_by("small.plan")
        # Its kernels are compiled again; measurements of other devices do not count.
        other = {"MILLRACE_EMULATED_NAME": "Another GPU", "MILLRACE_EMULATED_CAPABILITY": "8.0"}
        self.environment.update(other)
        for name, values in self.made_by("small.plan").items():
            np.testing.assert_array_equal(values, wanted[name], name)
        self.assertIn("another machine", self.succeed("report", "small.plan", "--out", "r.html"))
        self.assertIn("explore", self.fails(NO_CONFIGURATION, "select", "small.py", "--device", "cuda"))
        # The message for a missing algorithm says what to do.
        self.optimize("product.py", "--exhaustive")
        message = self.fails(FAILED, "run", "product.plan", MILLRACE_EMULATED_REFUSED=str(FAST))
        self.assertIn(f"does not accept its algorithm {FAST}", message)
        self.assertIn("explore again", message)

    def test_a_gpu_without_enough_memory(self) -> None:
        message = self.fails(FAILED, "optimize", "product.py", "--device", "cuda", MILLRACE_EMULATED_MEMORY="1000")
        self.assertIn("OUT_OF_MEMORY", message)


if __name__ == "__main__":
    unittest.main()
