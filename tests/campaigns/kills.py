"""Kills of `explore` at random moments: no row is lost, and the continued exploration selects the same.

A program and a script replace worker and compiler, so that a candidate's text alone determines its time. Each seed is
one exploration that is killed many times; its data and cache folders stay from kill to kill. After each kill, SQLite
reads a copy of the database, so that Millrace is the first to open the original. No earlier row may be missing. At the
end the exploration runs until it is complete, and rows and selection are compared with those of one that nobody killed.
Only kills of a running exploration are counted.

All but one exploration in 32 are of small programs (from seed 50 on; one in 8 until seed 200), so that most kills hit
what happens once: opening files, the first rows, the end. Several run at once: most of the time they wait.
"""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from campaign import Binaries, Campaign, Slice

KILLS = 12  # of one exploration; later ones would find it complete
KILLS_OF_LARGEST = 25
AT_ONCE = 4  # explorations
TOGETHER = 4 * AT_ONCE  # explorations of which some take longer than others
PATIENCE = 3600  # seconds: campaigns run at the lowest priority, and somebody may freeze them

# The first one has 294 candidates, the others 9 to 56.
PROGRAMS = (
    """
A = 8
B = 16
C = 12


def layer(x: float32[A, B], w: float32[C, B], b: float32[C]):
    y = np.einsum("ab,cb->ac", x, w) + b[None, :]
    return softmax(relu(y))
""",
    """
A = 4
B = 6
C = 3


def layer(x: float32[A, B], w: float32[C, B]):
    return np.einsum("ab,cb->ac", x, w)
""",
    """
A = 4


def layer(x: float32[A], b: float32[A]):
    return relu(x) * b
""",
    """
A = 4
B = 6


def layer(x: float32[A, B], b: float32[B]):
    return softmax(x + b)
""",
)
LARGEST = 0  # of PROGRAMS


def program_of(seed: int) -> int:
    return LARGEST if seed % 32 == 0 else 1 + seed % (len(PROGRAMS) - 1)


# Starts as fast as Millrace's own.
WORKER = r"""
#include <cstdio>
#include <iostream>
#include <string>

int main() {
  std::string line;
  if (!std::getline(std::cin, line)) return 0;
  std::puts("ready");
  std::fflush(stdout);
  while (std::getline(std::cin, line)) {
    const std::string name = "\"candidate\":\"";
    unsigned hash = 2166136261u;
    for (std::size_t at = line.find(name) + name.size(); at < line.size() && line[at] != '"'; ++at)
      hash = (hash ^ static_cast<unsigned char>(line[at])) * 16777619u;
    const double seconds = 1e-4 + (hash >> 8) % 1000 * 1e-6;
    std::printf("{\"outcome\": \"measured\", \"seconds\": %.9g, \"low\": %.9g, \"high\": %.9g, \"samples\": 6, "
                "\"detail\": \"\"}\n", seconds, seconds, seconds);
    std::fflush(stdout);
  }
}
"""

COMPILER = """#!/bin/sh
case "$*" in *--version*) echo pretended 1; exit ;; esac
for out; do :; done
echo an object >"$out"
"""


