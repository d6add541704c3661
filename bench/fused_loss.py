#!/usr/bin/env python3
"""Times projection and cross entropy, forward and backward, at the vocabularies of BERT and Llama, and says how much
memory they need: PyTorch, torch.compile, and millrace.torch.linear_cross_entropy.

Needs torch. Example: bench/fused_loss.py --device cuda
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy, linear

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
from millrace.torch import linear_cross_entropy  # noqa: E402  (the path above comes first)

SIZES = {"bert": (4096, 1024, 30522), "llama": (2048, 2048, 128256), "tiny": (64, 16, 200)}  # rows, features, classes


def pytorch(x, weight, target):
    return cross_entropy(linear(x, weight).float(), target)


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def run(name: str, loss, size: str, device: str) -> None:
    rows, features, classes = SIZES[size]
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    x = torch.randn(rows, features, device=device, dtype=dtype, requires_grad=True)
    weight = (torch.randn(classes, features, device=device, dtype=dtype) / features**0.5).requires_grad_()
    target = torch.randint(0, classes, (rows,), device=device)
    times = []
    for k in range(12):
        wait(device)
        if device == "cuda" and k == 2:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        began = time.perf_counter()
        value = loss(x, weight, target)
        made = torch.autograd.grad(value, (x, weight))
        wait(device)
        times.append(time.perf_counter() - began)
        del made
    peak = f", {(torch.cuda.max_memory_allocated() - before) / 2**20:.0f} MiB" if device == "cuda" else ""
    print(f"{size:8}{name:24}{statistics.median(times[2:]) * 1e3:9.3f} ms{peak}, loss {value.item():.5f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--size", choices=SIZES, action="append", help="default: bert and llama; may be repeated")
    options = parser.parse_args()
    for size in options.size or ["bert", "llama"]:
        run("PyTorch", pytorch, size, options.device)
        run("linear_cross_entropy", linear_cross_entropy, size, options.device)
        run("torch.compile", torch.compile(pytorch), size, options.device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
