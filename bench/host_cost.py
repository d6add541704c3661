#!/usr/bin/env python3
"""Measures the host time of one call of a layer: µs until the call returns.

    bench/host_cost.py --device cuda                    # BERT-large, batch 8, 512 tokens, float16
    bench/host_cost.py --device cpu                     # a tiny layer; the time includes the plan's kernels
    bench/host_cost.py --layer compiled                 # torch.nn's layer by torch.compile(backend="millrace")

On a GPU it measures twice: with an idle GPU (idle), and while a long kernel keeps the GPU busy, as in training (busy).
The last lines are the GPU's time per step over many consecutive steps; if the busy column is well below them, the GPU
limits a step. --gaps profiles consecutive steps and shows between which kernels the GPU was idle, and for how long.

Uses the Python that runs it, which must have torch.
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
BUSY_CALLS = 8  # queued after one long kernel: fewer launches than the driver's queue holds
BUSY_CYCLES = 60_000_000  # of the GPU: about 30 ms, longer than the host needs for those calls
STEPS_IN_A_ROW = 200
STEPS_IN_A_PROFILE = 20
GAPS_SHOWN = 16
REST_SECONDS = 0.5
KEPT_RESULTS = 16  # more than the graphs that an executor keeps, so that every call uses new addresses


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--size", choices=SIZES, help="default: tiny on the CPU, large on a GPU")
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32"),
                        help="default: float32; float16 on a GPU")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--layer", choices=("millrace", "torch", "compiled", "imported"), default="millrace",
                        help="millrace.torch.TransformerEncoderLayer; nn's layer, to compare; nn's layer with "
                             "torch.compile's backend, or as accelerate imports layers (default: millrace)")
    parser.add_argument("--gaps", action="store_true", help="on a GPU: show only the gaps between kernels")
    parser.add_argument("--calls", type=int, default=300,
                        help="number of calls; each line shows the median (default: 300)")
    return parser.parse_args()


class Kernel(NamedTuple):
    name: str
    begin: float  # µs
    end: float


def gaps_between(kernels: list[Kernel], steps: int) -> list[tuple[float, str, str]]:
    """Idle µs per step by the kernels before and after the gap, longest first."""
    idle: dict[tuple[str, str], float] = collections.defaultdict(float)
    last = None  # the kernel that ends last so far
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
        from millrace.torch import imported_layer

        self.torch, self.options, self.cuda = torch, options, options.device == "cuda"
        batch, length, embedding, heads, width = SIZES[options.size]
        kind_of_tensor = dict(dtype=getattr(torch, options.dtype), device=options.device)
        kind = (millrace.torch if options.layer == "millrace" else torch.nn).TransformerEncoderLayer
        self.layer = kind(embedding, heads, width, dropout=options.dropout, batch_first=True, **kind_of_tensor)
        if options.layer == "compiled":
            self.layer = torch.compile(self.layer, backend="millrace", options={"choose": "plan"})
        elif options.layer == "imported":
            self.layer.__class__ = imported_layer.imported_class(kind)
        self.x = torch.randn(batch, length, embedding, requires_grad=True, **kind_of_tensor)
        self.gradient = torch.randn(batch, length, embedding, **kind_of_tensor)
        self.inputs = [self.x, *self.layer.parameters()]

    # --- measured calls ---

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
        """Millrace's own operators of a step, without autograd and the layer's Python code."""
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
        if self.cuda:  # new addresses in every call: no recorded graph can be replayed
            moved = collections.deque(maxlen=KEPT_RESULTS)
            made += [(f"{name}, launches", nothing, lambda _, work=below(work): moved.append(work()))
                     for name, work in (("millrace::forward", forward), ("millrace::backward", backward))]
        return made

    # --- timing ---

    def wait(self):
        if self.cuda:
            self.torch.cuda.synchronize()

    def microseconds(self, before, work, busy: bool) -> float:
        """The median over calls of `work` on the result of `before`."""
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
        """GPU time per step, between two events around consecutive steps; keeps the results of the last `kept`."""
        results = collections.deque(maxlen=kept)
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(STEPS_IN_A_ROW):
            results.append(self.grad(self.forward()))
        end.record()
        end.synchronize()
        return 1e3 * begin.elapsed_time(end) / STEPS_IN_A_ROW

    def kernels(self, steps: int) -> list[Kernel]:
        """The kernels of consecutive steps, recorded by CUPTI."""
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
                ("step, PyTorch’s thread", nothing, lambda _: self.step_in_pytorchs_thread())]
        return made + (self.operators() if self.options.layer == "millrace" else [])


def nothing():
    return None


def print_gaps(bench: Bench) -> None:
    gaps = gaps_between(bench.kernels(STEPS_IN_A_PROFILE), STEPS_IN_A_PROFILE)
    print(f"{'idle µs per step':54}{sum(gap for gap, *_ in gaps):8.1f}")
    for gap, before, after in gaps[:GAPS_SHOWN]:
        print(f"{before[:24]:26}{'before':8}{after[:18]:20}{gap:8.1f}")


def main() -> int:
    options = parsed()
    options.size = options.size or ("large" if options.device == "cuda" else "tiny")
    options.dtype = options.dtype or ("float16" if options.device == "cuda" else "float32")
    try:
        import torch
    except ImportError:
        sys.exit("host_cost: this Python has no torch; use one that has (build/bench-venv/bin/python)")
    if options.gaps and options.device != "cuda":
        sys.exit("host_cost: --gaps needs a GPU; add --device cuda")
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("host_cost: no GPU found; use --device cpu")
    torch.set_num_threads(1)
    bench = Bench(options)
    for _ in range(100):  # make plans, allocate memory, record graphs
        bench.grad(bench.forward())
        bench.backward(bench.forward())
        bench.forget()
    where = torch.cuda.get_device_name() if bench.cuda else "the CPU"
    print(f"{options.layer}, {options.size}, {options.dtype}, dropout {options.dropout}, {where}, "
          f"torch {torch.__version__}")
    if options.gaps:
        print_gaps(bench)
        return 0
    print(f"{'host time, µs':30}{'idle':>8}" + (f"{'busy':>8}" if bench.cuda else ""))
    for name, before, work in bench.rows():
        columns = [bench.microseconds(before, work, busy) for busy in ((False, True) if bench.cuda else (False,))]
        print(f"{name:30}" + "".join(f"{column:8.1f}" for column in columns), flush=True)
    if bench.cuda:
        # Kept results force new addresses, so no recorded graph can be replayed and kernels are launched one by one.
        # After 1 s of load a GPU reaches its power limit and is throttled.
        for kept, busy_seconds, how in ((0, 0, ""), (KEPT_RESULTS, 0, ", launches"), (0, 1, ", after 1 s")):
            bench.gpu_microseconds(kept)
            time.sleep(REST_SECONDS)
            begin = time.monotonic()
            while time.monotonic() - begin < busy_seconds:
                bench.gpu_microseconds(kept)
            print(f"{f'GPU time per step{how}':38}{bench.gpu_microseconds(kept):8.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
