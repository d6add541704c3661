"""Questions with answers: a JSON object on each line of a file, {"prompt": …, "answer": …}. Without files, some are
generated."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import NamedTuple


class Conversation(NamedTuple):
    prompt: str
    answer: str


def read(files: list[Path]) -> list[Conversation]:
    return [_parsed(line, f"{file}:{number}") for file in files
            for number, line in enumerate(file.read_text().splitlines(), 1) if line.strip()]


def _parsed(line: str, place: str) -> Conversation:
    try:
        found = json.loads(line)
        return Conversation(str(found["prompt"]), str(found["answer"]))
    except (ValueError, TypeError, KeyError) as error:
        raise SystemExit(f'error: {place}: expected {{"prompt": "…", "answer": "…"}}') from error


def generate(count: int = 400, seed: int = 0) -> list[Conversation]:
    """Sums of small numbers."""
    draw = random.Random(seed)
    pairs = [(draw.randrange(10), draw.randrange(10)) for _ in range(count)]
    return [Conversation(f"{one}+{other}=", str(one + other)) for one, other in pairs]
