#!/usr/bin/env python3
"""Times a transformer block on a GPU: Millrace beside PyTorch, eager and compiled, with cuDNN's and FlashAttention.

The program is models/llama_block.py or models/gpt2_block.py, and the peers are the same block in PyTorch. First all
results and gradients without dropout are compared with the plain block in float64. Then all take turns; each is
replayed from a CUDA graph. compare.py does this for BERT, with more peers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from peers import agreement, environment, program  # noqa: E402  (the path above comes first)
from peers.environment import ROOT, say  # noqa: E402

DTYPES = {"llama": "bfloat16", "gpt2": "float16"}
MILLRACE = "Millrace"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n  bench/blocks.py --model llama --budget 60s\n  bench/blocks.py --model gpt2 --size medium")
    parser.add_argument("--model", choices=DTYPES, default="llama")
    parser.add_argument("--size", action="append", default=[], metavar="SET|NAME=N", help="sizes, as for millrace")
    parser.add_argument("--dtype", choices=("float16", "bfloat16"), help="default: llama bfloat16, gpt2 float16")
    parser.add_argument("--budget", default="60s", metavar="TIME", help="time for millrace optimize (default: 60s)")
    parser.add_argument("--check-budget", default="20s", metavar="TIME",
                        help="time for the plan without dropout, whose values are compared (default: 20s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-check", dest="check", action="store_false", help="compare only times, not values")
    parser.add_argument("--only", default="", metavar="TEXT,...", help="only peers whose names contain one of these")
    parser.add_argument("--plan", type=Path, metavar="FOLDER", help="where to write Millrace's plan")
    parser.add_argument("--millrace", default=str(ROOT / "millrace"), metavar="COMMAND", help="default: ./millrace")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    options = parser.parse_args()
    options.dtype = options.dtype or DTYPES[options.model]
    return options


class Block:
    """The block with its sizes and tensors."""

    def __init__(self, options: argparse.Namespace, folder: Path):
        from peers import torch_gpt2, torch_llama

        self.options, self.folder = options, folder
        self.model = {"llama": torch_llama, "gpt2": torch_gpt2}[options.model]
        self.path = ROOT / f"models/{options.model}_block.py"
        self.text = self.path.read_text()
        self.sizes = program.sizes_of(self.text, options.size)
        if reason := self.model.why_not(self.sizes):
            raise ValueError(reason)
        self.tensors = {name: agreement.rounded(tensor, options.dtype)
                        for name, tensor in self.model.draw(self.sizes).items()}

    def millrace(self, dropout: float, budget: str, folder: Path):
        from peers.millrace_peer import MillracePeer

        path = self.path
        if dropout != program.DEFAULT_DROPOUT:
            path = self.folder / path.name
            path.write_text(program.with_dropout(self.text, dropout))
        return MillracePeer(self.options.millrace, path, self.options.size, self.options.dtype, budget, folder,
                            device="cuda", seconds=1, layouts=self.model.STACKED)


def torch_block(block: Block, layer: str, attention: str | None, compiled: bool, dtype: str, dropout: float):
    """One peer: the block with one attention, eager or compiled."""
    from peers.captured_peer import CapturedPeer

    return CapturedPeer(attention, block.model, block.model.LAYERS[layer], block.sizes, block.tensors, dtype=dtype,
                        dropout=dropout, compiled=compiled)


PEERS = {"torch.compile, cuDNN": ("sdpa", "cudnn", True), "torch.compile, FlashAttention": ("sdpa", "flash", True),
         "torch, cuDNN": ("sdpa", "cudnn", False)}


def checked(block: Block, name: str, results, expected: dict) -> dict:
    """The largest relative distance to the plain block in float64; NaN is no agreement."""
    found = agreement.relative_distances(expected, results(), block.model.SCALE_OF)
    worst, tensor = agreement.worst_distance(found)
    agrees = worst <= agreement.DISTANCE_TOLERANCE[block.options.dtype]
    say(f"{name}: largest distance {worst:.1e} ({tensor}){'' if agrees else ': DISAGREES'}")
    return {"name": name, "worst_distance": worst, "worst_tensor": tensor, "agrees": bool(agrees)}


def compare_values(block: Block, peers: dict) -> list[dict]:
    expected = torch_block(block, "plain", None, False, "float64", 0.0).results()

    def own() -> dict:
        peer = block.millrace(0.0, block.options.check_budget, block.folder / "checked")
        peer.prepare()
        return peer.results(block.tensors)

    made = {name: torch_block(block, *kind, block.options.dtype, 0.0).results for name, kind in peers.items()}
    return [checked(block, name, results, expected) for name, results in {MILLRACE: own, **made}.items()]


def measure(block: Block, peers: dict) -> dict[str, list[tuple[float, float]]]:
    """(forward, step) in seconds, by name, for each round."""
    import torch

    torch.compiler.reset()
    own = block.millrace(program.DEFAULT_DROPOUT, block.options.budget, block.options.plan or block.folder / "plan")
    own.prepare()
    ready = {name: torch_block(block, *kind, block.options.dtype, program.DEFAULT_DROPOUT)
             for name, kind in peers.items()}
    for one in ready.values():
        one.prepare()
    taken: dict[str, list] = {name: [] for name in (MILLRACE, *ready)}
    for _ in range(block.options.rounds):
        round_time = own.round()
        taken[MILLRACE].append((round_time.forward, round_time.step))
        for name, one in ready.items():
            taken[name].append(one.times())
    return taken


def rows_of(taken: dict[str, list[tuple[float, float]]]) -> list[dict]:
    own = [step for _, step in taken[MILLRACE]]
    return [{"name": name, "forward_seconds": statistics.median(forward for forward, _ in times),
             "step_seconds": statistics.median(step for _, step in times),
             "to_millrace": statistics.median(step / ours for (_, step), ours in zip(times, own))}
            for name, times in taken.items()]


def table(rows: list[dict]) -> str:
    from peers.gpu_report import aligned

    lines = [[row["name"], f"{1e6 * row['forward_seconds']:.1f}", f"{1e6 * row['step_seconds']:.1f}",
              f"{row['to_millrace']:.3f}"] for row in rows]
    return "\n".join(aligned([["", "forward µs", "step µs", "to Millrace"], *lines]))


def main() -> int:
    options = parse_arguments()
    wanted = [word.strip().lower() for word in options.only.split(",") if word.strip()]
    peers = {name: kind for name, kind in PEERS.items()
             if not wanted or any(word in name.lower() for word in wanted)}
    with tempfile.TemporaryDirectory(prefix="millrace-blocks-") as folder:
        block = Block(options, Path(folder))
        agreed = compare_values(block, peers) if options.check else []
        rows = rows_of(measure(block, peers))
    print(f"{options.model} {block.sizes}, {options.dtype}; medians over {options.rounds} rounds of graph replays")
    print(table(rows))
    if options.out:
        import torch

        made = {"circumstances": environment.circumstances(1), "gpu": environment.gpu(), "command": sys.argv,
                "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "sizes": block.sizes,
                "dtype": options.dtype, "agreement": agreed, "rows": rows}
        options.out.write_text(json.dumps(made, indent=1) + "\n")
    return 0 if all(row["agrees"] for row in agreed) else 1


if __name__ == "__main__":
    sys.exit(main())
