"""Elementary functions over 10^6 elements."""

from __future__ import annotations

import numpy as np
from program import Program

RANGES = {"exp": (-20, 20), "log": (1e-3, 1e3), "sin": (-100, 100), "tanh": (-4, 4)}


def program(name: str, dtype: str) -> Program:
    """One function in one precision."""

    def make(jax, jnp, lax, _):
        return getattr(jnp, name)

    def inputs(size):
        low, high = RANGES[name]
        return (np.random.default_rng(2).uniform(low, high, size).astype(dtype),)

    return Program(
        f"{name} {dtype}",
        "vector maths",
        make,
        inputs,
        size=1_000_000,
        quick=10_000,
        targets={"run": {"jax": 1.0, "numpy": None}},
        rivals={"numpy": lambda _: getattr(np, name)},
        tolerance=2e-6 if dtype == "float32" else 1e-13,
    )


PROGRAMS = [program(name, dtype) for name in RANGES for dtype in ("float32", "float64")]
