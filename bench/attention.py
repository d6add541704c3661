#!/usr/bin/env python3
"""Times attention alone on a GPU: Millrace beside PyTorch's cuDNN, FlashAttention, memory-efficient and FlexAttention.

Each case is a program of our language. First all results and gradients without dropout are compared with the
definition in float64. Then forward and a step (forward and backward) with the case's dropout are replayed from CUDA
graphs. TFLOP/s count two products in forward and five in backward, of scores that are not hidden. With a rotary
embedding, the result says which launches Millrace selected: an attention "with" q and k computes their rows itself.
Its other candidates are in the database (millrace db show).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from peers import environment  # noqa: E402  (the path above comes first)
from peers.attention_cases import CASES, Case, program_text  # noqa: E402
from peers.environment import ROOT, say  # noqa: E402

MILLRACE = "Millrace"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n  bench/attention.py --list\n  bench/attention.py --only Llama --budget 30s")
    parser.add_argument("--list", action="store_true", help="list the cases and stop")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose names contain this")
    parser.add_argument("--peers", default="", metavar="TEXT,...", help="only these peers (default: all)")
    parser.add_argument("--budget", default="30s", metavar="TIME", help="time for millrace optimize (default: 30s)")
    parser.add_argument("--check-budget", default="10s", metavar="TIME",
                        help="time for the plan without dropout, whose values are compared (default: 10s)")
    parser.add_argument("--no-check", dest="check", action="store_false", help="compare only times, not values")
    parser.add_argument("--peers-only", action="store_true", help="leave out Millrace")
    parser.add_argument("--millrace", default=str(ROOT / "millrace"), metavar="COMMAND", help="default: ./millrace")
    parser.add_argument("--out", type=Path, help="JSON file for the results, written after each case")
    return parser.parse_args()


def distances(expected: dict, made: dict) -> dict[str, float]:
    """‖made − expected‖ / ‖expected‖ of every tensor; NaN stays NaN."""
    return {name: float((made[name].double() - values).norm() / values.norm()) for name, values in expected.items()}


class MillraceAttention:
    """One case as a plan, in a folder of its own."""

    def __init__(self, options: argparse.Namespace, case: Case, folder: Path):
        self.options, self.case, self.folder = options, case, folder
        folder.mkdir(parents=True, exist_ok=True)

    def _peer(self, dropout: float, budget: str):
        from peers.millrace_peer import MillracePeer

        program = self.folder / f"attention_{'with' if dropout else 'without'}_dropout.py"
        program.write_text(program_text(self.case, dropout))
        return MillracePeer(self.options.millrace, program, [], self.case.dtype, budget, program.with_suffix(".plan"),
                            device="cuda", seconds=1)

    def results(self, tensors: dict, mask) -> dict:
        import torch

        peer = self._peer(0.0, self.options.check_budget)
        peer.prepare()
        given = {name: tensor.float().cpu().numpy() for name, tensor in tensors.items()}
        if self.case.padding:
            given["visible"] = mask.cpu().numpy()
        made = peer.results(given)
        return {name: torch.from_numpy(values).cuda() for name, values in made.items()}

    def launches(self) -> list[str]:
        """The partitions of the plan that was timed."""
        plan = json.loads(Path(self._peer(self.case.dropout, self.options.budget).plan).read_text())
        return [launch["partition"] for launch in plan["launches"] if "partition" in launch]

    def times(self) -> tuple[float, float]:
        peer = self._peer(self.case.dropout, self.options.budget)
        peer.prepare()
        taken = peer.round()
        return taken.forward, taken.step


def run_case(options: argparse.Namespace, case: Case, folder: Path) -> list[dict]:
    from peers import agreement, torch_attention

    tensors = torch_attention.draw(case)
    expected = torch_attention.definition(case, tensors) if options.check else {}
    wanted = [name for name in options.peers.split(",") if name]
    names = [name for name in (*torch_attention.BACKENDS, torch_attention.FLEX) if not wanted or name in wanted]
    rows = []
    for name in ([] if options.peers_only else [MILLRACE]) + names:
        row: dict = {"case": case.name, "name": name}
        try:
            if name == MILLRACE:
                one = MillraceAttention(options, case, folder)
                made = one.results(tensors, torch_attention.visible_mask(case)) if options.check else {}
            else:
                one = torch_attention.TorchAttention(case, name, tensors)
                made = one.results() if options.check else {}
            if options.check:
                row["distances"] = distances(expected, made)
                worst = max(row["distances"].values())
                if not worst <= agreement.DISTANCE_TOLERANCE[case.dtype]:  # also if it is NaN
                    raise ValueError(f"wrong: {row['distances']}")
            row["forward_seconds"], row["step_seconds"] = one.times()
            if name == MILLRACE:
                row["launches"] = one.launches()
        except Exception as error:  # a peer that lacks a case, or fails, does not end the others
            row["error"] = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        rows.append(row)
        outcome = row["error"] if "error" in row else f"{1e6 * row['step_seconds']:.1f} µs"
        say(f"{case.name}: {name}: {outcome}")
    return rows


def table(rows: list[dict]) -> str:
    from peers.gpu_report import aligned

    cases = {case.name: case for case in CASES}
    lines = [["case", "", "forward µs", "step µs", "TFLOP/s", "to Millrace"]]
    for row in rows:
        if "error" in row:
            continue
        own = next((other for other in rows if other["case"] == row["case"] and other["name"] == MILLRACE), {})
        ratio = f"{row['step_seconds'] / own['step_seconds']:.3f}" if "step_seconds" in own else "-"
        rate = cases[row["case"]].step_flop() / row["step_seconds"] / 1e12
        lines.append([row["case"], row["name"], f"{1e6 * row['forward_seconds']:.1f}",
                      f"{1e6 * row['step_seconds']:.1f}", f"{rate:.0f}", ratio])
    failed = [f"{row['case']}: {row['name']}: {row['error']}" for row in rows if "error" in row]
    return "\n".join(aligned(lines) + failed)


def measured_on() -> dict:
    import torch

    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    return {"circumstances": environment.circumstances(1), "gpu": environment.gpu(), "versions": versions}


def main() -> int:
    options = parse_arguments()
    cases = [case for case in CASES if options.only.lower() in case.name.lower()]
    if options.list or not cases:
        print("\n".join(case.name for case in CASES))
        return 0 if options.list else 2
    rows: list[dict] = []
    circumstances = measured_on() if options.out else {}
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(cases):
            rows += run_case(options, case, Path(folder, str(number)))
            if options.out:
                options.out.write_text(json.dumps({**circumstances, "rows": rows}, indent=1) + "\n")
    print(table(rows))
    return 0 if all("error" not in row for row in rows if row["name"] == MILLRACE) else 1


if __name__ == "__main__":
    sys.exit(main())
