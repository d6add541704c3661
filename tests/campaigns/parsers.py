"""libFuzzer on each parser of untrusted input, under ASan and UBSan. The corpus grows in the campaign's folder.

A fuzzer (tests/fuzz/) gives an input to a parser, and what was accepted is verified or must survive being written.
libFuzzer changes accepted and refused inputs at random positions, and keeps those that run new code. All bytes that the
parser got are counted; those of the corpus are given once in each slice, so slices should take minutes. Slices of short
inputs, most of which are parsed to the end, alternate with slices of long ones, in which a change comes after much
valid input.
"""

import json
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

from campaign import ROOT, SANITIZER_OPTIONS, Binaries, Campaign, Slice

PARSERS = ("frontend", "safetensors", "plan", "rows", "measurements")
LENGTHS = (1 << 12, 1 << 16)  # bytes of an input, in successive slices
LONG = 30_000  # of a seed for the long ones


def repeated(text: bytes, separator: bytes = b"") -> bytes:
    return separator.join([text] * (LONG // len(text) + 1))


def longer_lists(value: object) -> object:
    """The same JSON with every element of a list many times."""
    if isinstance(value, list):
        return [longer_lists(each) for each in value] * (40 if len(value) < 40 else 1)
    return {key: longer_lists(each) for key, each in value.items()} if isinstance(value, dict) else value


def long_json(seeds: list[bytes]) -> list[bytes]:
    return [json.dumps(longer_lists(json.loads(seed))).encode()[: LENGTHS[-1]] for seed in seeds]


def long_safetensors(_: list[bytes]) -> list[bytes]:
    header, data = {}, b""
    for k, kind in enumerate(("F16", "BF16", "F32", "F64", "U8", "BOOL", "I32", "I64") * 4):
        size = {"F16": 2, "BF16": 2, "F32": 4, "F64": 8, "U8": 1, "BOOL": 1, "I32": 4, "I64": 8}[kind]
        header[f"t{k}"] = {"dtype": kind, "shape": [8, 32], "data_offsets": [len(data), len(data) + 256 * size]}
        data += bytes(k % 2 for k in range(256 * size))
    text = json.dumps(header).encode()
    return [struct.pack("<Q", len(text)) + text + data]


def long_programs(_: list[bytes]) -> list[bytes]:
    programs = [path.read_bytes() for path in sorted((ROOT / "models").glob("*.py"))]
    return [*programs, *(repeated(program, b"\n") for program in programs[:6])]


LONG_SEEDS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "frontend": long_programs, "safetensors": long_safetensors, "plan": long_json, "measurements": long_json,
    "rows": lambda seeds: [repeated(seed) for seed in seeds],
}


def corpus_of(parser: str) -> Path:
    """Grown by all slices; the committed seeds stay as they are."""
    folder = ROOT / "build/campaigns/corpus" / parser
    if not folder.exists():
        seeds = ROOT / "tests/fuzz/corpus" / parser
        shutil.copytree(seeds, folder)
        texts = [path.read_bytes() for path in sorted(seeds.iterdir())]
        for number, text in enumerate(LONG_SEEDS[parser](texts)):
            (folder / f"long_{number}").write_bytes(text)
    return folder


def fuzz(parser: str, binaries: Binaries, seed: int, seconds: float, folder: Path) -> Slice:
    # Entropic scheduling takes more time than the frontend's parser.
    found = ROOT / "build/campaigns/found"
    found.mkdir(parents=True, exist_ok=True)
    dictionary = ROOT / f"tests/fuzz/{parser}.dict"
    done = subprocess.run(
        [str(binaries.sanitized / f"tests/fuzz/{parser}_fuzzer"), f"-seed={seed}", f"-max_total_time={round(seconds)}",
         f"-max_len={LENGTHS[seed % len(LENGTHS)]}", "-len_control=0", "-reload=0", "-entropic=0",
         "-rss_limit_mb=2048", "-timeout=300",
         f"-artifact_prefix={found}/{parser}-{seed}-", *([f"-dict={dictionary}"] if dictionary.exists() else []),
         str(corpus_of(parser))],
        cwd=folder, capture_output=True, text=True, errors="replace", env={**os.environ, **SANITIZER_OPTIONS},
    )
    counted = re.search(r"fuzzed (\d+) bytes in (\d+) inputs", done.stderr)
    counts = {"bytes": int(counted[1]), "inputs": int(counted[2])} if counted else {}
    failures = [] if done.returncode == 0 else [{"seed": str(seed), "what": done.stderr[-3000:]}]
    return Slice(seed + 1, counts, [], failures)


def campaign_of(parser: str) -> Campaign:
    return Campaign(
        f"parser_{parser}", ("bytes", 10**9),
        lambda binaries, seed, seconds, most, folder: fuzz(parser, binaries, seed, seconds, folder),
    )


CAMPAIGNS = [campaign_of(parser) for parser in PARSERS]
