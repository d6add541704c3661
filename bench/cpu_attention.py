#!/usr/bin/env python3
"""Times attention alone on the CPU: Millrace beside PyTorch's scaled_dot_product_attention.

Each case is a program of our language. Forward, and a step (forward and backward), are timed with the case's dropout,
with as many threads as the machine has cores. Gflop/s count two products in forward and five in backward, of scores
that are not hidden. --before COMMAND adds another build of millrace, such as one without fused attention on the CPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from peers.attention_cases import Case, program_text  # noqa: E402  (the path above comes first)
from peers.environment import ROOT, say  # noqa: E402

CASES = [
    Case("BERT-base, B=4 L=128", 4, 12, 128, 64, dtype="float32", dropout=0.1),
    Case("GPT-2, B=4 L=256, causal", 4, 12, 256, 64, dtype="float32", causal=True, dropout=0.1),
    Case("Llama-1B, 32 heads on 8, L=256, causal", 1, 8, 256, 64, heads_per_group=4, dtype="float32", causal=True),
    Case("B=1 H=12 L=1024", 1, 12, 1024, 64, dtype="float32"),
    Case("B=1 H=12 L=1024, causal", 1, 12, 1024, 64, dtype="float32", causal=True),
    Case("B=1 H=12 L=4096, causal", 1, 12, 4096, 64, dtype="float32", causal=True),
]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n  bench/cpu_attention.py --list\n  bench/cpu_attention.py --only GPT --dtype bfloat16")
    parser.add_argument("--list", action="store_true", help="list the cases and stop")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose names contain this")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--budget", default="30s", metavar="TIME", help="time for millrace optimize (default: 30s)")
    parser.add_argument("--millrace", default=str(ROOT / "millrace"), metavar="COMMAND", help="default: ./millrace")
    parser.add_argument("--before", metavar="COMMAND", help="another build of millrace to compare with")
    parser.add_argument("--no-torch", dest="torch", action="store_false", help="leave out PyTorch")
    return parser.parse_args()


def median_seconds(work, seconds: float = 1.0) -> float:
    work()
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(taken) < 3:
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def times_of_torch(case: Case) -> tuple[float, float]:
    import torch
    import torch.nn.functional as F

    def drawn(length: int, heads: int):
        return torch.randn(case.batch, length, heads, case.columns).to(getattr(torch, case.dtype)).transpose(1, 2)

    leaves = [drawn(case.queries, case.heads), drawn(case.key_count, case.groups), drawn(case.key_count, case.groups)]
    gradient = drawn(case.queries, case.heads)
    for leaf in leaves:
        leaf.requires_grad_()

    def forward():
        return F.scaled_dot_product_attention(*leaves, dropout_p=case.dropout, is_causal=case.causal,
                                              enable_gqa=case.heads_per_group > 1)

    return median_seconds(forward), median_seconds(lambda: torch.autograd.grad(forward(), leaves, gradient))


def times_of_millrace(command: str, case: Case, budget: str, folder: Path) -> tuple[float, float]:
    from peers.millrace_peer import MillracePeer

    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "attention.py"
    program.write_text(program_text(case, case.dropout))
    peer = MillracePeer(command, program, [], case.dtype, budget, folder / "attention.plan", device="cpu", seconds=1)
    peer.prepare()
    taken = peer.round()
    return taken.forward, taken.step


def main() -> int:
    options = parse_arguments()
    cases = [dataclasses.replace(case, dtype=options.dtype) for case in CASES
             if options.only.lower() in case.name.lower()]
    if options.list or not cases:
        print("\n".join(case.name for case in CASES))
        return 0 if options.list else 2
    say(f"{'case':42} {'':16} {'forward ms':>11} {'step ms':>9} {'Gflop/s':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(cases):
            contestants = [("Millrace", options.millrace)]
            contestants += [("Millrace before", options.before)] if options.before else []
            contestants += [("PyTorch SDPA", None)] if options.torch else []
            for at, (name, command) in enumerate(contestants):
                forward, step = (times_of_torch(case) if command is None else
                                 times_of_millrace(command, case, options.budget, Path(folder, f"{number}.{at}")))
                print(f"{case.name:42} {name:16} {1e3 * forward:11.3f} {1e3 * step:9.3f} "
                      f"{case.step_flop() / step / 1e9:8.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
