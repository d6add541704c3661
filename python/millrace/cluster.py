"""Explores one program on many devices at once, into one database.

    from millrace import cluster
    cluster.explore("layer.py", "layer.db", device="cuda", budget="10m", workers=cluster.Ray(16))

Every worker has a device of its own and tries its share of the candidates (`millrace explore --shard`); the rows come
back to the caller, so machines need no common file system. docs/cluster.md shows Ray, Slurm and torchrun.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable, Iterable, NamedTuple, Protocol

from millrace._library import MillraceError, library_path
from millrace.commands import Sizes, sizes_list


class Job(NamedTuple):
    """What every worker explores. It contains the program's text: a worker may be on another machine."""

    name: str
    text: str
    options: tuple[str, ...]  # of `millrace explore`


class Progress(NamedTuple):
    seconds: float  # since the start
    rows: tuple[int, ...]  # outcomes of each worker so far
    running: int  # workers


class Share:
    """One worker's exploration, in a process of its own. A Ray actor is one of these on another machine."""

    def __init__(self, job: Job, number: int, count: int, environment: dict[str, str] | None = None):
        self._folder = tempfile.TemporaryDirectory(prefix="millrace-share-")
        folder = Path(self._folder.name)
        self._database = folder / "share.db"
        program = folder / Path(job.name).name
        program.write_text(job.text)
        self._process = subprocess.Popen(
            [_executable(), "explore", str(program), *job.options, "--shard", f"{number}/{count}", "--db",
             str(self._database)],
            env={**os.environ, **(environment or {})}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def state(self) -> tuple[int, bool]:
        """The number of outcomes so far, and whether the exploration is still running."""
        return self._rows(), self._process.poll() is None

    def lines(self) -> str:
        """Waits for the end and returns all outcomes, as `millrace db export` writes them."""
        _, message = self._process.communicate()
        if self._process.returncode != 0:
            raise MillraceError(message.strip(), self._process.returncode)
        return _run("db", "export", "--db", str(self._database))

    def _rows(self) -> int:
        try:
            connection = sqlite3.connect(f"file:{self._database}?mode=ro", uri=True, timeout=0.1)
            try:
                return connection.execute("SELECT count(*) FROM measurement").fetchone()[0]
            finally:
                connection.close()
        except sqlite3.Error:  # not created yet, or being written
            return 0


class Workers(Protocol):
    """Where shares are explored."""

    def start(self, job: Job) -> None: ...
    def states(self) -> list[tuple[int, bool]]: ...
    def lines(self) -> Iterable[str]: ...


class Processes:
    """Workers on this machine, distributed over its GPUs in turn. On a CPU use one worker: several would disturb each
    other's measurements."""

    def __init__(self, count: int = 1):
        self._count = count
        self._shares: list[Share] = []

    def start(self, job: Job) -> None:
        gpus = "cuda" in job.options
        self._shares = [Share(job, k + 1, self._count, {"CUDA_VISIBLE_DEVICES": str(k)} if gpus else None)
                        for k in range(self._count)]

    def states(self) -> list[tuple[int, bool]]:
        return [share.state() for share in self._shares]

    def lines(self) -> Iterable[str]:
        return [share.lines() for share in self._shares]


class Ray:
    """Actors of a Ray cluster, one for each device. Ray must be initialized, or ray.init() finds or starts a cluster.
    `cpus`: the cores that a CPU worker gets; a worker on a GPU gets the whole GPU."""

    def __init__(self, count: int | None = None, cpus: int | None = None):
        self._count = count
        self._cpus = cpus
        self._actors: list = []

    def start(self, job: Job) -> None:
        import ray

        if not ray.is_initialized():
            ray.init(log_to_driver=False)
        have = ray.cluster_resources()
        gpus = "cuda" in job.options
        cpus = self._cpus or max(1, int(have.get("CPU", 1)) // max(1, len(ray.nodes())))
        count = self._count or max(1, int(have.get("GPU", 0) if gpus else have.get("CPU", 1) // cpus))
        # state() answers while lines() waits.
        actor = ray.remote(Share).options(max_concurrency=2, num_gpus=1 if gpus else 0, num_cpus=1 if gpus else cpus)
        self._actors = [actor.remote(job, k + 1, count) for k in range(count)]

    def states(self) -> list[tuple[int, bool]]:
        import ray

        return ray.get([actor.state.remote() for actor in self._actors])

    def lines(self) -> Iterable[str]:
        import ray

        for actor in self._actors:
            yield ray.get(actor.lines.remote())
            ray.kill(actor)


def show(progress: Progress) -> None:
    """Prints the progress on one line of standard error if that is a terminal."""
    if not sys.stderr.isatty():
        return
    sys.stderr.write(f"\r\x1b[K{sum(progress.rows)} candidates tried by {len(progress.rows)} workers, "
                     f"{progress.running} running, {progress.seconds:.0f} s")
    sys.stderr.flush()


def explore(program, database, *, workers: Workers | None = None, sizes: Sizes = None, dtype: str | None = None,
            entry: str | None = None, device: str = "cpu", budget: str = "60s", layouts: Iterable[str] = (),
            threads: int | None = None, progress: Callable[[Progress], None] = show, every: float = 0.5) -> dict:
    """Explores with all workers and adds their outcomes to the file `database`. Returns what was added, as
    `millrace db import --json` does. `progress` is called every `every` seconds."""
    begin = time.monotonic()
    workers = Processes() if workers is None else workers
    workers.start(Job(os.fspath(program), Path(program).read_text(),
                      _options(sizes, dtype, entry, device, budget, layouts, threads)))
    while True:
        states = workers.states()
        running = sum(runs for _, runs in states)
        progress(Progress(time.monotonic() - begin, tuple(rows for rows, _ in states), running))
        if running == 0:
            break
        time.sleep(every)
    if progress is show and sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    return _add("".join(workers.lines()), os.fspath(database))


def _options(sizes: Sizes, dtype: str | None, entry: str | None, device: str, budget: str, layouts: Iterable[str],
             threads: int | None) -> tuple[str, ...]:
    options = ["--device", device, "--budget", budget]
    for size in sizes_list(sizes):
        options += ["--size", size]
    for layout in layouts:
        options += ["--layout", layout]
    for name, value in (("--dtype", dtype), ("--entry", entry), ("--threads", threads)):
        options += [] if value is None else [name, str(value)]
    return tuple(options)


def _add(lines: str, database: str) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.jsonl"
        rows.write_text(lines)
        return json.loads(_run("db", "import", str(rows), "--db", database, "--json"))


def _executable() -> str:
    return os.environ.get("MILLRACE") or str(library_path().parent / "millrace")


def _run(*arguments: str) -> str:
    done = subprocess.run([_executable(), *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise MillraceError(done.stderr.strip(), done.returncode)
    return done.stdout
