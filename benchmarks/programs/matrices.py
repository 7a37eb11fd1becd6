"""Matrix products of several sizes, against the better of NumPy and JAX."""

from __future__ import annotations

import numpy as np
from program import Program


def product(jax, jnp, lax, size):
    """`a @ b`."""
    return lambda a, b: a @ b


def program(name, a, b, dtype, quick=None):
    """A product of two shapes."""

    def inputs(size):
        rng = np.random.default_rng(21)
        return tuple(rng.normal(size=s).astype(dtype) for s in size)

    targets = {"run": {"best": 1.05, "jax": None, "numpy": None}}
    if dtype == np.float64:
        targets |= {"compile": {"jax": None}, "warm": {"jax": None}}
    return Program(
        f"{name} {np.dtype(dtype).name}",
        "matrices",
        product,
        inputs,
        size=(a, b),
        quick=quick,
        targets=targets,
        rivals={"numpy": lambda _: np.matmul},
        tolerance=1e-4 if dtype == np.float32 else 1e-11,
    )


PROGRAMS = [
    program(name, *shapes, dtype, quick)
    for name, shapes, quick in [
        ("gemm 64", ((64, 64), (64, 64)), None),
        ("gemm 512", ((512, 512), (512, 512)), ((50, 50), (50, 50))),
        ("batched gemm 10^4 8x8", ((10_000, 8, 8), (10_000, 8, 8)), ((10, 8, 8), (10, 8, 8))),
        ("gemv 1000", ((1000, 1000), (1000,)), ((50, 50), (50,))),
    ]
    for dtype in (np.float32, np.float64)
]
