#!/usr/bin/env python3
"""Times a training step (forward and backward) of Hugging Face models: eager PyTorch, torch.compile, and torch.compile
with Millrace's backend. Each model is built from a configuration, with random weights and fewer layers. Before it is
timed, a contestant's loss is compared with eager's, without dropout.

Needs torch and transformers. Example: bench/models.py --model bert --device cuda --layers 2 --budget 30s
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
import millrace.torch  # noqa: E402  (the path above comes first)

SIZES = {  # (batch, length, width, heads, key heads, inner width)
    "bert": {"large": (8, 512, 1024, 16, 16, 4096), "tiny": (2, 16, 32, 2, 2, 64)},
    "llama": {"large": (1, 2048, 2048, 32, 8, 8192), "tiny": (2, 16, 32, 4, 2, 64)},
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SIZES, default="bert")
    parser.add_argument("--size", choices=("large", "tiny"), default="large")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=DTYPES, help="default: float32; bfloat16 on a GPU")
    parser.add_argument("--dropout", type=float, default=0.1, metavar="P", help="of BERT (default: 0.1)")
    parser.add_argument("--budget", help="exploration of each of Millrace's plans (default: none)")
    parser.add_argument("--seconds", type=float, default=3, help="of measurement for each contestant (default: 3)")
    parser.add_argument("--only", action="append", metavar="NAME", help="only these contestants; may be repeated")
    parser.add_argument("--out", type=Path, help="JSON file")
    options = parser.parse_args()
    options.dtype = options.dtype or ("bfloat16" if options.device == "cuda" else "float32")
    return options


def model_of(options: argparse.Namespace) -> torch.nn.Module:
    """The layers without a head: their input is embedded ids."""
    _, length, width, heads, key_heads, inner = SIZES[options.model][options.size]
    common = dict(vocab_size=1024, hidden_size=width, num_hidden_layers=options.layers, num_attention_heads=heads,
                  intermediate_size=inner, max_position_embeddings=length)
    if options.model == "bert":
        made = transformers.BertModel(transformers.BertConfig(
            **common, hidden_dropout_prob=options.dropout, attention_probs_dropout_prob=options.dropout),
            add_pooling_layer=False)
    else:
        made = transformers.LlamaModel(transformers.LlamaConfig(**common, num_key_value_heads=key_heads,
                                                                use_cache=False))
    return made.to(options.device, DTYPES[options.dtype]).train()


def contestants(options: argparse.Namespace) -> dict[str, dict | None]:
    """Arguments of torch.compile; None: eager."""
    ours = {"budget": options.budget} if options.budget else {}
    return {"eager": None, "inductor": {"backend": "inductor"},
            "millrace": {"backend": "millrace", "options": {**ours, "choose": "plan"}},
            "millrace or inductor": {"backend": "millrace", "options": ours}}


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def step_seconds(step, options: argparse.Namespace) -> list[float]:
    """Times of blocks of steps, whose host may run ahead, by step."""
    for _ in range(3):
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


def run(name: str, arguments: dict | None, options: argparse.Namespace) -> dict:
    torch._dynamo.reset()
    torch.manual_seed(0)
    batch, length = SIZES[options.model][options.size][:2]
    model = model_of(options)
    ids = torch.randint(0, 1024, (batch, length), device=options.device)
    called = model if arguments is None else torch.compile(model, **arguments)

    def step() -> torch.Tensor:
        model.zero_grad(set_to_none=True)
        loss = called(input_ids=ids).last_hidden_state.float().square().mean()
        loss.backward()
        return loss

    began = time.monotonic()
    loss = step().item()
    first = time.monotonic() - began
    times = step_seconds(step, options)
    row = {"name": name, "loss": loss, "first_seconds": first, "step_ms": statistics.median(times) * 1e3,
           "fastest_ms": min(times) * 1e3}
    print(f"{name:24}{row['step_ms']:10.3f} ms a step (fastest {row['fastest_ms']:.3f}), first step {first:.1f} s, "
          f"loss {loss:.5f}", flush=True)
    return row


def main() -> int:
    options = parse_arguments()
    rows = []
    for name, arguments in contestants(options).items():
        if options.only and name not in options.only:
            continue
        try:
            rows.append(run(name, arguments, options))
        except Exception as error:  # report it and continue with the others
            print(f"{name:24}failed: {str(error).strip().splitlines()[:3]}", flush=True)
    if options.out:
        options.out.write_text(json.dumps({"options": {key: str(value) for key, value in vars(options).items()},
                                           "torch": torch.__version__, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
