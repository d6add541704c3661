"""Whether two layers computed the same: the largest difference of a tensor, relative to its largest element."""

from __future__ import annotations

import numpy as np

# What rounding of one step may come to; a wrong operator is off by orders of magnitude more.
TOLERANCE = {"float32": 1e-4, "float64": 1e-12}


def largest_difference(
    expected: dict[str, np.ndarray], made: dict[str, np.ndarray], scale_of: dict[str, str]
) -> tuple[float, str]:
    """The difference and the tensor that has it; `scale_of` names another tensor to be relative to."""
    if missing := set(expected) - set(made):
        raise ValueError(f"no {', '.join(sorted(missing))} came out")
    worst = (0.0, "")
    for name, values in expected.items():
        if values.shape != made[name].shape:
            raise ValueError(f"{name} has shape {made[name].shape}, not {values.shape}")
        scale = np.max(np.abs(expected[scale_of.get(name, name)]))
        difference = float(np.max(np.abs(values - made[name])) / scale)
        if np.isnan(difference) or difference > worst[0]:
            worst = (difference, name)
        if np.isnan(difference):
            break
    return worst
