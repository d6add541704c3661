"""Runs Nsight Compute: DRAM bytes and time of every kernel, in launch order."""

from __future__ import annotations

import csv
import subprocess
from dataclasses import dataclass
from pathlib import Path

METRICS = {"read_bytes": "dram__bytes_read.sum", "written_bytes": "dram__bytes_write.sum",
           "seconds": "gpu__time_duration.sum"}
# All spellings of the units: versions of ncu differ.
UNITS = {"byte": 1, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9, "tbyte": 1e12,
         "nsecond": 1e-9, "usecond": 1e-6, "msecond": 1e-3, "second": 1, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}


class NcuFailed(Exception):
    """ncu gave no counters; the message says why."""


@dataclass(frozen=True)
class Kernel:
    name: str
    read_bytes: float
    written_bytes: float
    seconds: float

    @property
    def moved_bytes(self) -> float:
        return self.read_bytes + self.written_bytes


def command(ncu: str, log: Path, program: list[str]) -> list[str]:
    """Does not change clocks. Flushes caches before each kernel: that is ncu's default, and how candidates are timed."""
    return [ncu, "--clock-control", "none", "--metrics", ",".join(METRICS.values()), "--csv", "--print-units", "base",
            "--print-kernel-base", "function", "--log-file", str(log), *program]


def count(ncu: str, program: list[str], log: Path, seconds: float) -> list[Kernel]:
    """Runs the program under ncu."""
    try:
        done = subprocess.run(command(ncu, log, program), capture_output=True, text=True, timeout=seconds)
    except FileNotFoundError:
        raise NcuFailed(f"{ncu} not found") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NcuFailed(f"cannot run {ncu}: {error}") from error
    text = log.read_text(errors="replace") if log.exists() else ""
    if done.returncode != 0:
        said = (done.stderr.strip() or text.strip() or done.stdout.strip()).splitlines()[-3:]
        raise NcuFailed(f"ncu ended with {done.returncode}: {' '.join(said)[:400]}")
    return parse(text)


def parse(text: str) -> list[Kernel]:
    """Parses ncu's CSV, one line per metric and kernel; skips ncu's messages."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    if not lines:
        raise NcuFailed(f"ncu counted no kernel: {' '.join(text.split())[-300:] or 'it printed nothing'}")
    found: dict[str, dict] = {}
    for row in csv.DictReader(lines):
        try:
            kernel = found.setdefault(row["ID"], {"name": row["Kernel Name"]})
            kernel[row["Metric Name"]] = number(row["Metric Value"]) * unit(row["Metric Unit"])
        except (KeyError, ValueError) as error:
            raise NcuFailed(f"ncu's output is not as expected: {error!r} in {row}") from error
    return [_kernel(fields) for _, fields in sorted(found.items(), key=lambda entry: int(entry[0]))]


def number(text: str) -> float:
    """Parses "1,234.5"; raises ValueError for "n/a"."""
    return float(text.replace(",", ""))


def unit(name: str) -> float:
    if name.lower() not in UNITS:
        raise ValueError(f"unknown unit '{name}'")
    return UNITS[name.lower()]


def _kernel(fields: dict) -> Kernel:
    if missing := [metric for metric in METRICS.values() if metric not in fields]:
        raise NcuFailed(f"ncu reported no {', '.join(missing)} for {fields['name']}")
    return Kernel(fields["name"].split("(")[0].strip(), *(fields[metric] for metric in METRICS.values()))
