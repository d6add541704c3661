#!/usr/bin/env python3
"""Checks that every source compiles by itself. Builds that compile a folder's files together do not show that."""

import concurrent.futures
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/each"


def complaint(entry: dict) -> str:
    command = shlex.split(entry["command"])
    output = command.index("-o")
    command[output : output + 2] = ["-fsyntax-only"]
    done = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True)
    return "" if done.returncode == 0 else f"{entry['file']} does not compile on its own:\n{done.stderr}"


def main() -> int:
    subprocess.run(["cmake", "--preset", "each"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    entries = {entry["file"]: entry for entry in json.loads((BUILD / "compile_commands.json").read_text())}
    # The largest first: one of them at the end would leave the other cores idle.
    ordered = sorted(entries.values(), key=lambda entry: -os.path.getsize(entry["file"]))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = list(filter(None, pool.map(complaint, ordered)))
    print("\n".join(complaints), end="")
    print(f"{len(ordered) - len(complaints)} of {len(ordered)} sources compile on their own")
    return 1 if complaints or not ordered else 0


if __name__ == "__main__":
    sys.exit(main())
