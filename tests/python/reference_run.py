"""Runs a program with the reference interpreter of the `millrace` command, and draws gradients of results for it.

The command is $MILLRACE, or build/release/millrace. A test that needs it is skipped, with a message, only if neither
exists.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy as np

import safetensors_io
from numpy_program import ROOT

SEED, STEP = 7, 3


def draw_result_gradients(results: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Gradients of the results: their factors in the scalar that is differentiated."""
    rng = np.random.default_rng(2022)
    return {f"d_{name}": np.asarray(rng.standard_normal(result.shape)) for name, result in results.items()}


def run_millrace(path: Path, size_set: str, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The results of the reference interpreter for these tensors; with gradients of results, gradients too."""
    binary = os.environ.get("MILLRACE")
    if binary is None:
        binary = str(ROOT / "build/release/millrace")
        if not os.path.exists(binary):
            raise unittest.SkipTest(f"MILLRACE is not set and {binary} does not exist")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.safetensors"), Path(folder, "out.safetensors")
        safetensors_io.write(source, tensors)
        command = [binary, "run", str(path), "--size", size_set, "--device", "reference"]
        command += ["--seed", str(SEED), "--step", str(STEP)]
        command += ["--in", str(source), "--out", str(target)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
        return safetensors_io.read(target)
