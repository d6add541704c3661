"""The process of one contestant on a GPU: `worker.py SPECIFICATION` reads requests as lines of JSON and answers each
with one line.

    {"do": "check", "in": FILE, "out": FILE}   results and gradients with dropout 0, for given tensors
    {"do": "prepare"}                          preparation before timing
    {"do": "round"}                            times of one round

An answer is {"done": ...} or {"failed": "why"}. Separate processes isolate contestants from each other's crashes,
compilations and memory.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def contestant_of(specification: dict):
    """Creates the contestant with the framework that the specification names."""
    if specification["framework"] == "jax":
        from peers.jax_contestant import JaxContestant as Contestant
    else:
        from peers.torch_contestant import TorchContestant as Contestant
    return Contestant(specification)


def reason_of(error: BaseException) -> str:
    """The error in one line; the traceback goes to standard error."""
    traceback.print_exception(error)
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]


def answer_to(request: dict, contestant) -> dict | None:
    if request["do"] == "check":
        contestant.check(Path(request["in"]), Path(request["out"]))
        return None
    if request["do"] == "prepare":
        return contestant.prepare()
    if request["do"] == "round":
        return contestant.round()
    raise ValueError(f"unknown request '{request['do']}'")


def serve(specification: dict, requests, answers, make=contestant_of) -> None:
    """Serves all requests; a failure is an answer."""
    contestant = None
    for line in requests:
        try:
            contestant = contestant or make(specification)
            answer = {"done": answer_to(json.loads(line), contestant)}
        except Exception as error:  # any failure is reported
            answer = {"failed": reason_of(error)}
        print(json.dumps(answer), file=answers, flush=True)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keep the output of libraries out of the answers
    serve(json.loads(sys.argv[1]), sys.stdin, answers)


if __name__ == "__main__":
    main()
