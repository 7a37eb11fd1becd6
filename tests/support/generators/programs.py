"""Random programs: functions of arrays made of numpy and lax calls, the same for every namespace.

`Random(seed).program(jnp, lax)` gives (function, arguments). The function is a straight line of
operations on a pool of arrays, some of which are loops and branches with bodies of the same kind.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from programs_control_flow import ControlFlow

SHAPES = [(), (3,), (1,), (7,), (40,), (5, 6), (4, 20), (20, 3), (2, 3, 4), (3, 1, 20), (8, 17)]
UNARY = ["sin", "cos", "tanh", "exp_small", "neg", "abs", "sqrt_abs", "square", "floor", "sign"]
BINARY = ["add", "sub", "mul", "max", "min", "div_safe", "where", "atan2"]


def _unary(jnp: Any, op: str, x: Any) -> Any:
    table = {
        "exp_small": lambda: jnp.exp(-jnp.abs(x)),
        "neg": lambda: -x,
        "sqrt_abs": lambda: jnp.sqrt(jnp.abs(x) + 0.5),
        "square": lambda: x * x * 0.25,
        # Without the second term sums of these would be ties, which rounding decides.
        "sign": lambda: jnp.sign(x) + 0.1 * x,
        "floor": lambda: jnp.floor(x) + 0.1 * x,
    }
    return table[op]() if op in table else getattr(jnp, op)(x)


def _binary(jnp: Any, op: str, x: Any, y: Any) -> Any:
    table = {
        "add": lambda: x + y,
        "sub": lambda: x - y,
        "mul": lambda: 0.5 * x * y,
        "max": lambda: jnp.maximum(x, y),
        "min": lambda: jnp.minimum(x, y),
        "div_safe": lambda: x / (1.0 + y * y),
        "where": lambda: jnp.where(x > y, x, 0.5 * y),
        "atan2": lambda: jnp.arctan2(x, y + 2.5),
    }
    return table[op]()


class Random(ControlFlow):
    """A source of random programs; all choices come from one seed."""

    def __init__(self, seed: int, dtype: str = "float64"):
        self.rng = np.random.default_rng(seed)
        self.dtype = dtype

    def pick(self, items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def arguments(self) -> list[np.ndarray]:
        shapes = [self.pick(SHAPES) for _ in range(int(self.rng.integers(1, 4)))]
        return [self.rng.normal(size=s).astype(self.dtype) for s in shapes]

    def program(self, length: int = 8, smooth: bool = False) -> tuple[Callable, list[np.ndarray]]:
        """A function of (jnp, lax, *arrays) that returns a tuple of arrays, and arguments for it."""
        args = self.arguments()
        self.smooth = smooth
        steps = self._steps([a.shape for a in args], length, depth=2)

        def run(jnp: Any, lax: Any, *arrays: Any) -> tuple:
            pool = list(arrays)
            for step in steps:
                pool.append(step(jnp, lax, pool))
            return tuple(pool[len(arrays) :][-3:])

        return run, args

    # A step is a function (jnp, lax, pool) -> array; `shapes` follows the pool.
    def _steps(self, shapes: list[tuple], length: int, depth: int) -> list[Callable]:
        steps = []
        for _ in range(length):
            step, shape = self._step(shapes, depth)
            steps.append(step)
            shapes.append(shape)
        return steps

    def _step(self, shapes: list[tuple], depth: int) -> tuple[Callable, tuple]:
        k = int(self.rng.integers(len(shapes)))
        if self.rng.random() < 0.6:
            k = len(shapes) - 1
        shape = shapes[k]
        makers: list[Callable] = [self._map, self._map, self._zip, self._zip, self._reduce]
        if len(shape):
            makers += [self._slice, self._pad, self._join, self._flip, self._update, self._cumulate]
            makers += [self._dynamic, self._reshape, self._broadcast, self._take]
            if not self.smooth:
                makers += [self._sort, self._scatter, self._gather, self._empty, self._along]
        if not self.smooth:
            makers += [self._integers, self._narrow, self._complex, self._masks]
        if len(shape) == 2:
            makers += [self._matmul, self._transpose]
        if depth:
            makers += [self._scan, self._fori, self._cond, self._switch]
            if len(shape):
                makers += [self._rows]
            if not self.smooth:
                makers += [self._while]
        return self.pick(makers)(k, shapes, depth)

    def _map(self, k: int, shapes: list, depth: int) -> tuple:
        ops = UNARY[:8] if self.smooth else UNARY
        op = self.pick([o for o in ops if not (self.smooth and o == "abs")])
        return lambda jnp, lax, pool: _unary(jnp, op, pool[k]), shapes[k]

    def _zip(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        fits = []
        for j, other in enumerate(shapes):
            try:
                fits.append((j, np.broadcast_shapes(shape, other)))
            except ValueError:
                continue
        j, out = self.pick([f for f in fits if np.prod(f[1], dtype=int) <= 2000] or [(k, shape)])
        op = self.pick(BINARY)
        return lambda jnp, lax, pool: _binary(jnp, op, pool[k], pool[j]), out

    def _axis(self, shape: tuple) -> int:
        return int(self.rng.integers(len(shape)))

    def _reduce(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        op = self.pick(["sum", "mean"] if self.smooth else ["sum", "max", "min", "mean", "prod"])
        if not shape or self.rng.random() < 0.3:
            return lambda jnp, lax, pool: getattr(jnp, op)(pool[k] * 0.5), ()
        axis = self._axis(shape)
        out = tuple(n for i, n in enumerate(shape) if i != axis)
        return lambda jnp, lax, pool: getattr(jnp, op)(pool[k] * 0.5, axis=axis), out

    def _slice(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        axis = self._axis(shape)
        n = shape[axis]
        a = int(self.rng.integers(n))
        b = int(self.rng.integers(a, n)) + 1
        s = int(self.rng.integers(1, 3))
        index = (slice(None),) * axis + (slice(a, b, s),)
        out = (*shape[:axis], len(range(a, b, s)), *shape[axis + 1 :])
        return lambda jnp, lax, pool: pool[k][index], out

    def _pad(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        low, high = int(self.rng.integers(3)), int(self.rng.integers(3))
        axis = self._axis(shape)
        width = [(0, 0)] * len(shape)
        width[axis] = (low, high)
        out = (*shape[:axis], shape[axis] + low + high, *shape[axis + 1 :])
        return lambda jnp, lax, pool: jnp.pad(pool[k], width), out

    def _join(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        axis = self._axis(shape)
        js = [
            j
            for j, s in enumerate(shapes)
            if len(s) == len(shape)
            and s[:axis] == shape[:axis]
            and s[axis + 1 :] == shape[axis + 1 :]
        ]
        j = self.pick(js)
        if shapes[j] == shape and self.rng.random() < 0.5:
            out = (*shape, 2)
            return lambda jnp, lax, pool: jnp.stack([pool[k], pool[j]], axis=-1), out
        out = (*shape[:axis], shape[axis] + shapes[j][axis], *shape[axis + 1 :])
        return lambda jnp, lax, pool: jnp.concatenate([pool[k], pool[j]], axis=axis), out

    def _flip(self, k: int, shapes: list, depth: int) -> tuple:
        axis = self._axis(shapes[k])
        if self.rng.random() < 0.5:
            return lambda jnp, lax, pool: jnp.flip(pool[k], axis), shapes[k]
        return lambda jnp, lax, pool: jnp.roll(pool[k], 2, axis), shapes[k]

    def _update(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        n = shape[0]
        a = int(self.rng.integers(n))
        b = int(self.rng.integers(a, n)) + 1
        op = self.pick(["set", "add"])
        rows = self.rng.integers(0, n, size=4)
        if self.rng.random() < 0.5:
            return lambda jnp, lax, pool: getattr(pool[k].at[a:b], op)(
                pool[k][a:b] * 0.5 + 1.0
            ), shape

        def scatter(jnp: Any, lax: Any, pool: list) -> Any:
            return pool[k].at[jnp.asarray(rows)].add(0.25 * pool[k][jnp.asarray(rows)])

        return scatter, shape

    def _cumulate(self, k: int, shapes: list, depth: int) -> tuple:
        axis = self._axis(shapes[k])
        return lambda jnp, lax, pool: jnp.cumsum(pool[k] * 0.1, axis=axis), shapes[k]

    def _dynamic(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        n = int(self.rng.integers(1, shape[0] + 1))

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            start = jnp.sum(jnp.where(pool[k] > 0, 1, 0)) % shape[0]
            part = lax.dynamic_slice_in_dim(pool[k], start, n, axis=0)
            return lax.dynamic_update_slice_in_dim(pool[k], part * 2.0, 0, axis=0)

        return run, shape

    def _reshape(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        size = int(np.prod(shape))
        out = self.pick([(size,), (1, size), (size, 1), shape[::-1]])
        return lambda jnp, lax, pool: pool[k].reshape(out), out

    def _broadcast(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        if np.prod(shape) > 200:
            return self._map(k, shapes, depth)
        out = (4, *shape)
        return lambda jnp, lax, pool: jnp.broadcast_to(pool[k], out), out

    def _take(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        rows = self.rng.integers(0, shape[0], size=5)
        return lambda jnp, lax, pool: pool[k][jnp.asarray(rows)], (5, *shape[1:])

    def _matmul(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        if self.rng.random() < 0.5:
            return lambda jnp, lax, pool: 0.1 * (pool[k] @ pool[k].T), (shape[0], shape[0])
        return lambda jnp, lax, pool: 0.1 * (pool[k].T @ pool[k]), (shape[1], shape[1])

    def _transpose(self, k: int, shapes: list, depth: int) -> tuple:
        return lambda jnp, lax, pool: pool[k].T, shapes[k][::-1]

    def _sort(self, k: int, shapes: list, depth: int) -> tuple:
        axis, descending = self._axis(shapes[k]), bool(self.rng.random() < 0.5)

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            y = jnp.sort(pool[k], axis=axis)
            return jnp.flip(y, axis) if descending else y

        return run, shapes[k]

    def _along(self, k: int, shapes: list, depth: int) -> tuple:
        axis, reverse = self._axis(shapes[k]), bool(self.rng.random() < 0.5)
        op = self.pick(["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"])

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            x = jnp.tanh(pool[k]) if op == "cumprod" else pool[k] * 0.5
            return getattr(lax, op)(x, axis=axis, reverse=reverse)

        return run, shapes[k]

    def _scatter(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        op = self.pick(["set", "add", "multiply", "min", "max"])
        mode = self.pick(["drop", "clip"]) if op != "set" else "drop"
        rows = self.rng.permutation(shape[0] + 3)[:4]  # some are out of bounds
        part = self.rng.integers(0, shape[0], size=4)

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            values = 0.5 * pool[k][jnp.asarray(part)] + 0.1
            return getattr(pool[k].at[jnp.asarray(rows)], op)(values, mode=mode)

        return run, shape

    def _gather(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        axis = self._axis(shape)
        mode = self.pick(["fill", "clip", "wrap"])
        rows = self.rng.integers(-shape[axis] - 2, 2 * shape[axis], size=4)
        out = (*shape[:axis], 4, *shape[axis + 1 :])

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            y = jnp.take(pool[k], jnp.asarray(rows), axis=axis, mode=mode)
            return jnp.where(jnp.isnan(y), 0.25, y)

        return run, out

    def _empty(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        axis = self._axis(shape)
        nothing = (slice(None),) * axis + (slice(0, 0),)

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            none = jnp.sin(pool[k][nothing])
            rest = jnp.sum(none) + jnp.prod(none, axis=axis)
            return jnp.concatenate([none, pool[k]], axis=axis) + jnp.expand_dims(rest, axis)

        return run, shape

    def _integers(self, k: int, shapes: list, depth: int) -> tuple:
        dtype = self.pick(["int8", "int16", "int32", "int64", "uint8", "uint32"])
        op = self.pick(["//", "%", "^", ">>", "sum", "where", "clz"])
        other = int(self.rng.integers(2, 7))

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            # Not at integers, where rounding would decide; nor beyond the type.
            n = (jnp.tanh(pool[k]) * 99.37 + 100.123 * (dtype[0] == "u")).astype(dtype)
            table = {
                "//": lambda: n // other,
                "%": lambda: n % other,
                "^": lambda: (n ^ other) | 1,
                ">>": lambda: n >> (other % 3),
                "sum": lambda: n + jnp.sum(n, dtype=dtype),
                "where": lambda: jnp.where(n % 2 == 0, n, jnp.bitwise_not(n)),
                "clz": lambda: lax.clz(n) + lax.population_count(n),
            }
            return table[op]().astype(self.dtype) * 0.01 + pool[k]

        return run, shapes[k]

    def _narrow(self, k: int, shapes: list, depth: int) -> tuple:
        """To 16 bits and back, by way of operations that do not round."""
        dtype = self.pick(["float16", "bfloat16"])
        op = self.pick(["neg", "max", "where", "halve"])

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            # An ulp may change how a value is rounded: that must not show.
            x = jnp.round(jnp.tanh(pool[k]) * 60.0 + 0.123).astype(dtype)
            table = {
                "neg": lambda: -x,
                "max": lambda: jnp.maximum(x, jnp.asarray(0.5, dtype)),
                "where": lambda: jnp.where(x > 3, x, -x),
                "halve": lambda: x * jnp.asarray(0.5, dtype),
            }
            return table[op]().astype(self.dtype) * 0.02 + pool[k]

        return run, shapes[k]

    def _complex(self, k: int, shapes: list, depth: int) -> tuple:
        op = self.pick(["mul", "exp", "abs", "conj", "sum", "div"])
        turn = complex(*self.rng.normal(size=2).round(2))

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            x = jnp.tanh(pool[k])
            z = lax.complex(x, 0.5 - x * x)
            w = {
                "mul": lambda: z * turn + z * z,
                "exp": lambda: jnp.exp(z * turn),
                "abs": lambda: z * jnp.abs(z + turn),
                "conj": lambda: jnp.conj(z) * z + turn,
                "sum": lambda: z + jnp.sum(z) * 0.1,
                "div": lambda: z / (z + 3.0),
            }[op]()
            return jnp.real(w) - 0.5 * jnp.imag(w)

        return run, shapes[k]

    def _masks(self, k: int, shapes: list, depth: int) -> tuple:
        op = self.pick(["any", "all", "xor", "count"])

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            a, b = pool[k] > 0.123, pool[k] < 0.877
            table = {
                "any": lambda: jnp.where(jnp.any(a & b), pool[k], -pool[k]),
                "all": lambda: jnp.where(jnp.all(a | ~b), pool[k], 0.5 * pool[k]),
                "xor": lambda: jnp.where(a ^ b, pool[k], 0.1),
                "count": lambda: pool[k] + 0.01 * jnp.sum(a) - 0.01 * jnp.count_nonzero(~b),
            }
            return table[op]()

        return run, shapes[k]
