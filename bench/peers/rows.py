"""How long a row of calls is: the same for every framework."""

from __future__ import annotations

CALLED_SECONDS, FEWEST_CALLS = 0.1, 20  # of a row, about


def count_for(seconds: float, once: float, fewest: int) -> int:
    """Of calls that take so long together, where one takes `once`."""
    return max(fewest, round(seconds / max(once, 1e-6)))
