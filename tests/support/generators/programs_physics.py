"""Random programs as physicists write them, for fnx and for JAX alike.

A program is a chain of stages. Each takes a vector of n numbers to another, and leaves results beside it.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from physics_fields import FIELDS
from physics_iterations import ITERATIONS
from physics_particles import PARTICLES

Stage = Callable[[SimpleNamespace, Any], tuple[Any, dict[str, Any]]]
KINDS = {**FIELDS, **ITERATIONS, **PARTICLES}


class Physics:
    """A function of a vector, drawn from a seed; `lib` has the names api, jnp, lax of either library."""

    def __init__(self, seed: int, names: list[str] | None = None):
        self.rng = np.random.default_rng(seed)
        self.size = 6  # JAX, which goes operation by operation here, compiles each for every shape
        self.dtype = str(self.rng.choice(["float64", "float64", "float32"]))
        count = int(self.rng.integers(1, 4))
        drawn = [str(self.rng.choice(list(KINDS))) for _ in range(count)]
        self.names = names or drawn
        self.stages: list[Stage] = [KINDS[name](self.rng, self.size) for name in self.names]
        start = self.rng.uniform(-1, 1, self.size) + 0.01 * np.arange(self.size)
        self.start = start.astype(self.dtype)

    def program(self, lib: SimpleNamespace) -> Callable[[Any], list]:
        """The function: what it returns is a list of what each stage left, and the last vector."""

        def run(x: Any) -> list:
            found = []
            for stage in self.stages:
                x, more = stage(lib, x)
                found.append(more)
            return [x, *found]

        return run

    def loss(self, lib: SimpleNamespace) -> Callable[[Any], Any]:
        """A number that every result with a derivative is part of."""
        run, jnp = self.program(lib), lib.jnp

        def number(x: Any) -> Any:
            total = 0.0
            for k, y in enumerate(lib.api.tree_util.tree_leaves(run(x))):
                if jnp.issubdtype(y.dtype, jnp.inexact):
                    total = total + jnp.sum(jnp.sin(jnp.abs(y) ** 2 + 0.1 * k + jnp.real(y)))
            return total.astype(self.dtype)

        return number
