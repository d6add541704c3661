#!/usr/bin/env python3
"""check_wheel.py WHEEL...: checks that wheels contain what they should, and nothing else."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILT = {f"millrace/lib/{name}" for name in ("millrace", "millrace-guard", "millrace-worker", "libmillrace.so")}
SOURCES = {"millrace/torch/csrc/operator.cpp", "millrace/torch/csrc/allocation.h", "millrace/torch/csrc/kept_memory.h",
           "millrace/include/millrace/c_api.h", "millrace/include/millrace/version.h"}
OPTIONAL = {f"millrace/lib/{name}": what for name, what in (
    ("libmillrace_cuda.so", "the GPU backend: CUDA's headers were not found"),
    ("libmillrace_torch.so", "PyTorch's operator: millrace.torch will compile it when it is first imported"),
    ("libgomp.so.1", "OpenMP's library: it is for this machine"),
    ("libsqlite3.so.0", "SQLite: it is for this machine"))}
ENTRY_POINTS = ("[console_scripts]\nmillrace = millrace.__main__:main",
                "[torch_dynamo_backends]\nmillrace = millrace.torch.backend:compile_graph")


def required() -> set[str]:
    """Modules of the checkout, `py.typed`, and what CMake builds."""
    package = ROOT / "python/millrace"
    modules = {str(path.relative_to(ROOT / "python")) for path in package.rglob("*.py")}
    return modules | {"millrace/py.typed"} | BUILT | SOURCES


def problems_of(names: set[str], entry_points: str) -> list[str]:
    files = {name for name in names if ".dist-info/" not in name}
    text = entry_points.replace("\r", "")
    return ([f"missing: {name}" for name in sorted(required() - files)]
            + [f"unexpected: {name}" for name in sorted(files - required() - set(OPTIONAL))]
            + [f"no entry point: {entry.splitlines()[-1]}" for entry in ENTRY_POINTS if entry not in text])


def check(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        info = next(name for name in names if name.endswith(".dist-info/METADATA")).rpartition("/")[0]
        problems = problems_of(names, archive.read(f"{info}/entry_points.txt").decode())
        licensed = any(name.startswith(info) and name.endswith("LICENSE") for name in names)
        programs = [archive.getinfo(name) for name in BUILT & names if not name.endswith(".so")]
    problems += [] if licensed else ["missing: LICENSE"]
    problems += [f"not executable: {one.filename}" for one in programs if not one.external_attr >> 16 & 0o111]
    for name in sorted(set(OPTIONAL) - names):
        print(f"{wheel.name} is without {OPTIONAL[name]}")
    return problems


def main() -> int:
    failed = False
    for wheel in map(Path, sys.argv[1:]):
        problems = check(wheel)
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB,", "; ".join(problems) or "complete")
        failed = failed or bool(problems)
    return 1 if failed or len(sys.argv) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
