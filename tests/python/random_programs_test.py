"""Compares random programs under NumPy and in the reference interpreter, within computed error bounds."""

import json
import os
import random
import subprocess
import unittest
import warnings

import numpy as np

import millrace.numpy
from command_test_case import ROOT, long

RANDOM_PROGRAMS = os.environ.get("MILLRACE_RANDOM_PROGRAMS", str(ROOT / "build/release/tests/random_programs"))
MOST_FAILURES = 10
# Below the smallest normal number rounding errors are absolute; the bounds ignore underflow.
TINY = float(np.finfo(np.float64).tiny)


def numbers(texts):
    """A flat list of numbers, in which infinities are strings."""
    return np.array([float(text) for text in texts], dtype=np.float64)


def argument(given, dtype):
    """A tensor, or a plain float for a by-value scalar. Integers and booleans keep their type."""
    data = numbers(given["data"])
    kept = given["dtype"] in ("int32", "int64", "bool")
    return (float(data[0]) if given["shape"] is None
            else data.astype(given["dtype"] if kept else dtype).reshape(given["shape"]))


def run(case, dtype):
    """The results of the program executed by Python."""
    names = {}
    exec(compile(case["text"], f"<random program {case['seed']}>", "exec"), names)
    millrace.numpy.seed(case["random_seed"], case["step"])
    arguments = {name: argument(given, dtype) for name, given in case["inputs"].items()}
    results = names["program"](**arguments)
    return results if isinstance(results, tuple) else (results,)


def complaint_about(case):
    """The error in the program's results, or None.

    The bounds hold for Millrace's order of summation; another order may lose more to cancellation. If NumPy in float64
    exceeds a bound, its extended precision decides whether Millrace is wrong. The error of extended precision is that
    of float64 scaled by the additional bits; a factor of 8 allows for roundings that do not scale exactly.
    """
    plain = run(case, np.float64)
    nothing = [np.zeros(np.size(result)) for result in plain]
    if not compared(case, plain, nothing):
        return None
    extended = run(case, np.longdouble)
    shrunk = 8 * float(np.finfo(np.longdouble).eps) / np.finfo(np.float64).eps
    with np.errstate(invalid="ignore"):
        own_error = [np.nan_to_num(shrunk * np.abs(np.ravel(p) - np.ravel(e))) for p, e in zip(plain, extended)]
    return compared(case, extended, own_error)


def compared(case, results, own_errors):
    """How the results differ from NumPy's, which have the given errors; None if they agree."""
    if len(results) != len(case["results"]):
        return f"NumPy returns {len(results)} results, Millrace {len(case['results'])}"
    for actual, own_error, (name, expected) in zip(results, own_errors, case["results"].items()):
        if list(np.shape(actual)) != expected["shape"]:
            return f"{name} has shape {list(np.shape(actual))} in NumPy, {expected['shape']} in Millrace"
        ours, bound = numbers(expected["data"]), numbers(expected["bound"])
        theirs = np.asarray(actual).reshape(-1)
        finite = np.isfinite(ours) & np.isfinite(theirs)
        with np.errstate(invalid="ignore"):
            near = np.where(finite, np.abs(ours - theirs) <= 2 * bound + own_error + TINY, ours == theirs)
        if not near.all():
            at = int(np.argmin(near))
            return f"{name}[{at}] is {theirs[at]!r} in NumPy, {ours[at]!r} in Millrace, bound {bound[at]!r}"
    return None


class RandomProgramsTest(unittest.TestCase):
    def test_numpy_agrees(self):
        self.check(1000)

    @long
    def test_numpy_agrees_on_many(self):
        self.check(5000)

    def check(self, count):
        self.assertTrue(os.access(RANDOM_PROGRAMS, os.X_OK), f"{RANDOM_PROGRAMS} does not exist: build it first")
        failures = []
        checked = 0
        first = int(os.environ.get("MILLRACE_SEED") or random.randrange(1, 1_000_000_000))
        print(f"programs from seed {first} on; the same ones again: MILLRACE_SEED={first}", flush=True)
        command = [RANDOM_PROGRAMS, "--emit", str(count), "--seed", str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, warnings.catch_warnings():
            warnings.simplefilter("error")
            for line in process.stdout:
                if not line.startswith("{"):  # an error of the generator
                    failures.append(line.strip())
                    continue
                case = json.loads(line)
                try:
                    complaint = complaint_about(case)
                except Exception as error:  # any failure: print how to repeat it
                    complaint = f"{type(error).__name__}: {error}"
                checked += 1
                if complaint:
                    failures.append(f"MILLRACE_SEED={case['seed']} ./millrace test python.random   # {complaint}")
                if len(failures) == MOST_FAILURES:
                    process.terminate()
                    break
        self.assertFalse(failures, "\n" + "\n".join(failures))
        self.assertEqual(process.returncode, 0)
        self.assertEqual(checked, count)


if __name__ == "__main__":
    unittest.main()
