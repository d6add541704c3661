#!/usr/bin/env python3
"""Compares one training step of a layer (forward and backward) in Millrace and in PyTorch.

Millrace runs standalone, and in PyTorch as millrace.torch's layer. PyTorch runs eagerly and under torch.compile: a
layer of plain operators with the attention matrix materialised, nn.TransformerEncoderLayer, and
scaled_dot_product_attention. All run on the same machine with the same number of threads and the same dtype, taking
turns in every round. Before that, their results and gradients with dropout 0 are compared. The first run installs
PyTorch in build/bench-venv.

With --device cuda all run on the GPU: Millrace, PyTorch, Hugging Face's BertLayer and JAX, if this Python has them.
They are called from Python and replayed from CUDA graphs, for the whole layer and for attention alone (models/mha.py).
"""

from __future__ import annotations

import argparse
import functools
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from peers import environment, program, report  # noqa: E402  (the path above comes first)
from peers.environment import ROOT, Unavailable, say  # noqa: E402

PROGRAMS = {"bert": ROOT / "models/bert_encoder.py", "gpt2": ROOT / "models/gpt2_block.py",
            "llama": ROOT / "models/llama_block.py"}
DTYPES = {"cpu": ("float32", "bfloat16", "float64"), "cuda": ("float16", "bfloat16", "float32")}
INSIDE = "MILLRACE_COMPARE_INSIDE"  # set in the Python that has torch


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example:\n  bench/compare.py --size base\n  bench/compare.py --size base --size B=8 --peers-only\n"
               "  bench/compare.py --model gpt2 --size base --size J=256 --dtype bfloat16\n"
               "  bench/compare.py --model llama --size base --size J=256\n"
               "  bench/compare.py --device cuda --size large --dtype float16 --budget 240s\n"
               "  bench/compare.py --device cuda --size b96 --plans plans --parts layer --only compile",
    )
    parser.add_argument("--model", choices=PROGRAMS, default="bert")
    parser.add_argument("--size", action="append", metavar="SET|NAME=N",
                        help="sizes, as for millrace; later ones take precedence")
    parser.add_argument("--dtype", choices=sorted({dtype for dtypes in DTYPES.values() for dtype in dtypes}),
                        help="default: float32; float16 on a GPU")
    parser.add_argument("--device", choices=DTYPES, default="cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--dropout", type=float, default=program.DEFAULT_DROPOUT, metavar="P")
    parser.add_argument("--budget", help="time for millrace optimize (default: 60s; 240s on a GPU)")
    parser.add_argument("--rounds", type=int, help="default: 15; 9 on a GPU")
    parser.add_argument("--calm", type=float, default=0, metavar="SECONDS",
                        help="before each turn, wait up to this long for other processes to be idle (default: 0)")
    parser.add_argument("--peers-only", action="store_true", help="leave out Millrace")
    parser.add_argument("--floor", action="store_true", help="also time torch.mm and dropout of this size alone")
    parser.add_argument("--millrace", default=str(ROOT / "millrace"), metavar="COMMAND", help="default: ./millrace")
    parser.add_argument("--torch", metavar="VERSION", help="version of torch (default: the latest)")
    parser.add_argument("--python", metavar="PATH", help="use this Python, which has torch and numpy")
    parser.add_argument("--out", type=Path, help="JSON file (default: bench/results/compare-MACHINE.json)")
    add_gpu_arguments(parser)
    options = parser.parse_args()
    on_gpu = options.device == "cuda"
    options.size = options.size or ["large" if on_gpu else "base"]
    options.dtype = options.dtype or DTYPES[options.device][0]
    options.budget = options.budget or ("240s" if on_gpu else "60s")
    options.rounds = 9 if options.rounds is None and on_gpu else 15 if options.rounds is None else options.rounds
    if options.dtype not in DTYPES[options.device]:
        parser.error(f"--device {options.device} takes --dtype {', '.join(DTYPES[options.device])}")
    if unknown := set(options.parts) - {"layer", "attention"}:
        parser.error(f"--parts are layer and attention, not {', '.join(sorted(unknown))}")
    if options.threads < 1 or options.rounds < 1 or not 0 <= options.dropout < 1:
        parser.error("--threads and --rounds are at least 1, --dropout is at least 0 and less than 1")
    if options.torch and options.python:
        parser.error("--torch and --python exclude each other")
    return options


