"""Compares on a GPU: the whole layer, and multi-head attention alone.

For each: makes or reuses plans, compares the values of all contestants with dropout 0, prepares the contestants one
at a time, because torch.compile times kernels while it compiles, and then lets them take turns in every round. Each
contestant is a separate process. A contestant that fails becomes a row with the reason.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import functools
import os
import secrets
import sys
import tempfile
import time
from pathlib import Path

from peers import agreement, bert_tensors, environment, gpu_report, mha_tensors, millrace_peer, program, report
from peers import contestants as lists
from peers.environment import ROOT, Unavailable, say
from peers.millrace_peer import NAME as MILLRACE
from peers.millrace_peer import MillracePeer, safetensors_io
from peers.worker_peer import WorkerPeer

MODELS = {"layer": "bert", "attention": "mha"}
FILES = {"bert": "bert_encoder.py", "mha": "mha.py"}
MODEL_FOLDER = ROOT / "models"  # defines the tensors that all contestants get, in their own orders of axes
PROGRAM_FOLDER = ROOT / "bench/programs"  # the programs that Millrace runs, with the frameworks' order of axes
TENSORS = {"bert": bert_tensors, "mha": mha_tensors}
CHECK_SECONDS, PREPARE_SECONDS, ROUND_SECONDS = 240, 300, 60  # time limits of a contestant
CHECKS_AT_ONCE = 6  # in parallel: nothing is timed
BENCH_SECONDS = 1.0  # for Millrace in a round


def one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]


class Clock:
    """The time limit of the whole comparison."""

    def __init__(self, minutes: float):
        self.end = time.monotonic() + 60 * minutes

    def left(self) -> float:
        return self.end - time.monotonic()

    def at_most(self, seconds: float) -> float:
        return max(1.0, min(seconds, self.left()))


class GpuComparison:
    """One part of the model with its sizes, dtype and dropout. `folder` is for its files."""

    def __init__(self, options: argparse.Namespace, part: str, folder: Path, clock: Clock):
        self.options, self.part, self.folder, self.clock = options, part, folder, clock
        self.model = MODELS[part]
        self.program = PROGRAM_FOLDER / FILES[self.model]
        self.tensors, self.text = TENSORS[self.model], self.program.read_text()
        self.chosen_sizes = self._chosen_sizes()
        self.sizes = program.sizes_of(self.text, self.chosen_sizes)
        if reason := self.tensors.why_not(self.sizes):
            raise ValueError(reason)
        self.contestants = lists.chosen(self.model, options.only)
        self.failures: dict[str, str] = {}
        self.seed = secrets.randbelow(2**31)

    def _chosen_sizes(self) -> list[str]:
        """The requested sizes; attention has as many keys as queries."""
        if self.model == "bert":
            return self.options.size
        layer = program.sizes_of((PROGRAM_FOLDER / FILES["bert"]).read_text(), self.options.size)
        return [f"{name}={layer[name]}" for name in ("P", "W", "H", "B", "J", "K")]

    # --- Millrace ---

    def plan_name(self, dropout: float) -> str:
        return "-".join([self.model, *self.options.size, self.options.dtype, f"p{dropout:g}"]).replace("=", "")

    def millrace(self, dropout: float, budget: str) -> MillracePeer:
        path = self.program
        if dropout != program.DEFAULT_DROPOUT:
            path = self.folder / f"dropout_{dropout:g}" / path.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(program.with_dropout(self.text, dropout))
        plans = self.options.plans or self.folder
        return MillracePeer(self.options.millrace, path, self.chosen_sizes, self.options.dtype, budget,
                            plans / self.plan_name(dropout), device="cuda", seconds=BENCH_SECONDS,
                            layouts=self.tensors.STACKED)

    def timed_millrace(self) -> MillracePeer:
        budget = self.options.budget if self.part == "layer" else self.options.attention_budget
        peer = self.millrace(self.options.dropout, budget)
        given = self.options.plan if self.part == "layer" else self.options.attention_plan
        if given:
            peer.use_plan(given)
        return peer

    def make_plan(self, peer: MillracePeer, replace: bool = False) -> None:
        if not replace and Path(peer.plan).exists():
            say(f"{self.part}: the plan is {peer.plan}")
            return
        start = time.monotonic()
        peer.prepare()
        say(f"{self.part}: {peer.plan} made in {time.monotonic() - start:.0f} s")

    def make_plans(self) -> None:
        """Makes the plan to time and the plan without dropout to compare, even if they exist."""
        self.make_plan(self.timed_millrace(), replace=True)
        if self.options.dropout != 0:
            self.make_plan(self.millrace(0.0, self.options.check_budget), replace=True)

    # --- values ---

    @functools.cached_property
    def drawn(self) -> dict:
        """The tensors for the comparison and for timing Millrace; workers draw the same from the seed."""
        return self.tensors.draw(self.sizes, self.seed)

    def specification(self, contestant: lists.Contestant, purpose: str, dtype: str | None = None) -> dict:
        budget = self.options.torch_budget if purpose == "timed" else None  # a check needs no exploration
        return contestant.specification(model=self.model, sizes=self.sizes, dtype=dtype or self.options.dtype,
                                        dropout=self.options.dropout, seed=self.seed, budget=budget)

    def worker(self, contestant: lists.Contestant, purpose: str, dtype: str | None = None) -> WorkerPeer:
        """Separate caches, because torch.compile chooses kernels for the check while other contestants run."""
        words = "".join(letter if letter.isalnum() else "_" for letter in contestant.name)
        caches = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR", self.folder / "inductor"))
        variables = {"TORCHINDUCTOR_CACHE_DIR": str(caches / purpose), "TORCHINDUCTOR_COMPILE_THREADS": "4",
                     "TRITON_CACHE_DIR": str(caches / purpose / "triton"), "PYTHONUNBUFFERED": "1"}
        log = self.folder / f"{self.part}_{words}_{purpose}.log"
        return WorkerPeer(self.specification(contestant, purpose, dtype), log, variables,
                          self.options.python or sys.executable)

    def results_of(self, contestant: lists.Contestant, given: Path, dtype: str | None = None) -> dict:
        made = given.with_name(f"{given.stem}_{secrets.token_hex(4)}.safetensors")
        with self.worker(contestant, "check", dtype) as worker:
            worker.ask({"do": "check", "in": str(given), "out": str(made)}, self.clock.at_most(CHECK_SECONDS))
        results = safetensors_io.read(made)
        made.unlink()
        return results

    def check_agreement(self) -> list[dict]:
        """Compares every contestant, with dropout 0, to the plain layer in float64."""
        say(f"{self.part}: comparing results and gradients with dropout 0")
        given = self.folder / f"{self.part}_in.safetensors"
        safetensors_io.write(given, {name: agreement.rounded(tensor, self.options.dtype).astype("float32")
                                     for name, tensor in self.drawn.items()})
        works = {one.name: (lambda one=one: self.results_of(one, given)) for one in self.contestants}
        if not self.options.peers_only:
            works = {MILLRACE: lambda: self.millrace_results(given)} | works
        try:
            expected = self.results_of(lists.REFERENCE, given, "float64")
        except Exception as error:  # no comparison is possible, but all can be timed
            return [{"name": name, "error": f"no reference: {one_line(error)}"} for name in works]
        first = [name for name in works if name.lower().startswith("millrace")]  # alone: they may time candidates
        rows = {name: self.judged(name, works[name], expected) for name in first}
        with concurrent.futures.ThreadPoolExecutor(CHECKS_AT_ONCE) as pool:
            rest = [name for name in works if name not in rows]
            rows |= zip(rest, pool.map(lambda name: self.judged(name, works[name], expected), rest))
        return list(rows.values())

    def millrace_results(self, given: Path) -> dict:
        peer = self.millrace(0.0, self.options.check_budget)
        self.make_plan(peer)
        own = self.in_millraces_order(safetensors_io.read(given))
        results = peer.results_of(own, self.folder / f"{self.part}_millrace.safetensors")
        return program.transposed(results, self.text, self.model_text(), self.tensors.LIKE)

    def model_text(self) -> str:
        return (MODEL_FOLDER / FILES[self.model]).read_text()

    def in_millraces_order(self, tensors: dict) -> Path:
        """Writes the model's tensors with the order of axes of the timed program; returns the file."""
        own = self.folder / f"{self.part}_millrace_in.safetensors"
        tensors = {name: tensor.astype("float32") for name, tensor in tensors.items()}
        safetensors_io.write(own, program.transposed(tensors, self.model_text(), self.text, self.tensors.LIKE))
        return own

    def judged(self, name: str, work, expected: dict) -> dict:
        try:
            distances = agreement.relative_distances(expected, work(), self.tensors.SCALE_OF)
        except Exception as error:  # any failure: still compare the others
            return {"name": name, "error": one_line(error)}
        worst, tensor = agreement.worst_distance(distances)
        return {"name": name, "result_distance": distances[self.tensors.RESULT], "worst_distance": worst,
                "worst_tensor": tensor, "agrees": worst <= agreement.DISTANCE_TOLERANCE[self.options.dtype],
                "distances": distances}

    # --- times ---

    def measure(self, kept: contextlib.ExitStack) -> tuple[dict[str, list[gpu_report.Round]], dict[str, dict]]:
        """Times by name for each round, and what each contestant reported. `kept` owns the workers."""
        turns, told = {}, {}
        if not self.options.peers_only:
            with self.failing(MILLRACE):
                peer = self.timed_millrace()
                self.make_plan(peer)
                peer.take_inputs(self.in_millraces_order(self.drawn))
                turns[MILLRACE] = lambda: {"graph": peer.round()}
        for one in self.contestants:
            if self.clock.left() < 60:
                self.failures[one.name] = "no time left to prepare it"
                continue
            with self.failing(one.name):
                start, worker = time.monotonic(), kept.enter_context(self.worker(one, "timed"))
                told[one.name] = worker.ask({"do": "prepare"}, self.clock.at_most(PREPARE_SECONDS))
                turns[one.name] = lambda worker=worker: gpu_report.round_of(
                    worker.ask({"do": "round"}, self.clock.at_most(ROUND_SECONDS)))
                say(f"{self.part}: {one.name}: ready after {time.monotonic() - start:.0f} s")
        return self.take_turns(turns), told

    @contextlib.contextmanager
    def failing(self, name: str):
        """Records the reason if a contestant fails; the others continue."""
        try:
            yield
        except Exception as error:
            self.failures[name] = one_line(error)
            say(f"{self.part}: {name}: failed: {self.failures[name]}")

    def take_turns(self, turns: dict) -> dict[str, list[gpu_report.Round]]:
        """Every round starts with a different contestant, so that none always follows the same other."""
        taken: dict[str, list[gpu_report.Round]] = {name: [] for name in turns}
        longest = 0.0
        for number in range(self.options.rounds):
            if number > 0 and self.clock.left() < 1.5 * longest:
                say(f"{self.part}: time is up after {number} rounds")
                break
            start, names = time.monotonic(), list(turns)
            first = number % max(1, len(names))
            for name in names[first:] + names[:first]:
                before = len(self.failures)
                with self.failing(name):
                    taken[name].append(turns[name]())
                if len(self.failures) > before:
                    del turns[name], taken[name]
            longest = max(longest, time.monotonic() - start)
        return {name: times for name, times in taken.items() if times}

    # --- everything ---

    def run(self) -> dict:
        rows = self.check_agreement() if self.options.check else []
        print(f"\n{self.part}: {self.model} {self.sizes}, {self.options.dtype}, dropout {self.options.dropout:g}")
        if rows:
            print("\nrelative distance to the plain layer in float64, with dropout 0:")
            print(gpu_report.agreement_table(rows), flush=True)
        with contextlib.ExitStack() as kept:
            rounds, told = self.measure(kept)
        result = {"model": self.model, "sizes": self.sizes, "seed": self.seed, "agreement": rows, "told": told,
                  "did_not_run": self.failures, "contestants": []}
        if not rounds:
            print(f"\nnothing ran: {self.failures}", flush=True)
            return result
        base, steps = gpu_report.base_times(rounds, MILLRACE)
        notes = {one.name: one.note for one in self.contestants}
        result |= {"base": base, "rounds": len(steps),
                   "contestants": gpu_report.contestant_rows(rounds, steps, notes)}
        print(f"\nmicroseconds, medians over {len(steps)} rounds:")
        print(gpu_report.table(result["contestants"], base, self.failures), flush=True)
        return result


