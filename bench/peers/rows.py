"""How long a row of calls is, and what comes before it: the same for every framework."""

from __future__ import annotations

import time

CALLED_SECONDS, FEWEST_CALLS = 0.1, 20  # of a row, about
# Before each of a round's times: a GPU that was busy for longer may have reached the limit of its power, and slow down.
REST_SECONDS = 0.2


def rest() -> None:
    time.sleep(REST_SECONDS)


def count_for(seconds: float, once: float, fewest: int) -> int:
    """Of calls that take so long together, where one takes `once`."""
    return max(fewest, round(seconds / max(once, 1e-6)))