def add_gpu_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("with --device cuda")

    def words(text: str) -> list[str]:
        return [word.strip() for word in text.split(",") if word.strip()]

    group.add_argument("--parts", type=words, default=["layer", "attention"], metavar="PART,...",
                       help="layer, attention (default: both)")
    group.add_argument("--only", type=words, metavar="TEXT,...",
                       help="only contestants whose names contain one of these")
    group.add_argument("--plan", type=Path, help="time this plan of the layer instead of making one")
    group.add_argument("--attention-plan", type=Path, metavar="PLAN", help="the same for multi-head attention")
    group.add_argument("--plans", type=Path, metavar="FOLDER", help="where to keep and reuse plans")
    group.add_argument("--plans-only", action="store_true", help="make new plans in --plans, and stop")
    group.add_argument("--attention-budget", default="60s", metavar="TIME",
                       help="budget of attention's plan (default: 60s)")
    group.add_argument("--check-budget", default="30s", metavar="TIME",
                       help="budget of plans without dropout (default: 30s)")
    group.add_argument("--torch-budget", default="20s", metavar="TIME",
                       help="budget of millrace.torch's plan (default: 20s)")
    group.add_argument("--no-check", dest="check", action="store_false", help="compare only times, not values")
    group.add_argument("--minutes", type=float, default=30, metavar="N",
                       help="skip contestants that are not ready by then (default: 30)")
    group.add_argument("--keep", type=Path, metavar="FOLDER", help="where to keep the contestants' logs")


def continue_inside(options: argparse.Namespace) -> None:
    """Restarts this script in a Python with torch, with the number of threads in its environment."""
    python = options.python or str(environment.ensure_python(options.torch))
    variables = dict(os.environ)
    variables.update({name: str(options.threads) for name in environment.THREAD_VARIABLES})
    variables.setdefault("TORCHINDUCTOR_CACHE_DIR", str(ROOT / "build/bench-inductor"))
    variables[INSIDE] = "1"
    try:
        os.execve(python, [python, *sys.argv], variables)
    except OSError as error:
        raise Unavailable(f"{python} does not run: {error}") from error


