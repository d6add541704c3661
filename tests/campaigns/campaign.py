"""Campaigns: checks that run for hours, slice by slice, and can be stopped and continued at any moment.

A campaign checks one seed after the other. After each slice its state (the next seed, counts, failures) is written to a
file, so a kill loses one slice at most. `record` merges the states into bench/results/campaigns.json; a campaign
without a state continues from there.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "bench/results/campaigns.json"
MOST_REMARKS = 40  # kept of each kind
# What is freed is kept for a while, but not so much that a process is slow to fork; one call of each block's allocation
# is remembered.
SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=32:malloc_context_size=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


@dataclass
class Slice:
    """What was checked: seeds up to next_seed, and how it went."""

    next_seed: int
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[dict] = field(default_factory=list)
    failures: list[dict] = field(default_factory=list)


@dataclass
class Binaries:
    """The builds that campaigns run."""

    release: Path
    sanitized: Path


@dataclass
class Campaign:
    name: str
    goal: tuple[str, int]  # what is counted, and how many
    # (binaries, first seed, seconds, at most so many seeds, a folder for files) → what was checked
    run: Callable[[Binaries, int, float, int, Path], Slice]
    first_seed: int = 1


@dataclass
class State:
    next_seed: int
    first_seed: int
    seconds: float = 0
    slices: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[dict] = field(default_factory=list)
    failures: list[dict] = field(default_factory=list)

    def add(self, done: Slice, seconds: float) -> None:
        self.next_seed = done.next_seed
        self.seconds = round(self.seconds + seconds, 1)
        self.slices += 1
        for what, count in done.counts.items():
            self.counts[what] = self.counts.get(what, 0) + count
        self.notes = (self.notes + done.notes)[:MOST_REMARKS]
        self.failures = (self.failures + done.failures)[:MOST_REMARKS]


class Store:
    """The states of all campaigns in a folder, and the record that they continue."""

    def __init__(self, folder: Path, record: Path = RECORD) -> None:
        self.folder, self.record_file = folder, record
        folder.mkdir(parents=True, exist_ok=True)

    def state_of(self, campaign: Campaign) -> State:
        file = self.folder / f"{campaign.name}.json"
        if file.exists():
            return State(**json.loads(file.read_text()))
        recorded = self.recorded().get(campaign.name)
        return State(**recorded) if recorded else State(campaign.first_seed, campaign.first_seed)

    def put(self, campaign: Campaign, state: State) -> None:
        written_whole(self.folder / f"{campaign.name}.json", state.__dict__)

    def recorded(self) -> dict:
        return json.loads(self.record_file.read_text())["campaigns"] if self.record_file.exists() else {}

    def record(self, campaigns: list[Campaign]) -> None:
        states = {each.name: self.state_of(each).__dict__ for each in campaigns}
        written_whole(self.record_file, {"schema_version": 1, "campaigns": {**self.recorded(), **states}})


def written_whole(file: Path, content: dict) -> None:
    """Writes a file that is complete at every moment."""
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(fresh, file)


def folder_in_memory() -> str | None:
    """A folder in memory, so that no disk is waited for; nothing if programs may not be executed there."""
    folder = "/dev/shm"
    usable = os.access(folder, os.W_OK) and not os.statvfs(folder).f_flag & os.ST_NOEXEC
    return folder if usable else None


def run_slice(campaign: Campaign, store: Store, binaries: Binaries, seconds: float, most: int) -> Slice:
    state = store.state_of(campaign)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="campaign.", dir=folder_in_memory()) as folder:
        done = campaign.run(binaries, state.next_seed, seconds, most, Path(folder))
    state.add(done, time.monotonic() - begin)
    store.put(campaign, state)
    return done


def table(campaigns: list[Campaign], store: Store) -> str:
    lines = [f"{'campaign':18} {'done':>14} {'goal':>14}  {'failures':>8} {'hours':>6}  counts"]
    for campaign in campaigns:
        state = store.state_of(campaign)
        unit, goal = campaign.goal
        counts = ", ".join(f"{count:,} {what}" for what, count in sorted(state.counts.items()))
        lines.append(
            f"{campaign.name:18} {state.counts.get(unit, 0):14,} {goal:14,}  {len(state.failures):8} "
            f"{state.seconds / 3600:6.2f}  {counts}"
        )
    return "\n".join(lines)


def program_slice(check: str, sanitized: bool = False) -> Callable[[Binaries, int, float, int, Path], Slice]:
    """A slice by the program campaign_checks (tests/campaigns/checks/)."""

    def run(binaries: Binaries, seed: int, seconds: float, most: int, folder: Path) -> Slice:
        build = binaries.sanitized if sanitized else binaries.release
        return checked(build / "tests/campaign_checks", check, seed, seconds, most, folder)

    return run


def checked(program: Path, check: str, seed: int, seconds: float, most: int, folder: Path) -> Slice:
    environment = {
        **os.environ, "MILLRACE_TEST_KERNELS": str(folder), "MILLRACE_CACHE_DIR": str(folder / "cache"),
        "TMPDIR": str(folder), **SANITIZER_OPTIONS,
    }
    (folder / "cache").mkdir(mode=0o700)
    done = subprocess.run(
        [str(program), check, str(seed), str(seconds), str(most)], env=environment, capture_output=True, text=True,
        errors="replace",
    )
    lines = done.stdout.splitlines()
    if done.returncode == 0 and lines:
        return Slice(**json.loads(lines[-1]))
    last = max((int(line.split()[1]) for line in lines if line.startswith("seed ")), default=seed)
    what = f"exit code {done.returncode}: {done.stderr[:3000]}"
    return Slice(last + 1, {}, [], [{"seed": str(last), "what": what}])
