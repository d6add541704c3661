"""The on-disk cache of plans: one for each program, shape, dtype and machine."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import platform
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import Mapping, NamedTuple, Sequence

from millrace import _library
from millrace.commands import run_command, sizes_list

EXPLORED, DEFAULT = "explored", "default"


class Machine(NamedTuple):
    """What a plan was made for."""

    device: str  # "cpu" or "cuda"
    threads: int
    hardware: str  # the name of the GPU, or what is known of the CPU


_found: dict[str, Machine] = {}  # the plans that this process found, by folder


def cache_directory() -> Path:
    """The same folder as the library's; only the user may write to it."""
    environment = os.environ
    if own := environment.get("MILLRACE_CACHE_DIR"):
        folder = Path(own).absolute()
    elif environment.get("XDG_CACHE_HOME", "").startswith("/"):
        folder = Path(environment["XDG_CACHE_HOME"], "millrace")
    else:
        folder = Path.home() / ".cache/millrace"
    return private_directory(folder)


def private_directory(folder: Path) -> Path:
    """Creates the folder if absent. Rejects one that another user could have written to."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _library.MillraceError(
            f"{folder} belongs to another user, or others may write to it; set MILLRACE_CACHE_DIR to a private folder")
    return folder


def write_whole(file: Path, text: str) -> None:
    """Writes a file that other processes see only when it is complete."""
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as work:
        work.write(text)
    Path(work.name).rename(file)


def plan_folder(text: str, sizes: Mapping[str, int], dtype: str, device: str, threads: int, entry: str,
                hardware: str, layouts: Sequence[str] = ()) -> Path:
    """The folder of this program's plans; it may not exist yet."""
    key = [_version(), text, entry, sorted(sizes.items()), dtype, device, threads, hardware or processor(),
           list(layouts)]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
    return cache_directory() / "plans" / digest[:40]


def find_plan(text: str, sizes: Mapping[str, int], dtype: str, *, device: str = "cpu", threads: int = 0,
              entry: str = "", budget: str | None = None, name: str = "program", hardware: str = "",
              layouts: Sequence[str] = ()) -> str:
    """Returns the folder of a plan. Uses the cached explored plan if there is one. Otherwise explores for `budget`
    ("60s"); without a budget makes a default plan, which needs no measurements. Concurrent processes make a plan only
    once. `hardware`: the name of the GPU; `layouts`: values for --layout."""
    if device == "cpu":
        threads = threads or _default_threads()
    folder = plan_folder(text, sizes, dtype, device, threads, entry, hardware, layouts)
    found = _find(folder, text, sizes, dtype, device, threads, entry, budget, name, layouts)
    _found[found] = Machine(device, threads, hardware or processor())
    return found


def found_plans() -> dict[str, Machine]:
    """The plans that this process found so far, by folder."""
    return dict(_found)


def _find(folder: Path, text: str, sizes: Mapping[str, int], dtype: str, device: str, threads: int, entry: str,
          budget: str | None, name: str, layouts: Sequence[str]) -> str:
    for kind in (EXPLORED, DEFAULT) if budget is None else (EXPLORED,):
        if (folder / kind / "plan.json").exists():
            return str(folder / kind)
    private_directory(folder.parent)
    private_directory(folder)
    kind = DEFAULT if budget is None else EXPLORED
    with locked(folder / "lock"):
        if not (folder / kind / "plan.json").exists():
            _make(folder, kind, text, sizes, dtype, device, threads, entry, budget, name, layouts)
    return str(folder / kind)


def _make(folder: Path, kind: str, text: str, sizes: Mapping[str, int], dtype: str, device: str, threads: int,
          entry: str, budget: str | None, name: str, layouts: Sequence[str]) -> None:
    options = dict(sizes=sizes_list(dict(sizes)), dtype=dtype, device=device, threads=threads, entry=entry or None,
                   layouts=list(layouts))
    work = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=folder))  # renamed when complete
    try:
        program = work / f"{name}.py"
        program.write_text(text)
        if budget is None:
            run_command("plan", program, out=str(work / "plan"), quiet=True, **options)
        else:
            shown = ", ".join([*(f"{size} {value}" for size, value in sizes.items()), *([dtype] if dtype else [])])
            print(f"millrace: exploring {name}{f' ({shown})' if shown else ''} for {budget}; kept in {folder}", file=sys.stderr)
            run_command("optimize", program, out=str(work / "plan"), budget=budget, **options)
        shutil.rmtree(folder / kind, ignore_errors=True)  # left by a killed process
        (work / "plan").rename(folder / kind)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def locked(path: Path):
    """Other processes wait."""
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@functools.cache
def _version() -> str:
    """A different build of the library may choose differently and generate different kernels."""
    return hashlib.sha256(_library.library_path().read_bytes()).hexdigest()


@functools.cache
def processor() -> str:
    """The properties of the CPU that a plan's times and kernels depend on."""
    lines = []
    with contextlib.suppress(OSError):
        named = ("model name", "flags", "Features", "CPU implementer", "CPU part")
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if not line.strip():
                break
            if line.startswith(named):
                lines.append(line)
    return "\n".join([platform.machine(), *lines])


def _default_threads() -> int:
    def wanted(variable: str) -> int | None:
        with contextlib.suppress(ValueError):
            return max(1, int(os.environ.get(variable, "")))
        return None

    count = wanted("OMP_NUM_THREADS") or len(os.sched_getaffinity(0))
    return min(count, wanted("OMP_THREAD_LIMIT") or count)
