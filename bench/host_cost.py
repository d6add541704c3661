#!/usr/bin/env python3
"""What the host spends on one call of millrace.torch.TransformerEncoderLayer: µs until the call returns.

    bench/host_cost.py --device cuda                    # BERT-large, batch 8, 512 tokens, float16
    bench/host_cost.py --device cpu                     # a tiny layer: there the plan's own work is part of the call

On a GPU twice: with nothing under way (idle), and behind a kernel that keeps it busy, as in training (busy). A step is
bound by the GPU where the busy column is well below the last lines: the GPU's own clock over many steps in a row.
--gaps profiles some steps in a row and says between which kernels the GPU had nothing to do, and for how long.

Takes the Python that it is started with, which must have torch.
"""

from __future__ import annotations

import argparse
import collections
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

SIZES = {  # batch, length, embedding, heads, width
    "tiny": (1, 4, 16, 2, 32),
    "base": (8, 512, 768, 12, 3072),
    "large": (8, 512, 1024, 16, 4096),
}
BUSY_CALLS = 8  # behind one kernel: fewer launches than the driver's queue holds
BUSY_CYCLES = 60_000_000  # of the GPU: some 30 ms, in which those calls are made
STEPS_IN_A_ROW = 200
STEPS_IN_A_PROFILE = 20
GAPS_SHOWN = 16
REST_SECONDS = 0.5
MOVED_PLACES = 16  # more than those that an executor keeps graphs of


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--size", choices=SIZES, help="default: tiny on the CPU, large on a GPU")
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32"),
                        help="default: float32; float16 on a GPU")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--layer", choices=("millrace", "torch"), default="millrace", help="torch: nn's, to compare")
    parser.add_argument("--gaps", action="store_true", help="on a GPU: where it waits, and nothing else")
    parser.add_argument("--calls", type=int, default=300, help="that each line is the median of (default: 300)")
    return parser.parse_args()


class Kernel(NamedTuple):
    name: str
    begin: float  # µs
    end: float


def gaps_between(kernels: list[Kernel], steps: int) -> list[tuple[float, str, str]]:
    """µs of a step in which nothing runs, by what ran before and what runs next, the longest first."""
    idle: dict[tuple[str, str], float] = collections.defaultdict(float)
    last = None  # the one that ends last so far
    for kernel in sorted(kernels, key=lambda kernel: kernel.begin):
        if last is not None and kernel.begin > last.end:
            idle[last.name, kernel.name] += (kernel.begin - last.end) / steps
        if last is None or kernel.end > last.end:
            last = kernel
    return sorted(((time, *names) for names, time in idle.items()), reverse=True)


