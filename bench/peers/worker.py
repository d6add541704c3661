"""The process of one contestant on a GPU: `worker.py SPECIFICATION`, which takes requests as lines of JSON and answers
each by one line.

    {"do": "check", "in": FILE, "out": FILE}   results and gradients with dropout 0, of given tensors
    {"do": "prepare"}                          all that is done once before timing
    {"do": "round"}                            seconds, in this round's turn

An answer is {"done": ...} or {"failed": "why"}. A contestant that crashes takes nobody along, and none finds another's
compilations or memory.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def contestant_of(specification: dict):
    """In this process, by the framework that the specification names."""
    if specification["framework"] == "jax":
        from peers.jax_contestant import JaxContestant as Contestant
    else:
        from peers.torch_contestant import TorchContestant as Contestant
    return Contestant(specification)


def reason_of(error: BaseException) -> str:
    """One line; the whole goes to standard error."""
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
    raise ValueError(f"there is no '{request['do']}'")


def serve(specification: dict, requests, answers, make=contestant_of) -> None:
    """Until there are no more requests; a failure is an answer."""
    contestant = None
    for line in requests:
        try:
            contestant = contestant or make(specification)
            answer = {"done": answer_to(json.loads(line), contestant)}
        except Exception as error:  # whatever it is, it is told
            answer = {"failed": reason_of(error)}
        print(json.dumps(answer), file=answers, flush=True)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    serve(json.loads(sys.argv[1]), sys.stdin, answers)


if __name__ == "__main__":
    main()
