"""Tests the Python package without PyTorch: commands, plans on NumPy arrays, the cache of plans, and the layout of the
installed package."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

import millrace
import millrace.numpy
from command_test_case import ROOT
from millrace import _library, plan_cache

LIBRARY = Path(os.environ.get("MILLRACE_LIBRARY") or ROOT / "build/release/libmillrace.so")
BERT = ROOT / "models/bert_encoder.py"
PROGRAM = """
import numpy as np
from millrace.numpy import dropout, fixed, float64, softmax

B = 3
I = 4


def small(x: float64[B, I], w: float64[I, I], mask: fixed.float64[I], s: float64):
    y = np.einsum("bi,ij->bj", x, w) * s
    return dropout(softmax(y + mask), 0.25), np.exp(y)
"""


PRODUCT = """
import numpy as np
from millrace.numpy import float64

B = 3
I = 4


def product(x: float64[B, I], w: float64[I, I], s: float64):
    y = np.einsum("bi,ij->bj", x, w) * s
    return y
"""


STACKED = """
import numpy as np
from millrace.numpy import float64

B = 3
I = 4
O = 6


def stacked(x: float64[B, I], wq: float64[O, I], wk: float64[O, I], wv: float64[O, I]):
    q = np.einsum("bi,oi->bo", x, wq)
    k = np.einsum("bi,oi->bo", x, wk)
    v = np.einsum("bi,oi->bo", x, wv)
    return np.exp(q) * k + v
"""


EMBEDDING = """
import numpy as np
from millrace.numpy import bool_, cross_entropy, float64, int32, int64

V = 7
E = 4
B = 5


def embedding(table: float64[V, E], ids: int64[B], kept: bool_[B], labels: int32[B], w: float64[E, V]):
    rows = np.where(kept[:, None], table[ids], 0.25)
    return cross_entropy(rows @ w, labels), rows
