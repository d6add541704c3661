"""Tests bench/mue.py without a GPU: ncu's output, matching kernels to launches, the metric, and the whole script with
scripts that replace ncu and Millrace."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from numpy_program import ROOT

sys.path.insert(0, str(ROOT / "bench"))
from efficiency import launches, metric, ncu  # noqa: E402  (the path above comes first)
from efficiency.launches import Launch  # noqa: E402
from efficiency.ncu import Kernel  # noqa: E402

FUSED, NORM = f"k_{'a1' * 16}", f"k_{'b2' * 16}"
# A plan names kernels by their source; ncu sees the names in the cubins, which also depend on GPU and compiler.
SEEN, ADVANCE = f"k_{'c3' * 16}", f"k_{'d4' * 16}"
NAMES = {FUSED: FUSED, NORM: NORM, "millrace_advance": ADVANCE}
HEAD = ('"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
        '"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"')


def lines_of(number: int, name: str, read: str, written: str, time: str, units: tuple = ("byte", "byte", "nsecond")):
    front = (f'"{number}","77","millrace","127.0.0.1","{name}","1","7","(256, 1, 1)","(132, 1, 1)","0","9.0",'
             '"Command line profiler metrics",')
    metrics = zip(ncu.METRICS.values(), units, (read, written, time))
    return [f'{front}"{metric}","{unit}","{value}"' for metric, unit, value in metrics]


SAMPLE = "\n".join([
    "==PROF== Connected to process 77 (/tmp/millrace_gpu/build/millrace)",
    HEAD,
    *lines_of(0, "sm90_xmma_gemm_f16f16", "12,582,912", "4,194,304", "10,240"),
    *lines_of(1, SEEN, "8", "4", "20", ("Mbyte", "Mbyte", "us")),
    *lines_of(2, f"{SEEN}_finish", "1000", "0", "1500"),
    *lines_of(3, ADVANCE, "32", "0", "1000"),
    "==PROF== Disconnected from process 77", "",
])


def kernel(name: str, moved: float = 1e6, seconds: float = 1e-5) -> Kernel:
    return Kernel(name, moved, 0, seconds)


def product(name: str) -> Launch:
    return Launch(name, "forward", "", 1000)


class NcuTest(unittest.TestCase):
    def test_kernels_in_the_order_of_their_launches(self) -> None:
        kernels = ncu.parse(SAMPLE)
        self.assertEqual([one.name for one in kernels],
                         ["sm90_xmma_gemm_f16f16", SEEN, f"{SEEN}_finish", ADVANCE])
        self.assertEqual(kernels[0].moved_bytes, 16 * 2**20)
        self.assertAlmostEqual(kernels[0].seconds, 10.24e-6)
        self.assertEqual(kernels[1].moved_bytes, 12e6)
        self.assertAlmostEqual(kernels[1].seconds, 20e-6)
        parameters = "\n".join([HEAD, *lines_of(10, "f(int, float*)", "1", "1", "1"), *lines_of(9, "g", "1", "1", "1")])
        self.assertEqual([one.name for one in ncu.parse(parameters)], ["g", "f"])

    def test_invalid_output_of_ncu(self) -> None:
        one = "\n".join([HEAD, *lines_of(0, "f", "1", "2", "3")])
        for text, said in (
            ("", "printed nothing"),
            ("==ERROR== ERR_NVGPUCTRPERM - no permission", "ERR_NVGPUCTRPERM"),
            (one.replace('"byte","1"', '"byte","n/a"'), "not as expected"),
            (one.replace('"byte"', '"furlong"'), "furlong"),
            ("\n".join(one.splitlines()[:-1]), "no gpu__time_duration.sum for f"),
            ('"a","b"\n"1","2"', "not as expected"),
        ):
            with self.subTest(said), self.assertRaisesRegex(ncu.NcuFailed, said):
                ncu.parse(text)

    def test_clocks_are_left_alone(self) -> None:
        command = ncu.command("ncu", Path("log"), ["millrace", "run", "plan"])
        self.assertEqual(command[command.index("--clock-control") + 1], "none")
        self.assertEqual(command[-3:], ["millrace", "run", "plan"])


class LaunchesTest(unittest.TestCase):
    def names(self, found: list[list[Kernel]]) -> list[list[str]]:
        return [[one.name for one in own] for own in found]

    def test_a_buffer_counts_once_and_a_regenerated_mask_does_not(self) -> None:
        plan = {"buffers": [{"bytes": 8}, {"bytes": 100}], "launches": [
            {"partition": "drop", "pass": "forward", "function": FUSED, "buffers": [0, 0, -1, 1]},
            {"conversion_of": "x", "pass": "backward", "function": NORM, "buffers": [0]}]}
        report = {"tables": {"launches": [{"flop": 5.0}, {"flop": None}]}}
        self.assertEqual(launches.read_launches(plan, report), [
            Launch("drop", "forward", FUSED, 108, 5.0), Launch("conversion of x", "backward", NORM, 8)])
        self.assertIsNone(launches.read_launches(plan, None)[0].flop)
        with self.assertRaisesRegex(launches.Unmatched, "2 launches, its report 0"):
            launches.read_launches(plan, {"tables": {"launches": []}})

    def test_kernels_and_launches(self) -> None:
        fused, norm = Launch("fused", "forward", FUSED, 1), Launch("norm", "forward", NORM, 1)
        steps = [product("q"), product("k"), fused, fused, product("v"), norm]
        kernels = ["gemm_a", "gemm_b", FUSED, f"{FUSED}_finish", FUSED, "gemm_c", "splitKreduce_kernel", NORM,
                   ADVANCE]
        self.assertEqual(self.names(launches.match(steps, [kernel(name) for name in kernels], NAMES)), [
            ["gemm_a"], ["gemm_b"], [FUSED, f"{FUSED}_finish"], [FUSED], ["gemm_c", "splitKreduce_kernel"], [NORM]])

    def test_helpers_of_several_products(self) -> None:
        kernels = [kernel(name) for name in ("memset", "gemm_a", "cublasLt::splitKreduce_kernel", "gemm_b")]
        self.assertEqual(self.names(launches.match([product("q"), product("k")], kernels, NAMES)),
                         [["memset", "gemm_a", "cublasLt::splitKreduce_kernel"], ["gemm_b"]])
        kernels = [kernel(name) for name in ("gemm_a", "globalKernelBgradAB_v2", "gemm_b")]
        self.assertEqual(self.names(launches.match([product("d_w"), product("d_x")], kernels, NAMES)),
                         [["gemm_a", "globalKernelBgradAB_v2"], ["gemm_b"]])
        # With as many kernels as products, names do not matter: a product may be called reduce.
        kernels = [kernel("reduce_1"), kernel("reduce_2")]
        self.assertEqual(len(launches.match([product("q"), product("k")], kernels, NAMES)), 2)

    def test_a_product_with_a_kernel_that_unfolds(self) -> None:
        windows = Launch("conv", "forward", FUSED, 1, unfolds=True)
        steps = [product("q"), windows, product("k"), Launch("norm", "forward", NORM, 1)]
        kernels = ["gemm_a", FUSED, "gemm_b", "splitKreduce_kernel", "gemm_c", NORM]
        self.assertEqual(self.names(launches.match(steps, [kernel(name) for name in kernels], NAMES)),
                         [["gemm_a"], [FUSED, "gemm_b", "splitKreduce_kernel"], ["gemm_c"], [NORM]])
        plan = {"buffers": [], "launches": [{"partition": "conv", "pass": "forward", "function": FUSED, "buffers": [],
                                             "candidate": "0 0 0; cublaslt m 0 n 1 k 2 algorithm heuristic unfolded a"}]}
        self.assertTrue(launches.read_launches(plan, None)[0].unfolds)

    def test_gradients_of_an_attention_by_a_library(self) -> None:
        kernels = ["gemm_a", "compute_dot_do_o_specialized", "cudnn_generated_fort_native_sdpa_bprop",
                   "convert_dq_to_16bits", "gemm_b"]
        steps = [product("d_gamma"), product("attention gradient"), product("d_qq")]
        self.assertEqual(self.names(launches.match(steps, [kernel(name) for name in kernels], NAMES)),
                         [["gemm_a"], kernels[1:4], ["gemm_b"]])

    def test_kernels_of_another_plan(self) -> None:
        fused = Launch("fused", "forward", FUSED, 1)
        for steps, names, said in (
            ([fused], [NORM], f"expected {FUSED} for .*, found {NORM}"),
            ([fused], [], "found none"),
            ([fused], [FUSED, NORM], "1 kernels are left over"),
            ([product("q")], ["gemm_a", "gemm_b"], "1 products from q on, but 2 kernels: gemm_a, gemm_b"),
            ([product("q"), product("k")], ["gemm_a"], "2 products"),
        ):
            with self.subTest(said), self.assertRaisesRegex(launches.Unmatched, said):
                launches.match(steps, [kernel(name) for name in names], NAMES)


class MetricTest(unittest.TestCase):
    ceilings = metric.Ceilings(4e12, 8e14)

    def test_mue_is_q_over_d_times_b_over_best(self) -> None:
        launch = Launch("norm", "forward", NORM, 30_000_000)
        row = metric.counted_row(launch, [kernel(NORM, 36e6, 9e-6), kernel(f"{NORM}_finish", 4e6, 1e-6)], self.ceilings)
        self.assertAlmostEqual(row["bytes_per_second"] / 4e12, 1)
        self.assertAlmostEqual(row["mue"], 75.0)
        self.assertEqual((row["held_by"], row["kernels"]), ("", [NORM, f"{NORM}_finish"]))

    def test_what_limits_a_launch(self) -> None:
        self.assertEqual(metric.held_by(70, None, 1e-6), "")
        self.assertEqual(metric.held_by(20, 0.7, 5e-5), "compute")
        self.assertEqual(metric.held_by(20, 0.7, 5e-6), "compute")
        self.assertEqual(metric.held_by(20, 0.2, 5e-6), "launch")
        self.assertEqual(metric.held_by(20, 0.2, 5e-5), "instructions")
        self.assertEqual(metric.held_by(20, None, 5e-5), "memory access")
        self.assertEqual(metric.held_by(None, None, 5e-5), "")

    def test_without_counters_and_ceilings(self) -> None:
        row = metric.modelled_row(product("q"), 1e-6, metric.Ceilings())
        self.assertEqual((row["moved_bytes"], row["mue"], row["share_of_product_rate"]), (1000, None, None))
        self.assertIsNone(metric.modelled_row(product("q"), 0.0, self.ceilings)["mue"])

    def test_all_together_and_the_table(self) -> None:
        gemm = Launch("q einsum", "forward", "", 16 * 10**6, 8e9)
        rows = [metric.counted_row(gemm, [kernel("gemm", 20e6, 16e-6)], self.ceilings),
                metric.counted_row(Launch("norm", "backward", NORM, 4 * 10**6), [kernel(NORM, 4e6, 4e-6)],
                                   self.ceilings)]
        whole = metric.whole_row(rows, self.ceilings)
        self.assertAlmostEqual(whole["mue"], 25.0)
        shown = metric.table([*rows, whole]).splitlines()
        self.assertEqual(shown[1].split(), "q einsum for 16.00 20.00 0.80 16.0 1.25 62 25.0 compute".split())
        self.assertEqual(shown[2].split(), "norm bac 4.00 4.00 1.00 4.0 1.00 - 25.0 launch".split())
        self.assertEqual(shown[3].split()[0], "all")


class WholeTest(unittest.TestCase):
    """Scripts replace ncu and Millrace."""

    plan = {"program": {"dtype": "float16", "file": "models/mha.py", "sizes": ["tiny"]}, "date": "", "sha256": "",
            "buffers": [{"bytes": 8_000_000}, {"bytes": 4_000_000}],
            "launches": [{"partition": "q einsum", "pass": "forward", "buffers": [0, 1]},
                         {"partition": "norm", "pass": "forward", "buffers": [0, 1], "function": FUSED}]}

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "plan.json").write_text(json.dumps(self.plan))
        operators = [{"seconds": 1e-5}, {"seconds": 2e-5}]
        self.script("millrace", f"""case $1 in
            report) echo '{json.dumps({"tables": {"launches": [{"flop": 1e6}, {"flop": 1e3}]}})}';;
            bench) echo '{json.dumps({"launches": operators})}';;
            *) exit 9;;
            esac""")
        (self.folder / "sample.csv").write_text(SAMPLE)
        self.bundle({FUSED: SEEN, "millrace_advance": ADVANCE})

    def bundle(self, names: dict[str, str]) -> None:
        index = [{"kernel": kernel, "name": name, "bytes": 3} for kernel, name in names.items()]
        (self.folder / "kernels.cubins").write_bytes(json.dumps(index).encode() + b"\n" + b"\xff\x00\n" * len(names))

    def count(self) -> subprocess.CompletedProcess:
        """With a script that writes the sample in place of ncu."""
        log = '''for argument in "$@"; do [ "$before" = --log-file ] && cp SAMPLE "$argument"; before=$argument; done'''
        return self.mue("--ncu", self.script("ncu", log.replace("SAMPLE", str(self.folder / "sample.csv")) + "; true"))

    def script(self, name: str, body: str) -> str:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)

    def mue(self, *arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, str(ROOT / "bench/mue.py"), str(self.folder),
                   "--millrace", str(self.folder / "millrace"), "--python", "/bin/false",
                   "--bandwidth", "4e12", "--out", str(self.folder / "mue.json"), *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    def written(self) -> dict:
        return json.loads((self.folder / "mue.json").read_text())["runs"]["mha tiny float16"]

    def test_counted(self) -> None:
        done = self.count()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("D is measured", done.stdout)
        run = self.written()
        self.assertEqual([row["moved_bytes"] for row in run["launches"]], [16 * 2**20, 12_001_000])
        self.assertAlmostEqual(run["launches"][0]["mue"], 100 * 12e6 / 10.24e-6 / 4e12)
        self.assertEqual(run["bytes_are"], "measured")

    def test_a_plan_without_the_names_of_its_kernels(self) -> None:
        for damage, said in ((lambda: (self.folder / "kernels.cubins").unlink(), "names no kernels"),
                             (lambda: (self.folder / "kernels.cubins").write_bytes(b"\xff\xff"), "names no kernels"),
                             (lambda: self.bundle({NORM: SEEN}), f"lacks {FUSED} for norm"),
                             (lambda: self.bundle({FUSED: NORM}), f"expected {NORM} for norm, found {SEEN}; if the")):
            damage()
            with self.subTest(said):
                done = self.count()
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("D is modelled", done.stdout)
                self.assertIn(said, done.stderr)

    def test_without_ncu_bytes_are_modelled_and_labelled_so(self) -> None:
        done = self.mue("--ncu", str(self.folder / "no_ncu"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("D is modelled", done.stdout)
        self.assertRegex(done.stderr, "no counters: .* not found")
        self.assertEqual([row["moved_bytes"] for row in self.written()["launches"]], [12_000_000] * 2)

    def test_an_invalid_plan(self) -> None:
        (self.folder / "plan.json").write_text("[]")
        done = self.mue()
        self.assertEqual(done.returncode, 1)
        self.assertIn("is not a plan", done.stderr)


if __name__ == "__main__":
    unittest.main()
