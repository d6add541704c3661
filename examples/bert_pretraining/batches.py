"""Batches for BERT's two tasks. Sequence number n depends on the seed and n alone, so that a resumed run, or another
number of processes, sees the same sequences."""

from __future__ import annotations

import random

import torch

from corpus import Document
from tokenizer import CLS, MASK, PAD, SEP, SPECIAL, Tokenizer

MASKED = 0.15  # of the tokens
IGNORED = -100  # the label of a position that does not count


class Batches:
    """`packed`: how many pairs of texts share a sequence; each gets the same length."""

    def __init__(self, documents: list[Document], tokenizer: Tokenizer, length: int, seed: int, packed: int = 1):
        self._documents = [[tokenizer.ids(sentence) for sentence in document] for document in documents]
        self._length, self._packed, self._seed = length // packed, packed, seed
        self._missing = length - packed * self._length
        self._classes = len(tokenizer.pieces)
        self.predictions = max(1, round(MASKED * self._length))  # masked positions of a pair, at most

    def batch(self, first: int, count: int) -> dict[str, torch.Tensor]:
        """The sequences first, first + 1, …: arguments of Bert.forward."""
        rows = [self._sequence(random.Random(f"{self._seed} {number}")) for number in range(first, first + count)]
        return {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}

    def _sequence(self, draw: random.Random) -> dict[str, list]:
        pairs = [self._pair_row(draw) for _ in range(self._packed)]
        row = {name: [one for pair in pairs for one in pair[name]] for name in pairs[0]}
        begins = [k * self._length for k in range(self._packed)]
        row["starts"] = begins
        row["positions"] = [begin + one for begin, pair in zip(begins, pairs) for one in pair["positions"]]
        if self._packed > 1:
            row["pairs"] = [k + 1 if keep else 0 for k, pair in enumerate(pairs) for keep in pair["pairs"]]
        for name in ("ids", "segments", "places", "pairs"):
            row[name] += [type(row[name][0])(0)] * self._missing
        return row

    def _pair_row(self, draw: random.Random) -> dict[str, list]:
        first, second, is_next = self._pair(draw)
        ids = [CLS, *first, SEP, *second, SEP]
        segments = [0] * (len(first) + 2) + [1] * (len(second) + 1)
        positions, labels = self._mask(draw, ids)
        missing = self._length - len(ids)
        return {"ids": ids + [PAD] * missing, "segments": segments + [0] * missing,
                "places": list(range(self._length)), "pairs": [True] * len(ids) + [False] * missing,
                "positions": positions, "labels": labels, "is_next": [int(is_next)]}

    def _pair(self, draw: random.Random) -> tuple[list[int], list[int], bool]:
        """Sentences, and those that follow them or some of another document; together they are as long as the
        sequence."""
        space = self._length - 3
        document = draw.choice(self._documents)
        middle = draw.randrange(1, len(document)) if len(document) > 1 else len(document)
        is_next = draw.random() < 0.5 and middle < len(document)
        other = document[middle:] if is_next else draw.choice(self._documents)
        if not is_next:
            other = other[draw.randrange(len(other)):]
        first = [one for sentence in document[:middle] for one in sentence]
        second = [one for sentence in other for one in sentence]
        half = space // 2
        kept = max(half, space - len(second))
        first = first[-kept:]
        return first, second[: space - len(first)], is_next

    def _mask(self, draw: random.Random, ids: list[int]) -> tuple[list[int], list[int]]:
        """Replaces tokens: 80 % by the mask, 10 % by any token, 10 % by themselves."""
        possible = [k for k, one in enumerate(ids) if one not in (CLS, SEP)]
        count = min(self.predictions, max(1, round(MASKED * len(possible))))
        positions = sorted(draw.sample(possible, min(count, len(possible))))
        labels = [ids[k] for k in positions]
        for k in positions:
            kind = draw.random()
            ids[k] = MASK if kind < 0.8 else draw.randrange(len(SPECIAL), self._classes) if kind < 0.9 else ids[k]
        missing = self.predictions - len(positions)
        return positions + [0] * missing, labels + [IGNORED] * missing
