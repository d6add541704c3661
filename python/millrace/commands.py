"""What the program `millrace` does, as functions. Each takes a program's path and the command line's options by name,
and returns what the command prints as JSON."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Mapping, Sequence, Union

from millrace import _library

Sizes = Union[str, Mapping[str, int], Sequence[str], None]


def sizes_list(sizes: Sizes) -> list[str]:
    """As --size takes them: "tiny", {"B": 8}, ["tiny", "B=8"]."""
    if sizes is None:
        return []
    if isinstance(sizes, str):
        return [sizes]
    if isinstance(sizes, Mapping):
        return [f"{name}={value}" for name, value in sizes.items()]
    return list(sizes)


def run_command(command: str, program: str | os.PathLike, *, quiet: bool = False, **options) -> str:
    """The command's text. Progress goes to standard error, where that is a terminal."""
    request = {"command": command, "program": os.fspath(program)}
    request.update({name: value for name, value in options.items() if value is not None})
    shows = not quiet and sys.stderr.isatty()
    outcome: list = []

    def work() -> None:
        try:
            outcome.append(_library.command_text(json.dumps(request).encode(), _show if shows else None,
                                                 None if quiet else _say))
        except BaseException as error:  # whatever it is, the caller's thread raises it
            outcome.append(error)

    # In a thread of its own, so that Ctrl-C reaches the caller. What was measured until then is kept.
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
    """Flop, words, class and lower bound of every operator of forward and backward."""
    return json.loads(run_command("analyze", program, sizes=sizes_list(sizes), dtype=dtype, entry=entry, **options))


def fuse(program, *, sizes: Sizes = None, dtype: str | None = None, entry: str | None = None, **options) -> dict:
    """The groups of operators that run as one kernel each, and the words that saves."""
    return json.loads(run_command("fuse", program, sizes=sizes_list(sizes), dtype=dtype, entry=entry, **options))


def optimize(program, out, *, sizes: Sizes = None, dtype: str | None = None, entry: str | None = None,
             budget: str = "60s", **options) -> dict:
    """Explores, selects and writes a plan into the folder `out`; what was gained."""
    return json.loads(run_command("optimize", program, out=os.fspath(out), sizes=sizes_list(sizes), dtype=dtype,
                                  entry=entry, budget=budget, **options))


def bench(plan, *, seconds: float = 3, inputs: str | os.PathLike | None = None, **options) -> dict:
    """The plan's forward, backward and step, timed; `inputs`: a file of safetensors, in place of drawn ones."""
    given = None if inputs is None else os.fspath(inputs)
    return json.loads(run_command("bench", plan, seconds=seconds, **{"in": given}, **options))


def _say(line: str) -> None:
    print(f"millrace: {line}", file=sys.stderr, flush=True)


def _show(text: str) -> None:
    so_far = json.loads(text)
    step = f", a step takes {so_far['seconds'] * 1e3:.3g} ms" if so_far["seconds"] > 0 else ""
    left = f", {so_far['left']:.0f} s left" if so_far["left"] > 0 else ""
    sys.stderr.write(f"\r\x1b[Kmillrace: {so_far['doing']} {so_far['done']:.0f} of {so_far['total']:.0f}{step}{left}")
    sys.stderr.flush()
