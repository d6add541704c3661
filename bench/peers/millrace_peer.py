"""Millrace as a contestant: `optimize` once, `bench` in every round, `run` to compare its values."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from peers.environment import ROOT
from peers.report import RoundTime

sys.path.insert(0, str(ROOT / "tests/python"))
import safetensors_io  # noqa: E402  (found through the line above)

NAME = "Millrace"


class MillraceFailed(Exception):
    """A command of Millrace failed; the message is its output."""


def round_time(printed: str) -> RoundTime:
    """Parses the output of `millrace bench --json`."""
    report = json.loads(printed)
    if report["schema_version"] != 2:
        raise ValueError(f"schema version {report['schema_version']}, not 2")
    return RoundTime(report["forward_seconds"], report["backward_seconds"], report["step_seconds"]["median"])


class MillracePeer:
    """One program with one set of sizes; the folder is for its plan and tensors."""

    name = NAME

    def __init__(self, command: str, program: Path, chosen_sizes: list[str], dtype: str, budget: str, folder: Path, *,
                 device: str | None = None, seconds: float | None = None, layouts: tuple[str, ...] = ()):
        self.command, self.dtype, self.folder = command, dtype, folder
        self.optimize = ["optimize", str(program), "--dtype", dtype, "--budget", budget, "--out", str(folder)]
        self.optimize += [word for size in chosen_sizes for word in ("--size", size)]
        self.optimize += ["--device", device] if device else []
        self.optimize += [word for layout in layouts for word in ("--layout", layout)]
        self.bench = ["--json", *(["--seconds", str(seconds)] if seconds else [])]
        self.use_plan(folder)

    def millrace(self, *arguments: str) -> str:
        done = subprocess.run([self.command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            shown = done.stderr.strip() or done.stdout.strip()
            raise MillraceFailed(f"millrace {' '.join(arguments)}: exit {done.returncode}: {shown}")
        return done.stdout

    def use_plan(self, path: Path) -> None:
        """`path`: a plan, or its folder."""
        self.plan = str(path if path.suffix == ".json" else path / "plan.json")

    def take_inputs(self, path: Path) -> None:
        """Times with these inputs: the values affect a GPU's power draw, and so its clock."""
        self.bench += ["--in", str(path)]

    def time_with(self, tensors: dict[str, np.ndarray]) -> None:
        """Times with these tensors."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.take_inputs(self.write_inputs(tensors))

    def prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.millrace(*self.optimize)

    def round(self) -> RoundTime:
        printed = self.millrace("bench", self.plan, *self.bench)
        try:
            return round_time(printed)
        except (ValueError, KeyError, TypeError) as error:
            raise MillraceFailed(f"millrace bench printed an invalid report: {error!r}") from error

    def results(self, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self.results_of(self.write_inputs(tensors), self.folder / "out.safetensors")

    def write_inputs(self, tensors: dict[str, np.ndarray]) -> Path:
        given = self.folder / "in.safetensors"
        stored = np.float64 if self.dtype == "float64" else np.float32
        safetensors_io.write(given, {name: tensor if tensor.dtype == bool else tensor.astype(stored)
                                     for name, tensor in tensors.items()})
        return given

    def results_of(self, given: Path, made: Path) -> dict[str, np.ndarray]:
        self.millrace("run", self.plan, "--in", str(given), "--out", str(made))
        return {name: tensor.astype(np.float64) for name, tensor in safetensors_io.read(made).items()}