def succeeded(parts: dict[str, dict]) -> bool:
    """Whether Millrace ran and all contestants agree."""
    for result in parts.values():
        if MILLRACE in result["did_not_run"] or not result["contestants"]:
            return False
        rows = result["agreement"]
        if any(row["name"] == MILLRACE and "error" in row or not row.get("agrees", True) for row in rows):
            return False
    return True


def compare_on_gpu(options: argparse.Namespace) -> int:
    gpu = environment.gpu()
    if not gpu:
        raise Unavailable("nvidia-smi found no GPU; omit --device cuda to compare on the CPU")
    out = options.out or ROOT / "bench/results" / gpu_report.file_name(gpu["name"], options.size, options.dtype)
    report.read_report(out)  # fails now rather than after minutes of measuring
    clock = Clock(options.minutes)
    run = environment.circumstances(options.threads) | {
        "gpu": gpu, "command": sys.argv, "dtype": options.dtype, "dropout": options.dropout, "device": "cuda"}
    parts: dict[str, dict] = {}
    with tempfile.TemporaryDirectory(prefix="millrace-compare-") as folder:
        for part in options.parts:
            comparison = GpuComparison(options, part, Path(options.keep or folder), clock)
            comparison.folder.mkdir(parents=True, exist_ok=True)
            if options.plans_only:
                comparison.make_plans()
                continue
            parts[part] = comparison.run()
            case = " ".join([part, *options.size, options.dtype, f"dropout {options.dropout:g}"])
            report.write_run(out, case, run | parts[part])  # now, in case the next part is interrupted
    if options.plans_only:
        return 0
    print(f"\n{gpu['name']}, driver {gpu['driver_version']}, commit {run['git_commit'][:10]}; written to {out}")
    return 0 if succeeded(parts) or options.peers_only else 1