class Comparison:
    """One case: a model with its sizes, dtype and dropout."""

    def __init__(self, options: argparse.Namespace, folder: Path):
        from peers import agreement, torch_peer  # they import numpy and torch

        self.options, self.folder, self.torch_peer = options, folder, torch_peer
        self.text = PROGRAMS[options.model].read_text()
        self.sizes = program.sizes_of(self.text, options.size)
        self.model = torch_peer.MODELS[options.model]
        if reason := self.model.why_not(self.sizes):
            raise ValueError(reason)
        self.device = torch_peer.DEVICES[options.device]
        self.device.set_up(options.threads)
        if not options.peers_only:
            self.make_library()
        drawn = self.model.draw(self.sizes)
        self.tensors = {name: agreement.rounded(tensor, options.dtype) for name, tensor in drawn.items()}
        self.failures: dict[str, str] = {}

    def make_library(self) -> None:
        """Builds Millrace's library and makes its Python package importable."""
        subprocess.run([self.options.millrace, "--version"], check=True, stdout=subprocess.DEVNULL)  # builds it
        sys.path.insert(0, str(ROOT / "python"))

    def torch_peer_of(self, layer: str, *, compiled: bool, dtype: str, dropout: float):
        name = torch_name(layer, compiled)
        return self.torch_peer.TorchPeer(name, self.model, self.model.LAYERS[layer], self.sizes, self.tensors,
                                         device=self.device, dtype=dtype, dropout=dropout, compiled=compiled)

    def millrace_peer_of(self, dropout: float):
        from peers.millrace_peer import MillracePeer

        path = PROGRAMS[self.options.model]
        if dropout != program.DEFAULT_DROPOUT:
            path = self.folder / f"dropout_{dropout}" / path.name
            path.parent.mkdir(exist_ok=True)
            path.write_text(program.with_dropout(self.text, dropout))
        options, plan = self.options, self.folder / f"plan_{dropout}"
        peer = MillracePeer(options.millrace, path, options.size, options.dtype, options.budget, plan,
                            layouts=self.model.STACKED)
        peer.time_with(self.tensors)
        return peer

    def torch_kinds(self) -> list[tuple[str, bool]]:
        """(layer, compiled) of all that can run here; records why others cannot."""
        lacking = environment.why_not_compile()
        if lacking:
            self.failures["torch.compile"] = lacking
        modes = [False] if lacking else [False, True]
        kinds = [(layer, compiled) for compiled in modes for layer in self.model.LAYERS if layer != self.model.OURS]
        return [(self.model.OURS, False), *kinds] if self.model.OURS and not self.options.peers_only else kinds

    def check_agreement(self) -> list[dict]:
        """Compares every contestant, with dropout 0, to the plain layer in float64."""
        from peers import agreement

        say("comparing results and gradients with dropout 0")
        expected = self.torch_peer_of("plain", compiled=False, dtype="float64", dropout=0.0).results()
        rows = []

        def compare(name: str, dtype: str, make) -> None:
            try:
                difference, tensor, allowed = agreement.worst(expected, make(), self.model.SCALE_OF, dtype)
            except Exception as error:  # any failure: still compare the others
                rows.append({"name": name, "dtype": dtype, "error": one_line(error), "agrees": False})
                return
            rows.append({"name": name, "dtype": dtype, "largest_relative_difference": difference, "tensor": tensor,
                         "agrees": difference <= allowed})

        for dtype in dict.fromkeys(("float64", self.options.dtype)):
            for layer, compiled in self.torch_kinds():
                if compiled and dtype != self.options.dtype:
                    continue
                compare(torch_name(layer, compiled), dtype,
                        lambda: self.torch_peer_of(layer, compiled=compiled, dtype=dtype, dropout=0.0).results())
        if not self.options.peers_only:
            millrace = self.millrace_peer_of(0.0)
            compare(millrace.name, self.options.dtype, lambda: (millrace.prepare(), millrace.results(self.tensors))[1])
        self.torch_peer.forget_compiled()
        return rows

    def contestants(self) -> list:
        """All contestants that could be prepared, Millrace first."""
        options, makers = self.options, {}
        if not options.peers_only:
            import millrace.torch

            millrace.torch.set_budget(options.budget)
            makers["Millrace"] = lambda: self.millrace_peer_of(options.dropout)
        for layer, compiled in self.torch_kinds():
            makers[torch_name(layer, compiled)] = functools.partial(
                self.torch_peer_of, layer, compiled=compiled, dtype=options.dtype, dropout=options.dropout)
        ready = []
        for name, make in makers.items():
            start = time.monotonic()
            try:
                contestant = make()
                contestant.prepare()
                ready.append(contestant)
                say(f"{name}: ready after {time.monotonic() - start:.0f} s")
            except Exception as error:  # report it and continue with the others
                self.failures[name] = one_line(error)
                say(f"{name}: failed: {self.failures[name]}")
        return ready

    def measure(self, contestants: list) -> dict[str, list[report.RoundTime]]:
        """Times by name. Every round starts with a different contestant, so that none always follows the same other."""
        taken: dict[str, list[report.RoundTime]] = {contestant.name: [] for contestant in contestants}
        for number in range(self.options.rounds):
            first = number % len(contestants)
            for contestant in contestants[first:] + contestants[:first]:
                try:
                    if contestant.name in taken:
                        environment.wait_for_calm(self.options.calm)
                        taken[contestant.name].append(contestant.round())
                except Exception as error:
                    self.failures[contestant.name] = one_line(error)
                    del taken[contestant.name]
            say(f"round {number + 1} of {self.options.rounds}, load {os.getloadavg()[0]:.2f}")
        return taken


