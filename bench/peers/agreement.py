"""Checks whether two layers agree: by the largest difference in a tensor, relative to its largest element; on a GPU and
in dtypes of few bits, by the Euclidean distance over all elements."""

from __future__ import annotations

import numpy as np

# Bounds for the rounding error of one step; a wrong operator is off by orders of magnitude more.
TOLERANCE = {"float32": 1e-4, "float64": 1e-12}
# A ReLU whose input rounds across 0 changes an element of a gradient: PyTorch's own layer in float16 has distance 0.016
# from the one in float64, for its worst tensor, the gradient of b1.
DISTANCE_TOLERANCE = {"float16": 3e-2, "bfloat16": 1e-1, "float32": 1e-3, "float64": 1e-12}


def check_shapes(expected: dict[str, np.ndarray], made: dict[str, np.ndarray]) -> None:
    if missing := set(expected) - set(made):
        raise ValueError(f"no {', '.join(sorted(missing))} in the results")
    for name, values in expected.items():
        if values.shape != made[name].shape:
            raise ValueError(f"{name} has shape {made[name].shape}, not {values.shape}")


def rounded(tensor: np.ndarray, dtype: str) -> np.ndarray:
    """Rounds to the nearest value of the dtype, ties to even; the result is float64."""
    if dtype != "bfloat16":
        return tensor.astype(dtype).astype(np.float64)
    bits = np.ascontiguousarray(tensor, np.float32).reshape(-1).view(np.uint32)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)  # keep the upper half, rounded
    return bits.view(np.float32).astype(np.float64).reshape(np.shape(tensor))


def relative_distances(
    expected: dict[str, np.ndarray], made: dict[str, np.ndarray], scale_of: dict[str, str]
) -> dict[str, float]:
    """‖made − expected‖ / ‖expected‖ for every tensor, Euclidean. `scale_of` names another tensor for the divisor."""
    check_shapes(expected, made)
    return {name: float(np.linalg.norm((made[name] - values).reshape(-1))
                        / np.linalg.norm(expected[scale_of.get(name, name)].reshape(-1)))
            for name, values in expected.items()}


def worst_distance(distances: dict[str, float]) -> tuple[float, str]:
    """The largest distance and its tensor; NaN counts as the largest."""
    name = max(distances, key=lambda name: np.inf if np.isnan(distances[name]) else distances[name])
    return distances[name], name


def largest_difference(
    expected: dict[str, np.ndarray], made: dict[str, np.ndarray], scale_of: dict[str, str]
) -> tuple[float, str]:
    """The largest difference and its tensor. `scale_of` names another tensor for the scale."""
    check_shapes(expected, made)
    worst = (0.0, "")
    for name, values in expected.items():
        scale = np.max(np.abs(expected[scale_of.get(name, name)]))
        difference = float(np.max(np.abs(values - made[name])) / scale)
        if np.isnan(difference) or difference > worst[0]:
            worst = (difference, name)
        if np.isnan(difference):
            break
    return worst


def worst(
    expected: dict[str, np.ndarray], made: dict[str, np.ndarray], scale_of: dict[str, str], dtype: str
) -> tuple[float, str, float]:
    """The largest difference, measured as suits the dtype, with its tensor and its bound."""
    if dtype in TOLERANCE:
        return *largest_difference(expected, made, scale_of), TOLERANCE[dtype]
    return *worst_distance(relative_distances(expected, made, scale_of)), DISTANCE_TOLERANCE[dtype]
