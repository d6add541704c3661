"""Batches of conversations. Sequence number n depends on the seed and n alone, so that a resumed run, or another number
of processes, sees the same sequences."""

from __future__ import annotations

import random
from typing import Callable

import torch

from conversations import Conversation

IGNORED = -100  # the label of a token that does not count: of prompts, and at the end of a sequence
END = 0  # the id of byte 0, which ends an answer
BYTES = 256


def byte_ids(text: str) -> list[int]:
    """A tokenizer for models without one."""
    return list(text.encode())


class Batches:
    """`encode`: text to ids; `end`: the id that ends an answer; `packed`: as many conversations in a sequence as fit,
    which do not see each other, instead of one."""

    def __init__(self, conversations: list[Conversation], length: int, seed: int, packed: bool = False,
                 encode: Callable[[str], list[int]] = byte_ids, end: int = END):
        self._encoded = [(encode(one.prompt), [*encode(one.answer), end]) for one in conversations]
        self._length, self._seed, self._packed = length, seed, packed

    def batch(self, first: int, count: int) -> dict[str, torch.Tensor]:
        """The sequences first, first + 1, …: arguments of Tuned.forward."""
        rows = [self._sequence(random.Random(f"{self._seed} {number}")) for number in range(first, first + count)]
        made = {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}
        return made if self._packed else {name: made[name] for name in ("ids", "labels")}

    def _sequence(self, draw: random.Random) -> dict[str, list[int]]:
        row: dict[str, list[int]] = {"ids": [], "labels": [], "places": [], "conversations": []}
        number = 0
        while number == 0 or (self._packed and len(row["ids"]) < self._length):
            number += 1
            self._append(row, number, *draw.choice(self._encoded))
        missing = self._length - len(row["ids"])
        ends = {"ids": 0, "labels": IGNORED, "places": 0, "conversations": 0}
        return {name: one[: self._length] + [ends[name]] * missing for name, one in row.items()}

    @staticmethod
    def _append(row: dict[str, list[int]], number: int, prompt: list[int], answer: list[int]) -> None:
        """Each token's label is the next one."""
        ids = [*prompt, *answer[:-1]]
        row["ids"] += ids
        row["labels"] += [IGNORED] * (len(prompt) - 1) + answer
        row["places"] += range(len(ids))
        row["conversations"] += [number] * len(ids)