def torch_name(layer: str, compiled: bool) -> str:
    return f"{'compile' if compiled else 'eager'} {layer}"


def one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def print_agreement(rows: list[dict]) -> None:
    print("\nlargest relative difference to the plain layer in float64, with dropout 0:")
    for row in rows:
        found = row.get("error") or f"{row['largest_relative_difference']:.1e}  ({row['tensor'] or 'none'})"
        print(f"  {row['dtype']}  {row['name']:32}  {found}{'' if row['agrees'] else '  DISAGREES'}")


def compare(options: argparse.Namespace) -> int:
    out = options.out or ROOT / "bench/results" / report.file_name(platform.machine(), environment.cpu_name())
    report.read_report(out)  # fails now rather than after minutes of measuring
    run = environment.circumstances(options.threads)
    say(f"load {run['load_before']:.2f}; {options.rounds} rounds; torch.compile takes up to a minute a layer")
    with tempfile.TemporaryDirectory(prefix="millrace-compare-") as folder:
        comparison = Comparison(options, Path(folder))
        run |= comparison.device.describe()
        agreed = comparison.check_agreement()
        rounds = comparison.measure(comparison.contestants())
        floor = None
        if options.floor:
            from peers import torch_floor

            dtype = comparison.torch_peer.DTYPES[options.dtype]
            floor = torch_floor.measure_floor(comparison.sizes, options.dropout, dtype, comparison.device)
    if not rounds:
        raise Unavailable(f"nothing ran: {comparison.failures}")
    base = report.base_of(rounds, "Millrace")
    rows = report.contestant_rows(rounds, base)
    run |= {"model": options.model, "device": options.device, "sizes": comparison.sizes, "dtype": options.dtype,
            "dropout": options.dropout, "rounds": options.rounds, "load_after": os.getloadavg()[0],
            "agreement": agreed, "base": base, "contestants": rows, "did_not_run": comparison.failures}
    print(f"{run['machine']['cpu']}, {options.threads} threads, torch {run['torch']}, {run['compiler']}, "
          f"commit {run['git_commit'][:10]}, load {run['load_before']:.2f} to {run['load_after']:.2f}")
    print(f"{options.model} {comparison.sizes}, {options.dtype}, dropout {options.dropout}")
    print_agreement(agreed)
    print("\nmilliseconds, medians over the rounds:")
    print(report.table(rows, base, comparison.failures))
    if floor:
        run["floor"] = floor
        print(f"\n{torch_floor.floor_table(floor)}")
    case = " ".join([options.model, *options.size, options.dtype, f"{options.threads} threads",
                     f"dropout {options.dropout}", f"torch {run['torch']}"])
    report.write_run(out, case, run)
    print(f"\nwritten to {out}")
    return 0 if all(row["agrees"] for row in agreed) and "Millrace" not in comparison.failures else 1


def main() -> int:
    options = parse_arguments()
    try:
        if options.device == "cuda":
            from peers.gpu_comparison import compare_on_gpu  # installs nothing: uses this Python

            return compare_on_gpu(options)
        if not os.environ.get(INSIDE):
            continue_inside(options)
        return compare(options)
    except ModuleNotFoundError as error:
        say(f"{sys.executable}: {error}; torch and numpy are required")
    except (Unavailable, ValueError, OSError) as error:
        say(str(error))
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    return 1


if __name__ == "__main__":
    sys.exit(main())
