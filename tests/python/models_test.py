"""Tests every model against NumPy: results of `millrace run`, and its gradients by finite differences.

The command is $MILLRACE, or build/release/millrace. Tests that need it are skipped, with a
message, only if neither exists.
"""

from __future__ import annotations

import unittest

import numpy as np

from model_arguments import NOT_YET, draw_arguments
from numpy_program import ROOT, load_program
from reference_run import SEED, STEP, draw_result_gradients, run_millrace

MODELS = sorted((ROOT / "models").glob("*.py"))
SIZE_SETS = ("tiny", "odd")


class ModelsTest(unittest.TestCase):
    def for_each_case(self, check) -> None:
        """Runs the check on every model with every set of sizes, each as a subtest."""
        self.assertTrue(MODELS)
        for path in MODELS:
            for size_set in SIZE_SETS:
                with self.subTest(model=path.stem, size=size_set):
                    program = load_program(path, size_set)
                    check(path, size_set, program, draw_arguments(path.stem, program))

    def test_runs_under_numpy(self) -> None:
        self.for_each_case(self.check_numpy)

    def test_results_match_numpy(self) -> None:
        self.for_each_case(self.check_results)

    def test_gradients_are_finite_differences(self) -> None:
        self.for_each_case(self.check_gradients)

    def test_every_size_set_loads(self) -> None:
        for path in MODELS:
            size_sets = load_program(path).function.__globals__["SIZES"]
            self.assertLessEqual(set(SIZE_SETS), set(size_sets), path.stem)
            for size_set in size_sets:
                with self.subTest(model=path.stem, size=size_set):
                    program = load_program(path, size_set)
                    for name, shape in program.shapes.items():
                        self.assertTrue(shape is None or min(shape) > 0, name)
                    sizes = program.sizes
                    if "P" in sizes and not path.stem.startswith("t5"):  # T5's heads have any size
                        heads = sizes["H"] if "H" in sizes else sizes["G"] * sizes["R"]
                        self.assertEqual(sizes["I"], sizes["P"] * heads)

    def check_numpy(self, path, size_set, program, arguments) -> None:
        results = program.run(arguments, SEED, STEP)
        again = program.run(arguments, SEED, STEP)
        for name, result in results.items():
            self.assertEqual(result.dtype, np.float64)
            self.assertTrue(np.all(np.isfinite(result)))
            self.assertLess(np.max(np.abs(result)), 1e3)
            np.testing.assert_array_equal(result, again[name])

    def check_results(self, path, size_set, program, arguments) -> None:
        self.skip_if_not_yet(path)
        written = run_millrace(path, size_set, arguments)
        for name, expected in program.run(arguments, SEED, STEP).items():
            self.assertIn(name, written)
            self.assertEqual(written[name].shape, expected.shape)
            error = np.max(np.abs(written[name] - expected))
            self.assertTrue(error <= 1e-12 * np.max(np.abs(expected)), f"{name}: error {error}")

    def skip_if_not_yet(self, path) -> None:
        if path.stem in NOT_YET:
            self.skipTest(f"{path.stem} has {NOT_YET[path.stem]}, which Millrace does not read yet")

    def check_gradients(self, path, size_set, program, arguments) -> None:
        self.skip_if_not_yet(path)
        gradients = draw_result_gradients(program.run(arguments, SEED, STEP))
        written = run_millrace(path, size_set, {**arguments, **gradients})

        def terms(name: str, values: np.ndarray) -> np.ndarray:
            """The terms of the differentiated sum, with an argument replaced."""
            results = program.run({**arguments, name: values}, SEED, STEP)
            return np.concatenate([(results[n] * gradients[f"d_{n}"]).ravel() for n in results])

        rng = np.random.default_rng(2023)
        for name in program.differentiated():
            shape = program.shapes[name]
            self.assertIn(f"d_{name}", written)
            self.assertEqual(written[f"d_{name}"].shape, shape)
            direction = rng.standard_normal(shape)
            exact = np.sum(written[f"d_{name}"] * direction)
            # Some derivatives are exactly zero (softmax is invariant to the keys' bias):
            # they are compared on the scale of the sum's terms.
            floor = 1e-3 * np.linalg.norm(terms(name, arguments[name]))
            errors = []
            for h in (1e-4, 1e-5, 1e-6):
                ahead = terms(name, arguments[name] + h * direction)
                back = terms(name, arguments[name] - h * direction)
                numeric = np.sum(ahead - back) / (2 * h)
                errors.append(abs(exact - numeric) / max(abs(exact), abs(numeric), floor))
            self.assertTrue(any(error <= 1e-6 for error in errors), f"d_{name}: {errors}")


if __name__ == "__main__":
    unittest.main()