class Bench:
    def __init__(self, options: argparse.Namespace):
        import torch

        import millrace.torch

        self.torch, self.options, self.cuda = torch, options, options.device == "cuda"
        batch, length, embedding, heads, width = SIZES[options.size]
        of = dict(dtype=getattr(torch, options.dtype), device=options.device)
        kind = (millrace.torch if options.layer == "millrace" else torch.nn).TransformerEncoderLayer
        self.layer = kind(embedding, heads, width, dropout=options.dropout, batch_first=True, **of)
        self.x = torch.randn(batch, length, embedding, requires_grad=True, **of)
        self.gradient = torch.randn(batch, length, embedding, **of)
        self.inputs = [self.x, *self.layer.parameters()]

    # --- what is called ---

    def forward(self):
        return self.layer(self.x)

    def forward_without_gradient(self):
        with self.torch.no_grad():
            return self.layer(self.x)

    def grad(self, y):
        return self.torch.autograd.grad(y, self.inputs, self.gradient)

    def backward(self, y):
        y.backward(self.gradient)

    def step_in_pytorchs_thread(self):
        with self.torch.autograd.set_multithreading_enabled(True):
            return self.grad(self.forward())

    def forget(self):
        for tensor in self.inputs:
            tensor.grad = None

    def operators(self) -> list[tuple]:
        """The parts of a step that are not PyTorch's or Python's, called by themselves."""
        from millrace.torch import operator

        torch, seen, run_call = self.torch, [], operator.run_call
        operator.run_call = lambda *given: seen.append(given) or run_call(*given)
        try:
            self.layer(self.x)
        finally:
            operator.run_call = run_call
        call, tensors, numbers, random = seen[0]
        tensors = [tensor.detach() for tensor in tensors]

        def forward(_=None):
            return torch.ops.millrace.forward.default(call.path, tensors, call.pieces, numbers, random)

        results, saved = forward()
        kept = [tensors[k] for k in call.kept_tensors] + [results[k] for k in call.kept_results]

        def backward(_=None):
            return torch.ops.millrace.backward.default(call.path, [self.gradient], kept, saved, call.pieces, call.ranks,
                                                       call.sizes, numbers, random)

        def below(work):  # as the layer calls them
            def guarded(_=None):
                with torch._C._AutoDispatchBelowAutograd():
                    return work()

            return guarded

        made = [("millrace::forward by itself", nothing, below(forward)),
                ("millrace::backward by itself", nothing, below(backward)),
                ("a seed for dropout", nothing, lambda _: operator.draw_random(self.x.device))]
        if self.cuda:  # where tensors are elsewhere in every call, no recorded graph fits
            moved = collections.deque(maxlen=MOVED_PLACES)
            made += [(f"{name}, launches", nothing, lambda _, work=below(work): moved.append(work()))
                     for name, work in (("millrace::forward", forward), ("millrace::backward", backward))]
        return made

    # --- how long it takes ---

    def wait(self):
        if self.cuda:
            self.torch.cuda.synchronize()

    def microseconds(self, before, work, busy: bool) -> float:
        """The median over calls of `work` on what `before` made."""
        times = []
        while len(times) < self.options.calls:
            self.wait()
            if busy:
                self.torch.cuda._sleep(BUSY_CYCLES)
            for _ in range(BUSY_CALLS if busy else 1):
                given = before()
                start = time.perf_counter()
                made = work(given)
                times.append(1e6 * (time.perf_counter() - start))
                del given, made
                self.forget()
        self.wait()
        return statistics.median(times)

    def gpu_microseconds(self, kept: int) -> float:
        """Of a step among many in a row, between two events, with the results of some steps kept."""
        results = collections.deque(maxlen=kept)
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(STEPS_IN_A_ROW):
            results.append(self.grad(self.forward()))
        end.record()
        end.synchronize()
        return 1e3 * begin.elapsed_time(end) / STEPS_IN_A_ROW

    def kernels(self, steps: int) -> list[Kernel]:
        """Of steps in a row, as CUPTI saw them."""
        torch = self.torch
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile:
            for _ in range(steps):
                self.grad(self.forward())
            self.wait()
        on_gpu = torch.autograd.DeviceType.CUDA
        return [Kernel(event.name, event.time_range.start, event.time_range.end) for event in profile.events()
                if event.device_type == on_gpu]

    def rows(self) -> list[tuple]:
        made = [("forward, no gradient", nothing, lambda _: self.forward_without_gradient()),
                ("forward", nothing, lambda _: self.forward()),
                ("autograd.grad", self.forward, self.grad),
                ("y.backward", self.forward, self.backward),
                ("step by autograd.grad", nothing, lambda _: self.grad(self.forward())),
                ("step by y.backward", nothing, lambda _: self.backward(self.forward())),
                ("step in PyTorch’s thread", nothing, lambda _: self.step_in_pytorchs_thread())]
        return made + (self.operators() if self.options.layer == "millrace" else [])


def nothing():
    return None


def print_gaps(bench: Bench) -> None:
    gaps = gaps_between(bench.kernels(STEPS_IN_A_PROFILE), STEPS_IN_A_PROFILE)
    print(f"{'µs of a step without a kernel':54}{sum(gap for gap, *_ in gaps):8.1f}")
    for gap, before, behind in gaps[:GAPS_SHOWN]:
        print(f"{before[:24]:26}{'before':8}{behind[:18]:20}{gap:8.1f}")


def main() -> int:
    options = parsed()
    options.size = options.size or ("large" if options.device == "cuda" else "tiny")
    options.dtype = options.dtype or ("float16" if options.device == "cuda" else "float32")
    try:
        import torch
    except ImportError:
        sys.exit("host_cost: this Python has no torch; start it with one that has (build/bench-venv/bin/python)")
    if options.gaps and options.device != "cuda":
        sys.exit("host_cost: --gaps looks at a GPU's kernels; add --device cuda")
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("host_cost: there is no GPU here; take --device cpu")
    torch.set_num_threads(1)
    bench = Bench(options)
    for _ in range(100):  # plans are made, memory is allocated, graphs are recorded
        bench.grad(bench.forward())
        bench.backward(bench.forward())
        bench.forget()
    where = torch.cuda.get_device_name() if bench.cuda else "the CPU"
    print(f"{options.layer}, {options.size}, {options.dtype}, dropout {options.dropout}, {where}, "
          f"torch {torch.__version__}")
    if options.gaps:
        print_gaps(bench)
        return 0
    print(f"{'µs of the host':30}{'idle':>8}" + (f"{'busy':>8}" if bench.cuda else ""))
    for name, before, work in bench.rows():
        columns = [bench.microseconds(before, work, busy) for busy in ((False, True) if bench.cuda else (False,))]
        print(f"{name:30}" + "".join(f"{column:8.1f}" for column in columns), flush=True)
    if bench.cuda:
        # Where results stay, the next ones are elsewhere: no recorded graph fits, and kernels are launched one by one.
        # A GPU that has been busy for long reaches the limit of its power, and slows down.
        for kept, busy_seconds, how in ((0, 0, ""), (MOVED_PLACES, 0, ", launches"), (0, 1, ", after 1 s")):
            bench.gpu_microseconds(kept)
            time.sleep(REST_SECONDS)
            begin = time.monotonic()
            while time.monotonic() - begin < busy_seconds:
                bench.gpu_microseconds(kept)
            print(f"{f'a step by the GPU’s clock{how}':38}{bench.gpu_microseconds(kept):8.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
