"""Draws arguments for the models in models/: floating-point numbers, and integers that are valid indices."""

from __future__ import annotations

import numpy as np

from numpy_program import Program

# For each model and integer argument, the bound of its integers: the name of a size, or a number.
LIMITS = {
    "bert": {"ids": "V", "segments": "T", "labels": "V", "follows": 2},
    "t5_encoder_layer": {"buckets": "N"},
    "t5_decoder_layer": {"buckets": "N"},
}

# Models that Millrace cannot read yet, each with the construct; tests that need Millrace skip them.
NOT_YET = {
}


def draw_arguments(model: str, program: Program) -> dict[str, np.ndarray]:
    """Normal values, small enough that no softmax saturates; scalars as 0-d arrays."""
    rng = np.random.default_rng(2021)
    return {name: _draw(model, name, program, rng) for name in program.shapes}


def _draw(model: str, name: str, program: Program, rng: np.random.Generator) -> np.ndarray:
    shape, kind = program.shapes[name], program.types[name].name
    if kind == "bool_":
        return rng.integers(2, size=shape) == 1
    if kind.startswith("int"):
        limit = LIMITS[model][name]
        return rng.integers(limit if isinstance(limit, int) else program.sizes[limit], size=shape, dtype=kind)
    return np.asarray(rng.uniform(0.25, 0.75) if shape is None else 0.5 * rng.standard_normal(shape))