class Tools:
    """A folder with the programs, and what replaces worker and compiler."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self.folder, self.binary = folder, str(binary)
        for number, program in enumerate(PROGRAMS):
            (folder / f"program_{number}.py").write_text(program)
        (folder / "compiler.sh").write_text(COMPILER)
        (folder / "compiler.sh").chmod(0o755)
        subprocess.run(["g++", "-x", "c++", "-", "-o", folder / "worker"], input=WORKER, text=True, check=True)


class Exploration:
    def __init__(self, tools: Tools, name: str, program: int) -> None:
        self.tools, self.data, self.program = tools, tools.folder / name, f"program_{program}.py"
        self.cache = tools.folder / f"{name}.cache"
        self.environment = {
            **os.environ, "MILLRACE_DATA_DIR": str(self.data),
            "MILLRACE_CACHE_DIR": str(self.cache),
            "MILLRACE_WORKER": str(tools.folder / "worker"), "MILLRACE_CXX": str(tools.folder / "compiler.sh"),
        }

    def start(self, *arguments: str) -> subprocess.Popen:
        return subprocess.Popen(
            [self.tools.binary, *arguments], cwd=self.tools.folder, env=self.environment, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )

    def finished(self, *arguments: str) -> str:
        process = self.start(*arguments)
        output, messages = process.communicate(timeout=PATIENCE)
        if process.returncode != 0:
            raise RuntimeError(f"millrace {' '.join(arguments)}: exit code {process.returncode}: {messages[-1000:]}")
        return output

    def whole(self) -> float:
        """Explores everything; returns how long it took."""
        begin = time.monotonic()
        self.finished("explore", self.program, "--exhaustive")
        return time.monotonic() - begin

    def killed_after(self, seconds: float) -> bool:
        """Whether it was still running."""
        process = self.start("explore", self.program, "--exhaustive")
        time.sleep(seconds)
        running = process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE)
        return running

    def stored(self) -> set[tuple]:
        """The rows that the database has now, which stays as it is."""
        copy = Path(f"{self.data}.copy")
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for suffix in ("", "-wal"):
            if (self.data / f"measurements.db{suffix}").exists():
                shutil.copy(self.data / f"measurements.db{suffix}", copy)
        if not (copy / "measurements.db").exists():
            return set()
        connection = sqlite3.connect(copy / "measurements.db")
        try:
            has_table = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'measurement'").fetchone()
            return set(connection.execute("SELECT * FROM measurement")) if has_table[0] else set()
        finally:
            connection.close()

    def remove(self) -> None:
        for folder in (self.data, self.cache, Path(f"{self.data}.copy")):
            shutil.rmtree(folder, ignore_errors=True)

    def untimed_rows(self) -> list[dict]:
        rows = [json.loads(row) for row in sorted(self.finished("db", "export").splitlines())]
        return [{key: row[key] for key in row if key != "when"} for row in rows]

    def selection(self) -> dict:
        return json.loads(self.finished("select", self.program, "--json"))


class Wanted:
    """What an exploration that nobody killed ends with."""

    def __init__(self, tools: Tools, program: int) -> None:
        exploration = Exploration(tools, f"whole_{program}", program)
        self.seconds = exploration.whole()
        self.rows, self.selection = exploration.untimed_rows(), exploration.selection()


def kill_often(seed: int, tools: Tools, wanted: Wanted) -> tuple[str, int]:
    """What is wrong, or nothing; and how many explorations were running when they were killed."""
    chance = random.Random(seed)
    exploration = Exploration(tools, f"killed_{seed}", program_of(seed))
    before: set[tuple] = set()
    kills = 0
    for _ in range(KILLS_OF_LARGEST if program_of(seed) == LARGEST else KILLS):
        # One that continues has less to do than a whole one; most kills are early, where it opens its files.
        kills += exploration.killed_after(chance.uniform(0, wanted.seconds) * chance.random())
        now = exploration.stored()
        if not before <= now:
            return f"after {kills} kills: {len(before - now)} rows were lost", kills
        before = now
    exploration.whole()
    if not before <= exploration.stored():
        return "rows were lost or measured again when the exploration continued", kills
    if exploration.selection() != wanted.selection:
        return "another selection", kills
    right = exploration.untimed_rows() == wanted.rows
    exploration.remove()
    return "" if right else "other rows", kills


def checked(seed: int, tools: Tools, wanted: Wanted) -> tuple[str, int]:
    try:
        return kill_often(seed, tools, wanted)
    except (RuntimeError, subprocess.TimeoutExpired, sqlite3.Error) as error:
        return str(error), 0


def run(binaries: Binaries, seed: int, seconds: float, most: int, folder: Path) -> Slice:
    end, last = time.monotonic() + seconds, seed + most
    tools = Tools(binaries.release / "millrace", folder)
    wanted = [Wanted(tools, program) for program in range(len(PROGRAMS))]
    done = Slice(seed)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while done.next_seed < last and not done.failures:
            seeds = range(done.next_seed, min(done.next_seed + TOGETHER, last))
            outcomes = pool.map(lambda each: checked(each, tools, wanted[program_of(each)]), seeds)
            for each, (wrong, kills) in zip(seeds, outcomes):
                if wrong:
                    done.failures.append({"seed": str(each), "what": wrong})
                done.counts["kills"] = done.counts.get("kills", 0) + kills
                done.counts["explorations"] = done.counts.get("explorations", 0) + 1
            done.next_seed = seeds.stop
            if time.monotonic() > end:
                break
    return done


CAMPAIGNS = [Campaign("kills", ("kills", 10_000), run)]
