#!/usr/bin/env python3
"""Times a training step of Hugging Face models: eager PyTorch, torch.compile, and torch.compile with Millrace's
backend, each called from a loop or as one CUDA graph (millrace.torch.TrainingStep). Each model is built from a
configuration, with random weights. All have their weights and fused AdamW in --dtype; a contestant with "float32
weights" keeps float32 weights and computes with copies. Prints the loss of the first step, which is the same for all
but for dropout. Liger's kernels take part where liger_kernel is installed.

Needs torch and transformers. Example: bench/models.py --model bert --device cuda --layers 6 --budget 30s
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Callable, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
import millrace.torch  # noqa: E402  (the path above comes first)
from whole_models.configurations import DTYPES, SIZES, batch_of, model_of  # noqa: E402
from whole_models.idle import busy_seconds  # noqa: E402


class Contestant(NamedTuple):
    compile: dict | None  # arguments of torch.compile; None: eager
    step: str = "loop"  # or "graph": TrainingStep
    weights: torch.dtype | None = None  # of the optimizer; None: --dtype
    liger: bool = False


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SIZES, default="bert")
    parser.add_argument("--size", choices=("large", "phase1", "phase2", "tiny"), default="large",
                        help="phase1, phase2: BERT-large with other batches and lengths")
    parser.add_argument("--task", choices=("training", "layers"), default="training",
                        help="training: with head, loss and optimizer; layers: the layers' forward and backward alone")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=DTYPES, help="default: float32; bfloat16 on a GPU")
    parser.add_argument("--dropout", type=float, default=0.1, metavar="P",
                        help="dropout of BERT, GPT-2 and T5 (default: 0.1)")
    parser.add_argument("--budget", help="time to explore each of Millrace's plans (default: none)")
    parser.add_argument("--seconds", type=float, default=3, help="time to measure each contestant (default: 3)")
    parser.add_argument("--only", action="append", metavar="NAME", help="only these contestants; may be repeated")
    parser.add_argument("--out", type=Path, help="JSON file")
    options = parser.parse_args()
    if options.size not in SIZES[options.model]:
        parser.error(f"{options.model} has no size {options.size}; it has {', '.join(SIZES[options.model])}")
    options.dtype = options.dtype or ("bfloat16" if options.device == "cuda" else "float32")
    return options


def contestants(options: argparse.Namespace) -> dict[str, Contestant]:
    inductor = {"backend": "inductor"}
    ours = {"backend": "millrace", "options": {"budget": options.budget} if options.budget else {}}
    plans = {"backend": "millrace", "options": {**ours["options"], "choose": "plan"}}
    made = {"eager": Contestant(None), "eager, step": Contestant(None, "graph"), "inductor": Contestant(inductor),
            "millrace": Contestant(ours), "millrace, step": Contestant(ours, "graph"),
            "millrace, step, float32 weights": Contestant(ours, "graph", torch.float32),
            "inductor, reduce-overhead": Contestant({**inductor, "mode": "reduce-overhead"}),
            "inductor, step": Contestant(inductor, "graph"), "millrace, plans only": Contestant(plans)}
    if importlib.util.find_spec("liger_kernel") is not None and options.model == "llama":
        made["liger"] = Contestant(None, liger=True)
    return {name: one for name, one in made.items() if options.task == "training" or one.step == "loop"}


def step_of(contestant: Contestant, options: argparse.Namespace) -> Callable[[], torch.Tensor]:
    model = model_of(options, contestant.weights or DTYPES[options.dtype])
    if contestant.liger:
        from liger_kernel.transformers import apply_liger_kernel_to_llama

        apply_liger_kernel_to_llama(model=model.model)
    batch = batch_of(options)
    called = model if contestant.compile is None else torch.compile(model, **contestant.compile)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    if contestant.step == "graph":
        one = millrace.torch.TrainingStep(called, optimizer,
                                          weights=DTYPES[options.dtype] if contestant.weights else None)
        return lambda: one(**batch)

    def loop() -> torch.Tensor:
        loss = called(**batch)
        loss.backward()
        if options.task == "training":
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return loop


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def step_seconds(step: Callable, options: argparse.Namespace) -> list[float]:
    """Times of blocks of steps, whose host may run ahead, by step."""
    for _ in range(6):
        step()
    wait(options.device)
    begin, times = time.perf_counter(), []
    while time.perf_counter() - begin < options.seconds:
        start = time.perf_counter()
        for _ in range(5):
            step()
        wait(options.device)
        times.append((time.perf_counter() - start) / 5)
    return times


def run(name: str, contestant: Contestant, options: argparse.Namespace) -> dict:
    torch._dynamo.reset()
    gc.collect()
    if options.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(0)
    step = step_of(contestant, options)
    began = time.monotonic()
    loss = step().item()
    first = time.monotonic() - began
    times = step_seconds(step, options)
    row = {"name": name, "loss": loss, "first_seconds": first, "step_ms": statistics.median(times) * 1e3,
           "fastest_ms": min(times) * 1e3}
    row["tokens_per_second"] = SIZES[options.model][options.size].tokens(options.model) / statistics.median(times)
    text = ""
    if options.device == "cuda":
        row["busy_ms"] = busy_seconds(step) * 1e3
        row["idle_share"] = max(0.0, 1 - row["busy_ms"] / row["step_ms"])
        row["peak_gib"] = torch.cuda.max_memory_reserved() / 2**30
        text = f", GPU busy {row['busy_ms']:.2f} ms (idle {row['idle_share']:.1%}), {row['peak_gib']:.1f} GiB"
    print(f"{name:32}{row['step_ms']:9.2f} ms a step (fastest {row['fastest_ms']:.2f}), "
          f"{row['tokens_per_second']:.0f} tokens/s{text}, first step {first:.1f} s,"
          f" loss {loss:.4f}", flush=True)
    return row


def main() -> int:
    options = parse_arguments()
    rows = []
    for name, contestant in contestants(options).items():
        if options.only and name not in options.only:
            continue
        try:
            rows.append(run(name, contestant, options))
        except Exception as error:  # report it and continue with the others
            print(f"{name:32}failed: {str(error).strip().splitlines()[:3]}", flush=True)
        if options.out:  # also if somebody ends it
            options.out.write_text(json.dumps({"options": {key: str(value) for key, value in vars(options).items()},
                                               "torch": torch.__version__, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
