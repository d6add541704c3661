"""How long a GPU works in a step, and so for which share of the step it is idle."""

from __future__ import annotations

from typing import Callable

import torch

_STEPS = 4


def busy_seconds(step: Callable[[], object]) -> float:
    """The time of a step in which at least one kernel or copy runs."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(_STEPS):
            step()
        torch.cuda.synchronize()
    spans = [(event.time_range.start, event.time_range.end) for event in profile.events()
             if event.device_type == torch.autograd.DeviceType.CUDA]
    return _union(spans) * 1e-6 / _STEPS


def _union(spans: list[tuple[float, float]]) -> float:
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total
