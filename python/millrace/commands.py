"""The commands of `millrace` as functions. Each takes the path of a program and the options of the command line by
name, and returns the JSON that the command prints."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Mapping, Sequence, Union

from millrace import _library

Sizes = Union[str, Mapping[str, int], Sequence[str], None]


def sizes_list(sizes: Sizes) -> list[str]:
    """Values for --size, from "tiny", {"B": 8} or ["tiny", "B=8"]."""
    if sizes is None:
        return []
    if isinstance(sizes, str):
        return [sizes]
    if isinstance(sizes, Mapping):
        return [f"{name}={value}" for name, value in sizes.items()]
    return list(sizes)


def run_command(command: str, program: str | os.PathLike, *, quiet: bool = False, **options) -> str:
    """Runs the command and returns its output. Shows progress on standard error if that is a terminal."""
    request = {"command": command, "program": os.fspath(program)}
    request.update({name: value for name, value in options.items() if value is not None})
    shows = not quiet and sys.stderr.isatty()
    outcome: list = []

    def work() -> None:
        try:
            outcome.append(_library.command_text(json.dumps(request).encode(), _show if shows else None,
                                                 None if quiet else _say))
        except BaseException as error:  # the caller's thread raises it
            outcome.append(error)

    # A separate thread lets Ctrl-C reach the caller. Measurements made before it are kept.
    thread = threading.Thread(target=work, name=f"millrace {command}", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.2)
    if shows:
        sys.stderr.write("\r\x1b[K")
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def analyze(program, *, sizes: Sizes = None, dtype: str | None = None, entry: str | None = None, **options) -> dict:
    """Returns flop, words, class and lower bound of every operator, forward and backward."""
    return json.loads(run_command("analyze", program, sizes=sizes_list(sizes), dtype=dtype, entry=entry, **options))


def fuse(program, *, sizes: Sizes = None, dtype: str | None = None, entry: str | None = None, **options) -> dict:
    """Returns the groups of operators that run as one kernel each, and the words that fusion saves."""
    return json.loads(run_command("fuse", program, sizes=sizes_list(sizes), dtype=dtype, entry=entry, **options))


def optimize(program, out, *, sizes: Sizes = None, dtype: str | None = None, entry: str | None = None,
             budget: str = "60s", inputs: str | os.PathLike | None = None, **options) -> dict:
    """Explores, selects, writes a plan into the folder `out`, and returns the speedup and its details.

    `inputs`: a safetensors file of example inputs to time and check the plan with; without it inputs are random.
    """
    given = None if inputs is None else os.fspath(inputs)
    return json.loads(run_command("optimize", program, out=os.fspath(out), sizes=sizes_list(sizes), dtype=dtype,
                                  entry=entry, budget=budget, **{"in": given}, **options))


def bench(plan, *, seconds: float = 3, inputs: str | os.PathLike | None = None, **options) -> dict:
    """Times the plan's forward, backward and step. `inputs`: a safetensors file; without it inputs are random."""
    given = None if inputs is None else os.fspath(inputs)
    return json.loads(run_command("bench", plan, seconds=seconds, **{"in": given}, **options))


def _say(line: str) -> None:
    print(f"millrace: {line}", file=sys.stderr, flush=True)


def _show(text: str) -> None:
    so_far = json.loads(text)
    step = f", step {so_far['seconds'] * 1e3:.3g} ms" if so_far["seconds"] > 0 else ""
    left = f", {so_far['left']:.0f} s left" if so_far["left"] > 0 else ""
    done = f" {so_far['done']:.0f} of {so_far['total']:.0f}" if so_far["total"] > 0 else ""
    sys.stderr.write(f"\r\x1b[Kmillrace: {so_far['doing']}{done}{step}{left}")
    sys.stderr.flush()