"""


@unittest.skipUnless(LIBRARY.exists(), f"{LIBRARY} is not built")
class LibraryTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.shared.cleanup)
        folder = cls.shared.name
        variables = {"MILLRACE_CACHE_DIR": f"{folder}/cache", "MILLRACE_DATA_DIR": f"{folder}/data"}
        patch = mock.patch.dict(os.environ, variables)
        patch.start()
        cls.addClassCleanup(patch.stop)

    def setUp(self):
        self.folder = Path(self.shared.name)
        self.arguments = [np.random.default_rng(0).normal(size=shape) for shape in ((3, 4), (4, 4), (4,))] + [0.5]

    def plan(self) -> millrace.Plan:
        return millrace.Plan(millrace.find_plan(PROGRAM, {}, "float64", threads=1))

    def test_analyze_and_fuse(self):
        told = millrace.analyze(BERT, sizes="tiny", dtype="float32")
        self.assertEqual(told["schema_version"], 1)
        self.assertGreater(len(millrace.fuse(BERT, sizes={"B": 1})["groups"]), 5)
        with self.assertRaisesRegex(millrace.MillraceError, "no such file|not there|cannot") as caught:
            millrace.analyze("/nowhere.py")
        self.assertIn(caught.exception.code, (1, 2))

    def test_a_locale_with_a_decimal_comma(self):
        """A program that embeds Millrace may have set one."""
        locales, program = self.folder / "locales", self.folder / "quarter.py"
        locales.mkdir()
        if not shutil.which("localedef") or subprocess.run(
            ["localedef", "-i", "de_DE", "-f", "UTF-8", locales / "de_DE.UTF-8"], capture_output=True
        ).returncode != 0:
            self.skipTest("no such locale can be made here")
        program.write_text("A = 4\n\ndef f(x: float32[A]):\n    return x * 0.25\n")
        script = ("import locale, sys, millrace; locale.setlocale(locale.LC_ALL, sys.argv[1]); "
                  "print(millrace.analyze(sys.argv[2]))")
        told = [
            subprocess.run([sys.executable, "-c", script, name, program], capture_output=True, text=True, check=True,
                           env={**os.environ, "LOCPATH": str(locales)}).stdout
            for name in ("C", "de_DE.UTF-8")
        ]
        self.assertIn("'0.25'", told[0])
        self.assertEqual(*told)

    def test_a_plan_agrees_with_numpy(self):
        results, state = self.plan().forward(self.arguments, seed=9, step=2)
        scope: dict = {}
        exec(PROGRAM, scope)
        millrace.numpy.seed(9, 2)
        for found, expected in zip(results, scope["small"](*self.arguments)):
            np.testing.assert_allclose(found, expected, rtol=1e-12)

    def test_integers_and_booleans_are_passed_without_gradients(self):
        rng = np.random.default_rng(3)
        arguments = [rng.normal(size=(7, 4)), np.array([6, 0, 6, 2, 6]), np.array([True, True, False, True, True]),
                     np.array([1, 0, 6, 3, 3], np.int32), rng.normal(size=(4, 7))]
        plan = millrace.Plan(millrace.find_plan(EMBEDDING, {}, "float64", threads=1))
        self.assertEqual([info.dtype for info in plan.arguments], ["float64", "int64", "bool", "int32", "float64"])
        results, state = plan.forward(arguments)
        scope: dict = {}
        exec(EMBEDDING, scope)
        for found, expected in zip(results, scope["embedding"](*arguments)):
            np.testing.assert_allclose(found, expected, rtol=1e-12)
        given = rng.normal(size=(5, 4))
        gradients = plan.backward(state, [np.array(0.0), given])
        self.assertEqual([gradient is None for gradient in gradients], [False, True, True, True, False])
        expected = np.zeros((7, 4))
        np.add.at(expected, arguments[1], given * arguments[2][:, None])
        np.testing.assert_allclose(gradients[0], expected, rtol=1e-12)
        with self.assertRaisesRegex(millrace.MillraceError, "'ids' is int32 where the plan has int64"):
            plan.forward([arguments[0], arguments[1].astype(np.int32), *arguments[2:]])

    def test_gradients_are_those_of_finite_differences(self):
        plan = self.plan()
        given = [np.random.default_rng(1).normal(size=(3, 4)) for _ in range(2)]

        def value(arguments):
            results, _ = plan.forward(arguments, seed=9)
            return sum(float((gradient * result).sum()) for gradient, result in zip(given, results))

        _, state = plan.forward(self.arguments, seed=9)
        for _ in range(2):  # backward can be repeated
            gradients = plan.backward(state, given)
            self.assertEqual([gradient is None for gradient in gradients], [False, False, True, True])
            for k in (0, 1):
                moved = [np.copy(argument) for argument in self.arguments]
                direction = np.random.default_rng(2).normal(size=moved[k].shape)
                ends = []
                for sign in (1, -1):
                    moved[k] = self.arguments[k] + sign * 1e-6 * direction
                    ends.append(value(moved))
                self.assertAlmostEqual((ends[0] - ends[1]) / 2e-6, float((gradients[k] * direction).sum()), places=6)

    def test_arrays_with_other_layouts_are_copied_and_wrong_ones_refused(self):
        plan = self.plan()
        expected, _ = plan.forward(self.arguments)
        x, *rest = self.arguments
        found, _ = plan.forward([np.asfortranarray(x), *rest])
        np.testing.assert_array_equal(found[0], expected[0])
        for wrong, what in (([x], "1 arguments where the plan has 4: x, w, mask, s"),
                            ([x.astype(np.float32), *rest], r"'x' is float32 .* use .astype"),
                            ([x[:2], *rest], r"'x' is \[2, 4\] where the plan has \[3, 4\]")):
            with self.assertRaisesRegex(millrace.MillraceError, what):
                plan.forward(wrong)
        with self.assertRaisesRegex(millrace.MillraceError, "/nowhere"):
            millrace.Plan("/nowhere")

    def test_tensors_by_name_in_every_type(self):
        x, w = np.arange(12.0).reshape(3, 4) % 5 - 2, np.arange(16.0).reshape(4, 4) % 7 - 3
        for dtype in ("float64", "float32", "float16", "bfloat16"):
            with self.subTest(dtype):
                plan = millrace.Plan(millrace.find_plan(PRODUCT, {}, dtype, threads=1))
                tensors = millrace.PlanTensors(plan)
                tensors.set("x", x)
                tensors.set("w", w)
                tensors.set("s", 2)
                tensors.set("d_y", np.ones((3, 4)))
                tensors.step()
                np.testing.assert_array_equal(tensors.get("y"), 2 * (x @ w))
                np.testing.assert_array_equal(tensors.get("d_w"), 2 * x.T @ np.ones((3, 4)))
                self.assertEqual(plan.argument("w").dtype, dtype)
                self.assertEqual((plan.result("y").shape, plan.gradient("d_x").shape), ((3, 4), (3, 4)))
                with self.assertRaisesRegex(millrace.MillraceError, "no gradient 'd_s'"):
                    plan.gradient("d_s")
                with self.assertRaisesRegex(millrace.MillraceError, "did you mean 'd_y'"):
                    tensors.get("d_yy")
                with self.assertRaisesRegex(millrace.MillraceError, "it has 12 elements"):
                    tensors.set("x", x[0])

    def test_half_types_round_to_nearest_even(self):
        bits = np.arange(65536, dtype=np.uint16)
        for name in ("float16", "bfloat16"):
            floats = getattr(millrace, f"from_{name}")(bits)
            back = getattr(millrace, f"to_{name}")(floats)
            np.testing.assert_array_equal(back[~np.isnan(floats)], bits[~np.isnan(floats)])
        between = np.array([0x3F808000, 0x3F818000, 0x3F808001], dtype=np.uint32).view(np.float32)
        np.testing.assert_array_equal(millrace.to_bfloat16(between), [0x3F80, 0x3F82, 0x3F81])

    def test_arrays_that_are_stacked(self):
        layouts = [f"{prefix}q+{prefix}k+{prefix}v=stacked" for prefix in ("w", "d_w")]
        plans = {}
        for pins in ([], layouts):
            path = millrace.find_plan(STACKED, {}, "float64", threads=1, layouts=pins)
            plans[bool(pins)] = millrace.Plan(path)
        self.assertNotEqual(plans[False].path, plans[True].path)
        self.assertEqual([info.follows for info in plans[False].arguments], [-1] * 4)
        for infos in (plans[True].arguments, plans[True].argument_gradients):
            self.assertEqual([info.follows for info in infos], [-1, -1, 1, 2])
        rng = np.random.default_rng(0)
        x, whole = rng.normal(size=(3, 4)), rng.normal(size=(3, 6, 4))
        separate = [array.copy() for array in whole]  # not contiguous: copied into a stack
        gradient = rng.normal(size=(3, 6))
        told = []
        for plan, weights in ((plans[False], separate), (plans[True], separate), (plans[True], list(whole))):
            results, state = plan.forward([x, *weights])
            told.append([*results, *plan.backward(state, [gradient])])
        for others in told[1:]:
            for one, other in zip(told[0], others):
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)
        gradients = told[1][-3:]
        for one, other in zip(gradients, gradients[1:]):
            self.assertEqual(one.ctypes.data + one.nbytes, other.ctypes.data)
        # A contiguous stack is used without a copy.
        taken = plans[True]._all_taken([x, *whole], plans[True].arguments)
        self.assertTrue(all(np.shares_memory(array, whole) for array in taken[1:]))

    def test_optimize_explores_within_its_budget(self):
        program = self.folder / "small.py"
        program.write_text(PROGRAM)
        told = millrace.optimize(program, self.folder / "small.plan", budget="0s", quiet=True, threads=1)
        self.assertTrue(told["checked"])
        self.assertGreater(millrace.bench(self.folder / "small.plan", seconds=0.01)["step_seconds"]["median"], 0)
        with self.assertRaisesRegex(millrace.MillraceError, "nowhere"):
            millrace.bench(self.folder / "small.plan", inputs=self.folder / "nowhere.safetensors")
        explored = millrace.find_plan(PROGRAM, {}, "float64", threads=1, budget="0s")
        self.assertTrue(explored.endswith("explored"))
        self.assertEqual(millrace.find_plan(PROGRAM, {}, "float64", threads=1), explored, "the explored plan is used")

    def test_the_cache_is_the_users_alone(self):
        first = millrace.find_plan(PROGRAM, {"B": 2}, "float32", threads=1)
        written = Path(first, "plan.json").stat().st_mtime_ns
        self.assertEqual(millrace.find_plan(PROGRAM, {"B": 2}, "float32", threads=1), first)
        self.assertEqual(Path(first, "plan.json").stat().st_mtime_ns, written, "made once")
        self.assertEqual(stat.S_IMODE(Path(first).parent.stat().st_mode), 0o700)
        self.assertNotEqual(plan_cache.plan_folder(PROGRAM, {"B": 2}, "float32", "cpu", 1, "", ""),
                            plan_cache.plan_folder(PROGRAM, {"B": 2}, "float32", "cpu", 2, "", ""))
        self.assertEqual([path.name for path in Path(first).parent.iterdir() if path.name not in ("lock", "default")],
                         [], "nothing is left over")
        shared = self.folder / "shared"
        shared.mkdir()
        shared.chmod(0o777)
        with mock.patch.dict(os.environ, {"MILLRACE_CACHE_DIR": str(shared)}):
            with self.assertRaisesRegex(millrace.MillraceError, "set MILLRACE_CACHE_DIR"):
                millrace.find_plan(PROGRAM, {}, "float64")

    def test_concurrent_threads_make_a_plan_once(self):
        found = []
        threads = [threading.Thread(target=lambda: found.append(
            millrace.find_plan(PROGRAM, {"I": 5}, "float64", threads=1))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(found), 4)
        self.assertEqual(len(set(found)), 1)

    def test_a_wrong_program_leaves_nothing(self):
        text = "def f(x: float32[3]):\n    return np.sort(x)\n"
        with self.assertRaisesRegex(millrace.MillraceError, r"wrong\.py:2:12") as caught:
            millrace.find_plan(text, {}, "float32", name="wrong", threads=1)
        self.assertEqual(caught.exception.code, 2)
        folder = plan_cache.plan_folder(text, {}, "float32", "cpu", 1, "", "")
        self.assertEqual([path.name for path in folder.iterdir()], ["lock"])

    def test_cmake_may_be_started_anywhere(self):
        # pip and Ninja start it in other folders.
        done = subprocess.run(["cmake", "-S", ROOT, "-B", self.folder / "build", "-G", "Ninja"], cwd="/",
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_layout_of_the_installed_package(self):
        site = self.folder / "site"
        shutil.copytree(ROOT / "python/millrace", site / "millrace", ignore=shutil.ignore_patterns("__pycache__"))
        subprocess.run(["cmake", "--install", LIBRARY.parent, "--component", "python", "--prefix", site], check=True,
                       capture_output=True)
        self.assertTrue((site / "millrace/torch/csrc/operator.cpp").exists())
        variables = {name: value for name, value in os.environ.items() if name != "MILLRACE_LIBRARY"}
        variables["PYTHONPATH"] = str(site)
        code = ("import millrace, sys\nassert 'numpy' not in sys.modules\n"
                f"print(millrace.analyze({str(BERT)!r}, sizes='tiny')['schema_version'])\n"
                "from millrace import _library\nprint(_library.library_path())\n"
                "try:\n    import millrace.torch\nexcept ImportError as error:\n    print(error)\n")
        done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, cwd="/")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[:2], ["1", str(site / "millrace/lib/libmillrace.so")])
        program = subprocess.run([sys.executable, "-m", "millrace", "--version"], env=variables, capture_output=True,
                                 text=True, cwd="/")
        self.assertIn(millrace.__version__, program.stdout)


class MklOfPip(unittest.TestCase):
    def test_is_found_in_this_python_unless_another_is_named(self) -> None:
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(sys, "prefix", folder):
            with mock.patch.dict(os.environ):
                os.environ.pop("MILLRACE_MKL", None)
                _library.find_mkl()
                self.assertNotIn("MILLRACE_MKL", os.environ)
                file = Path(folder, "lib/libmkl_rt.so.2")
                file.parent.mkdir()
                file.touch()
                _library.find_mkl()
                self.assertEqual(os.environ["MILLRACE_MKL"], str(file))
            with mock.patch.dict(os.environ, MILLRACE_MKL="mine"):
                _library.find_mkl()
                self.assertEqual(os.environ["MILLRACE_MKL"], "mine")


if __name__ == "__main__":
    unittest.main()
