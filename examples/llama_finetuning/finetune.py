#!/usr/bin/env python3
"""Fine-tunes Llama on questions and answers; only answers count in the loss.

    finetune.py --out run --steps 200                                # a tiny model on generated sums, on the CPU
    finetune.py --out run --weights Llama-3.2-1B --data chats.jsonl --batch 1 --length 2048 --budget 60s
    finetune.py --out run --size 1b --batch 1 --length 2048 --pack   # random weights, to measure
    finetune.py --out run --weights Llama-3.2-1B --rank 16           # low-rank adapters on frozen weights
    torchrun --nproc-per-node 8 finetune.py …                        # data parallel
    finetune.py --out run --steps 400 --resume                       # continues; same bits as without a break

Writes run/tuned.pt (checkpoint; with --rank, the adapters alone) and run/tuned.svg (loss). Needs torch, transformers
and millrace.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1] / "training")]
import conversations  # noqa: E402  (the paths above come first)
import processes  # noqa: E402
import training_run  # noqa: E402
from answers import Batches  # noqa: E402
from tuned import SIZES, Tuned, llama  # noqa: E402


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="*", default=[], help='lines of {"prompt": …, "answer": …}')
    parser.add_argument("--weights", type=Path, help="Hugging Face's folder of a Llama model and its tokenizer")
    parser.add_argument("--size", choices=SIZES, default="tiny",
                        help="size of the model, without --weights (default: tiny)")
    parser.add_argument("--length", type=int, default=16, help="tokens of a sequence (default: 16)")
    parser.add_argument("--pack", action="store_true",
                        help="fill each sequence with conversations; attention does not cross them")
    parser.add_argument("--rank", type=int, default=0, help="rank of low-rank adapters (default: 0, train all weights)")
    training_run.add_options(parser, rate=2e-5)
    return parser.parse_args(arguments)


def batches_of(options: argparse.Namespace) -> Batches:
    found = conversations.read(options.data) if options.data else conversations.generate()
    if options.weights is None:
        return Batches(found, options.length, options.seed, options.pack)
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(options.weights, local_files_only=True)
    return Batches(found, options.length, options.seed, options.pack, tokenizer.encode, tokenizer.eos_token_id)


def run_of(options: argparse.Namespace) -> training_run.Run:
    torch.manual_seed(options.seed)
    model = Tuned(llama(options.size, options.weights), options.rank).to(options.device).train()
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=options.lr, weight_decay=0.0, fused=True)
    made = training_run.Run(model, optimizer, options, "tuned", "Llama")
    if options.resume:
        made.resume()
    return made


def main(arguments: list[str] | None = None) -> training_run.Run:
    options = parse_arguments(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    with processes.started(options):
        made = run_of(options)
        made.train(batches_of(options).batch)
    return made


if __name__ == "__main__":
    main()
