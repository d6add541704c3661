#!/usr/bin/env python3
"""Pretrains BERT on text files: masked words and next sentences, first on short sequences, then on long ones.

    pretrain.py --phase 1 --steps 200 --out run           # length 128; a generated corpus if there is no --text
    pretrain.py --phase 2 --steps 50 --out run            # length 512, from the weights of phase 1
    torchrun --nproc-per-node 2 pretrain.py --phase 1 …   # data parallel
    pretrain.py --phase 1 --steps 400 --out run --resume  # continues; same bits as without a break

Writes run/phase1.pt (checkpoint), run/phase1.svg (loss) and run/tokenizer.json. Needs torch and millrace.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1] / "training")]
import corpus  # noqa: E402  (the paths above come first)
import processes  # noqa: E402
import training_run  # noqa: E402
from batches import Batches  # noqa: E402
from lamb import Lamb  # noqa: E402
from model import SIZES, Bert  # noqa: E402
from tokenizer import Tokenizer  # noqa: E402

LENGTHS = {"tiny": (16, 32), "base": (128, 512), "large": (128, 512)}  # of both phases


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, nargs="*", default=[],
                        help="one sentence per line, an empty line after each document")
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--phase", type=int, choices=(1, 2), default=1)
    parser.add_argument("--pack", type=int, default=1, metavar="N",
                        help="pairs of texts in each sequence; attention does not cross them (default: 1)")
    parser.add_argument("--optimizer", choices=("lamb", "adamw"), default="lamb")
    training_run.add_options(parser, rate=2e-3)
    return parser.parse_args(arguments)


def tokenizer_of(options: argparse.Namespace, documents: list[corpus.Document]) -> Tokenizer:
    """The phase before, or the run that is resumed, made it."""
    file = options.out / "tokenizer.json"
    if not file.exists() and processes.rank() == 0:
        Tokenizer.learn((line for one in documents for line in one), SIZES[options.size].vocabulary).save(file)
    processes.wait_for_all()
    return Tokenizer.load(file)


def optimizer_of(model: torch.nn.Module, options: argparse.Namespace) -> torch.optim.Optimizer:
    """Biases and norms have no weight decay."""
    groups = [{"params": [one for one in model.parameters() if one.dim() > 1]},
              {"params": [one for one in model.parameters() if one.dim() < 2], "weight_decay": 0.0}]
    return (Lamb if options.optimizer == "lamb" else torch.optim.AdamW)(groups, lr=options.lr, weight_decay=0.01)


def run_of(options: argparse.Namespace) -> training_run.Run:
    torch.manual_seed(options.seed)
    model = Bert(SIZES[options.size]).to(options.device).train()
    made = training_run.Run(model, optimizer_of(model, options), options, f"phase{options.phase}",
                   f"BERT {options.size}, phase {options.phase}", options.phase)
    if options.resume:
        made.resume()
    elif options.phase == 2:
        model.load_state_dict(training_run.read(options.out / "phase1.pt", options.device)["model"])
    return made


def main(arguments: list[str] | None = None) -> training_run.Run:
    options = parse_arguments(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    with processes.started(options):
        documents = corpus.read(options.text) if options.text else corpus.generate()
        tokenizer = tokenizer_of(options, documents)
        made = run_of(options)
        length = LENGTHS[options.size][options.phase - 1]
        made.train(Batches(documents, tokenizer, length, options.seed, options.pack).batch)
    return made


if __name__ == "__main__":
    main()
