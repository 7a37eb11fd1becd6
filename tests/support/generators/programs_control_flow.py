"""Loops and branches of random programs, with bodies of the same kind."""

from collections.abc import Callable
from typing import Any

import numpy as np


class ControlFlow:
    """What a source of random programs makes of a step's bodies."""

    rng: np.random.Generator
    smooth: bool
    _steps: Callable[..., list[Callable]]

    def _body(self, shapes: list[tuple], depth: int, result: tuple) -> Callable:
        """A function of the pool's arrays whose result has a given shape."""
        inner = list(shapes)
        steps = self._steps(inner, int(self.rng.integers(1, 4)), depth - 1)
        fits = [j for j, s in enumerate(inner) if s == result]

        j = fits[-1]

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            pool = list(pool)
            for step in steps:
                pool.append(step(jnp, lax, pool))
            return jnp.tanh(pool[j] + 0.01 * jnp.sum(pool[-1]))

        return run

    def _scan(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        length = int(self.rng.integers(1, 5))
        reverse = bool(self.rng.random() < 0.3)
        body = self._body([*shapes, shape, ()], depth, shape)

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            def step(c: Any, x: Any) -> tuple:
                new = body(jnp, lax, [*pool, c, x])
                return new, jnp.sum(new) + x

            xs = jnp.arange(length) * 0.1
            last, ys = lax.scan(step, pool[k], xs, reverse=reverse)
            return last + ys[0]

        return run, shape

    def _fori(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        body = self._body([*shapes, shape], depth, shape)

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            def step(i: Any, c: Any) -> Any:
                new = body(jnp, lax, [*pool, c])
                return new.at[i % shape[0]].multiply(0.5) if shape else new * 0.5

            return lax.fori_loop(0, 3, step, pool[k])

        return run, shape

    def _while(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        body = self._body([*shapes, shape], depth, shape)

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            def more(state: Any) -> Any:
                return (state[0] < 4) & (jnp.sum(state[1]) < 5.0)

            def step(state: Any) -> Any:
                return state[0] + 1, body(jnp, lax, [*pool, state[1]])

            return lax.while_loop(more, step, (0, pool[k]))[1]

        return run, shape

    def _cond(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        one, two = (self._body(shapes, depth, shape) for _ in range(2))

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            return lax.cond(
                jnp.sum(pool[k]) > 0.1,
                lambda *xs: one(jnp, lax, list(xs)),
                lambda *xs: two(jnp, lax, list(xs)),
                *pool,
            )

        return run, shape

    def _switch(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        bodies = [self._body(shapes, depth, shape) for _ in range(3)]

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            which = (jnp.sum(jnp.tanh(pool[k])) * 2.37 + 0.123).astype("int32")  # clamped
            return lax.switch(
                which, [lambda *xs, b=b: b(jnp, lax, list(xs)) for b in bodies], *pool
            )

        return run, shape

    def _rows(self, k: int, shapes: list, depth: int) -> tuple:
        """Row by row: a scan that stacks arrays, or (not smooth) a loop for each row."""
        shape = shapes[k]
        row = shape[1:]
        body = self._body([*shapes, row, row], depth, row)
        loops = not self.smooth and bool(self.rng.random() < 0.5)

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            def step(c: Any, x: Any) -> tuple:
                new = body(jnp, lax, [*pool, c, x])
                return new, 0.5 * new + x

            def alone(x: Any) -> Any:
                def more(state: Any) -> Any:
                    return (state[0] < 5) & (jnp.sum(state[1]) < 1.0 + jnp.sum(x))

                def next_(state: Any) -> Any:
                    return state[0] + 1, body(jnp, lax, [*pool, state[1], x]) + 0.4

                return lax.while_loop(more, next_, (0, 0.5 * x))[1]

            return (
                lax.map(alone, pool[k]) if loops else lax.scan(step, 0.1 * pool[k][0], pool[k])[1]
            )

        return run, shape
