"""Text: one sentence a line, an empty line between documents. Without files, a small corpus is generated."""

from __future__ import annotations

import random
from pathlib import Path

Document = list[str]  # sentences

_WHO = "the miller|a baker|the old farmer|my neighbour|the apprentice|a merchant|the smith|her brother".split("|")
_DOES = {"grinds": "wheat|rye|barley|oats", "carries": "flour|sacks|water|stones",
         "repairs": "the wheel|the sluice|the roof|the cart", "sells": "bread|flour|oats|a horse",
         "watches": "the river|the wheel|the fire|the sky"}
_WHEN = "in the morning|before noon|every week|after the rain|in winter|at dusk".split("|")


def read(files: list[Path]) -> list[Document]:
    documents: list[Document] = [[]]
    for file in files:
        for line in file.read_text().splitlines() + [""]:
            if line.strip():
                documents[-1].append(line.strip())
            elif documents[-1]:
                documents.append([])
    return [document for document in documents if document]


def generate(documents: int = 60, sentences: int = 12, seed: int = 0) -> list[Document]:
    """Each document is about one person, so that the next sentence can be told from another document's."""
    draw = random.Random(seed)
    return [_document(draw, sentences) for _ in range(documents)]


def _document(draw: random.Random, sentences: int) -> Document:
    who, made = draw.choice(_WHO), []
    for _ in range(sentences):
        does = draw.choice(list(_DOES))
        made.append(f"{draw.choice(_WHEN)} {who} {does} {draw.choice(_DOES[does].split('|'))}.")
    return made
