"""Words to pieces of words. Pieces are learned by merging the most frequent pair of neighbours (byte-pair encoding, on
letters); a piece that continues a word begins with ##. A word is split from left to right into the longest pieces."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Iterable

PAD, UNKNOWN, CLS, SEP, MASK = range(5)
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_WORD = re.compile(r"\w+|[^\w\s]")
_LONGEST = 100  # letters of a word


def words_of(text: str) -> list[str]:
    return _WORD.findall(text.lower())


class Tokenizer:
    def __init__(self, pieces: list[str]):
        self.pieces = pieces
        self._ids = {piece: k for k, piece in enumerate(pieces)}
        self._known: dict[str, list[int]] = {}

    @staticmethod
    def learn(sentences: Iterable[str], size: int) -> Tokenizer:
        """At most `size` pieces."""
        counts = Counter(word for sentence in sentences for word in words_of(sentence))
        split = {word: [word[0], *(f"##{letter}" for letter in word[1:])] for word in counts}
        pieces = [*SPECIAL, *sorted({piece for parts in split.values() for piece in parts})]
        while len(pieces) < size:
            pairs = Counter()
            for word, parts in split.items():
                for pair in zip(parts, parts[1:]):
                    pairs[pair] += counts[word]
            if not pairs:
                break
            best = max(pairs, key=lambda pair: (pairs[pair], pair))
            pieces.append(_joined(best))
            split = {word: _merged(parts, best) for word, parts in split.items()}
        return Tokenizer(pieces[:size])

    def ids(self, text: str) -> list[int]:
        return [one for word in words_of(text) for one in self._word(word)]

    def _word(self, word: str) -> list[int]:
        if word not in self._known:
            self._known[word] = self._split(word)
        return self._known[word]

    def _split(self, word: str) -> list[int]:
        found, begin = [], 0
        while begin < len(word[:_LONGEST]):
            mark = "##" if begin else ""
            end = next((end for end in range(len(word), begin, -1) if mark + word[begin:end] in self._ids), None)
            if end is None:
                return [UNKNOWN]
            found.append(self._ids[mark + word[begin:end]])
            begin = end
        return found

    def save(self, file: Path) -> None:
        file.write_text(json.dumps(self.pieces))

    @staticmethod
    def load(file: Path) -> Tokenizer:
        return Tokenizer(json.loads(file.read_text()))


def _joined(pair: tuple[str, str]) -> str:
    return pair[0] + pair[1].removeprefix("##")


def _merged(parts: list[str], pair: tuple[str, str]) -> list[str]:
    made: list[str] = []
    for part in parts:
        if made and (made[-1], part) == pair:
            made[-1] = _joined(pair)
        else:
            made.append(part)
    return made
