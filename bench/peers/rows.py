"""The length of a sequence of timed calls, the same for every framework."""

from __future__ import annotations

CALLED_SECONDS, FEWEST_CALLS = 0.1, 20  # about this long, and at least this many


def count_for(seconds: float, once: float, fewest: int) -> int:
    """The number of calls that take about `seconds`, if one takes `once`."""
    return max(fewest, round(seconds / max(once, 1e-6)))
