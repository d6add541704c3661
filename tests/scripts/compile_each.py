#!/usr/bin/env python3
"""Checks that sources compile by themselves, with precompiled headers as in a user's build. Builds that compile a
folder's files together do not show that. A third of the sources a day; with --all every one."""

import concurrent.futures
import datetime
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/each"
SLICES = 3


def complaint(entry: dict) -> str:
    command = shlex.split(entry["command"])
    output = command.index("-o")
    command[output : output + 2] = ["-fsyntax-only"]
    done = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True)
    return "" if done.returncode == 0 else f"{entry['file']} does not compile on its own:\n{done.stderr}"


def ninja(*arguments: str) -> list[str]:
    """What one of ninja's tools prints."""
    done = subprocess.run(["ninja", "-C", BUILD, "-t", *arguments], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def precompile_headers() -> None:
    """Runs only the command of each header itself: as a target it would build the libraries before it."""
    outputs = [line.split(": ")[0] for line in ninja("targets", "all")]
    for header in filter(lambda output: output.endswith(".gch"), outputs):
        subprocess.run(ninja("commands", "-s", header)[-1], shell=True, cwd=BUILD, check=True)


def slice_of_today() -> slice:
    if "--all" in sys.argv[1:]:
        return slice(None)
    first = datetime.date.today().toordinal() % SLICES
    print(f"slice {first + 1} of {SLICES}; all of them: tests/scripts/compile_each.py --all")
    return slice(first, None, SLICES)


def main() -> int:
    subprocess.run(["cmake", "--preset", "each"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    precompile_headers()
    entries = {entry["file"]: entry for entry in json.loads((BUILD / "compile_commands.json").read_text())}
    entries = {file: entries[file] for file in sorted(entries)[slice_of_today()]}
    # The largest first: one of them at the end would leave the other cores idle.
    ordered = sorted(entries.values(), key=lambda entry: -os.path.getsize(entry["file"]))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = list(filter(None, pool.map(complaint, ordered)))
    print("\n".join(complaints), end="")
    print(f"{len(ordered) - len(complaints)} of {len(ordered)} sources compile on their own")
    return 1 if complaints or not ordered else 0


if __name__ == "__main__":
    sys.exit(main())
