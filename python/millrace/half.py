"""Elements of float16 and bfloat16 tensors: their 16 bits from and to float32, as in millrace/half.h. NumPy has float16,
but no bfloat16: its arrays are uint16."""

from __future__ import annotations

import numpy as np


def from_float16(bits) -> np.ndarray:
    return np.asarray(bits, dtype=np.uint16).view(np.float16).astype(np.float32)


def to_float16(values) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray(values, dtype=np.float32).astype(np.float16).view(np.uint16)


def from_bfloat16(bits) -> np.ndarray:
    return (np.asarray(bits, dtype=np.uint16).astype(np.uint32) << 16).view(np.float32)


def to_bfloat16(values) -> np.ndarray:
    """Rounds to nearest, ties to even."""
    floats = np.array(values, dtype=np.float32, order="C")
    bits = floats.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(floats), bits >> 16 | 0x40, rounded).astype(np.uint16)
