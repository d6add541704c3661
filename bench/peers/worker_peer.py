"""The comparison's side of a contestant in a separate process (worker.py)."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

WORKER = Path(__file__).resolve().with_name("worker.py")
STOP_SECONDS = 5


class WorkerFailed(Exception):
    """A contestant has no result; the message says why."""


class WorkerPeer:
    """A context manager that stops the process on exit."""

    def __init__(self, specification: dict, log: Path, variables: dict[str, str] | None = None,
                 python: str = sys.executable, worker: Path = WORKER):
        self.name, self.log = specification["name"], log
        with open(log, "ab") as errors:
            self.process = subprocess.Popen([python, str(worker), json.dumps(specification)], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=errors, env=os.environ | (variables or {}))
        self.rest = b""

    def __enter__(self) -> WorkerPeer:
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def ask(self, request: dict, seconds: float):
        """The worker's answer; raises WorkerFailed on failure or timeout."""
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:  # the process ended; its log has the reason
            raise WorkerFailed(self._end()) from None
        answer = json.loads(self._line(time.monotonic() + seconds, seconds))
        if "failed" in answer:
            raise WorkerFailed(answer["failed"])
        return answer["done"]

    def _line(self, deadline: float, seconds: float) -> bytes:
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self.process.kill()
                raise WorkerFailed(f"no answer within {seconds:.0f} s")
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                raise WorkerFailed(self._end())
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return line

    def _end(self) -> str:
        code = self.process.wait()
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return f"its process ended with {code}: {lines[-1][:300] if lines else 'it printed nothing'}"

    def stop(self) -> None:
        """Closes the pipes, and kills the process if it does not end soon."""
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
