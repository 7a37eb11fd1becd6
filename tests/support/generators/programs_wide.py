"""Random programs of more kinds of steps: windows, factorisations, transforms, mixed states."""

from typing import Any

import numpy as np
from programs import Random

SMALL = 900  # elements of an array that a costly step takes or makes


class Wide(Random):
    """Random programs that draw half of their steps from a second list of kinds."""

    def _step(self, shapes: list[tuple], depth: int) -> tuple:
        k = int(self.rng.integers(len(shapes)))
        if self.rng.random() < 0.6:
            k = len(shapes) - 1
        shape = shapes[k]
        kinds = [self._states, self._handed] if depth else []
        if not self.smooth:
            kinds += [self._halves]
        if len(shape) and 0 < np.prod(shape) <= SMALL:
            kinds += [self._convolve, self._window, self._transform, self._points, self._associate]
            kinds += [self._contract, self._outer, self._differences]
            if depth:
                kinds += [self._nested, self._complex_states, self._vectorized]
            if not self.smooth:
                kinds += [self._ordered, self._counts, self._chosen, self._fold, self._machine]
        if len(shape) == 2 and max(shape) <= 20:
            kinds += [self._solve, self._triangle]
        if not kinds or self.rng.random() < 0.5:
            return super()._step(shapes, depth)
        return self.pick(kinds)(k, shapes, depth)

    # --- windows and transforms -----------------------------------------------------------------

    def _convolve(self, k: int, shapes: list, depth: int) -> tuple:
        """A convolution along the last axes with a kernel that the program computes."""
        shape = shapes[k]
        space = 2 if len(shape) > 1 and self.rng.random() < 0.7 else 1
        rows, sizes = int(np.prod(shape[:-space], dtype=int)), shape[-space:]
        grouped = rows > 1 and bool(self.rng.random() < 0.5)
        taps = tuple(int(self.rng.integers(1, min(n, 4) + 1)) for n in sizes)
        strides = tuple(int(self.rng.integers(1, 3)) for _ in sizes)
        holes = tuple(int(self.rng.integers(1, 3)) for _ in sizes)
        reach = tuple(int(self.rng.integers(1, 3)) for _ in sizes)
        pads = tuple((int(a), int(b)) for a, b in self.rng.integers(0, 4, size=(space, 2)))
        out = tuple(
            max(0, ((n - 1) * h + 1 + a + b - ((t - 1) * r + 1)) // s + 1)
            for n, h, (a, b), t, r, s in zip(sizes, holes, pads, taps, reach, strides)
        )
        if not all(out):
            return self._map(k, shapes, depth)
        makes = int(self.rng.integers(1, 4))
        count = makes * (rows if grouped else 1) * int(np.prod(taps))
        letters = "HW"[:space]

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            w = jnp.cos(jnp.arange(count) + jnp.mean(pool[k])).reshape(-1, 1, *taps)
            x = pool[k].reshape(1, rows, *sizes) if grouped else pool[k].reshape(rows, 1, *sizes)
            y = lax.conv_general_dilated(
                x,
                w.astype(pool[k].dtype),
                strides,
                pads,
                holes,
                reach,
                ("NC" + letters, "OI" + letters, "NC" + letters),
                feature_group_count=rows if grouped else 1,
            )
            return 0.3 * y.reshape(rows * makes, *out)

        return run, (rows * makes, *out)

    def _window(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        op = "add" if self.smooth else self.pick(["add", "max", "min"])
        window = tuple(int(self.rng.integers(1, min(n, 3) + 1)) for n in shape)
        strides = tuple(int(self.rng.integers(1, 3)) for _ in shape)
        pads = tuple((int(min(a, w - 1)), int(min(b, w - 1))) for (a, b), w in zip(
            self.rng.integers(0, 3, size=(len(shape), 2)), window))  # fmt: skip
        out = tuple(
            (n + a + b - w) // s + 1 for n, (a, b), w, s in zip(shape, pads, window, strides)
        )
        start = {"add": 0.0, "max": -np.inf, "min": np.inf}[op]

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            x = pool[k]
            first = np.asarray(start, x.dtype)
            return lax.reduce_window(x, first, getattr(lax, op), window, strides, pads) * 0.5

        return run, out

    def _transform(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        axis, kind = self._axis(shape), self.pick(["filter", "real", "spectrum"])
        n = shape[axis]

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            x = pool[k]
            if kind == "real":
                return jnp.real(jnp.fft.ifft(jnp.fft.fft(x, axis=axis) * (0.5 + 0.5j), axis=axis))
            z = jnp.fft.rfft(x, axis=axis)
            if kind == "spectrum":
                return x + 0.1 * jnp.sum(jnp.real(z * jnp.conj(z)), axis, keepdims=True) / n**2
            scale = 1.0 / (1.0 + jnp.arange(z.shape[axis]).astype(x.dtype))
            scale = scale.reshape([-1 if a == axis else 1 for a in range(len(shape))])
            return jnp.fft.irfft(z * scale, n, axis=axis)

        return run, shape

    def _differences(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        axis = self._axis(shape)
        if shape[axis] < 2:
            return self._map(k, shapes, depth)
        out = (*shape[:axis], shape[axis] - 1, *shape[axis + 1 :])
        if self.rng.random() < 0.5:
            return lambda jnp, lax, pool: jnp.diff(pool[k], axis=axis), out
        return lambda jnp, lax, pool: jnp.gradient(pool[k], axis=axis), shape

    # --- places ---------------------------------------------------------------------------------

    def _points(self, k: int, shapes: list, depth: int) -> tuple:
        """Gathers and scatters by an index an axis, some of them computed."""
        shape = shapes[k]
        count = int(self.rng.integers(1, 6))
        fixed = [self.rng.permutation(max(n, count))[:count] % n for n in shape]
        axis = self._axis(shape)
        kind = self.pick(["read", "add", "outer"] if len(shape) > 1 else ["read", "add"])

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            x = pool[k]
            index = [jnp.asarray(i) for i in fixed]
            moved = jnp.sum(lax.stop_gradient(x) > 0.123)
            index[axis] = (index[axis] + moved) % shape[axis]
            if kind == "outer":
                part = x[index[0][:, None], index[1][None, :]]
                return part.reshape(count, count, -1).sum(-1)
            if kind == "read":
                return x[tuple(index)]
            return x.at[tuple(index)].add(0.3 * jnp.sin(x[tuple(index)]))

        return run, {"read": (count,), "add": shape, "outer": (count, count)}[kind]

    def _ordered(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        axis = self._axis(shape)
        kind = self.pick(["argsort", "top", "pairs", "argmax", "median", "search"])
        top = int(self.rng.integers(1, shape[-1] + 1))

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            x = pool[k]
            if kind == "argsort":
                return jnp.take_along_axis(jnp.cos(x), jnp.argsort(x, axis=axis), axis=axis)
            if kind == "top":
                values, places = lax.top_k(x, top)
                return values + 0.01 * places
            if kind == "pairs":
                return lax.sort((jnp.floor(x), jnp.sin(x)), dimension=axis, num_keys=2)[1]
            if kind == "argmax":
                return x + 0.1 * jnp.argmax(x, axis=axis, keepdims=True)
            if kind == "median":
                return x - jnp.median(x, axis=axis, keepdims=True)
            edges = jnp.sort(jnp.ravel(x)[:5])
            return jnp.searchsorted(edges, x + 0.0123) * 0.1 + x

        return run, (*shape[:-1], top) if kind == "top" else shape

    def _counts(self, k: int, shapes: list, depth: int) -> tuple:
        n = int(self.rng.integers(2, 9))
        weighted = bool(self.rng.random() < 0.5)

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            x = jnp.ravel(pool[k])
            bins = jnp.floor((jnp.tanh(x) + 1.0123) * 0.499 * n).astype("int32")
            if weighted:
                return jnp.zeros(n, x.dtype).at[bins].add(x * 0.3)
            return jnp.cumsum(jnp.zeros(n, "int32").at[bins].add(1)).astype(x.dtype) * 0.1

        return run, (n,)

    def _chosen(self, k: int, shapes: list, depth: int) -> tuple:
        def run(jnp: Any, lax: Any, pool: list) -> Any:
            x = pool[k]
            cases = [jnp.sin(x), x * 0.5, jnp.full_like(x, 0.25)]
            which = jnp.clip(jnp.floor(x + 1.0123), 0, 2).astype("int32")
            y = lax.select_n(which, *cases)
            return jnp.where(x > 0.777, jnp.clip(y, -0.5, 0.5), jnp.copysign(y, x - 0.123))

        return run, shapes[k]

    # --- products -------------------------------------------------------------------------------

    def _contract(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        if len(shape) == 1:
            return lambda jnp, lax, pool: pool[k] * (0.1 * jnp.dot(pool[k], pool[k])), shape
        if len(shape) == 2:
            a, b = shape
            kind = self.pick(["ab,cb->ca", "ab,ab->b", "ab,ac->bc", "ab,ab->ab"])
            out = {"ab,cb->ca": (a, a), "ab,ab->b": (b,), "ab,ac->bc": (b, b), "ab,ab->ab": shape}
            return (
                lambda jnp, lax, pool: 0.1 * jnp.einsum(kind, pool[k], jnp.sin(pool[k])),
                out[kind],
            )
        a, b, c = shape[0], shape[1], int(np.prod(shape[2:]))
        kind = self.pick(["abc,adc->abd", "abc,abd->acd", "abc,dbc->ad", "abc,abc->b"])
        out = {
            "abc,adc->abd": (a, b, b), "abc,abd->acd": (a, c, c), "abc,dbc->ad": (a, a),
            "abc,abc->b": (b,),
        }[kind]  # fmt: skip

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            x = pool[k].reshape(a, b, c)
            return 0.1 * jnp.einsum(kind, x, jnp.tanh(x))

        return (run, out) if np.prod(out) <= 2000 else self._map(k, shapes, depth)

    def _outer(self, k: int, shapes: list, depth: int) -> tuple:
        n = min(int(np.prod(shapes[k])), 12)

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            v = jnp.ravel(pool[k])[:n]
            return jnp.exp(-((v[:, None] - v[None, :]) ** 2)) * (jnp.arange(n) * 0.1)

        return run, (n, n)

    def _solve(self, k: int, shapes: list, depth: int) -> tuple:
        n = shapes[k][0]
        kind = self.pick(["solve", "cholesky", "inverse", "determinant"])

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            x = jnp.tanh(pool[k])
            a = x @ x.T + 2.0 * jnp.eye(n, dtype=x.dtype)
            if kind == "solve":
                return jnp.linalg.solve(a + 0.1 * jnp.triu(a), x)
            if kind == "cholesky":
                return lax.linalg.triangular_solve(
                    jnp.linalg.cholesky(a), x, left_side=True, lower=True
                )
            if kind == "inverse":
                return jnp.linalg.inv(a) @ x
            return x * (0.1 * jnp.linalg.slogdet(a)[1])

        return run, shapes[k]

    def _triangle(self, k: int, shapes: list, depth: int) -> tuple:
        op, offset = self.pick(["triu", "tril"]), int(self.rng.integers(-2, 3))
        return lambda jnp, lax, pool: getattr(jnp, op)(pool[k], offset) + 0.1 * pool[k], shapes[k]

    # --- loops ----------------------------------------------------------------------------------

    def _associate(self, k: int, shapes: list, depth: int) -> tuple:
        axis, reverse = self._axis(shapes[k]), bool(self.rng.random() < 0.5)

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            decay = jnp.tanh(pool[k]) * 0.5 + 0.5

            def join(one: Any, two: Any) -> Any:
                return one[0] * two[0], two[0] * one[1] + two[1]

            return lax.associative_scan(join, (decay, pool[k]), reverse=reverse, axis=axis)[1]

        return run, shapes[k]

    def _fold(self, k: int, shapes: list, depth: int) -> tuple:
        shape = shapes[k]
        axis = self._axis(shape)
        out = tuple(n for a, n in enumerate(shape) if a != axis)

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            places = lax.broadcasted_iota("int32", shape, axis)

            def better(one: Any, two: Any) -> Any:
                later = (two[0] > one[0]) | ((two[0] == one[0]) & (two[1] < one[1]))
                return jnp.where(later, two[0], one[0]), jnp.where(later, two[1], one[1])

            start = np.asarray(-np.inf, pool[k].dtype), np.int32(0)
            top, where = lax.reduce((jnp.sin(pool[k]), places), start, better, (axis,))
            return top + 0.1 * where

        return run, out

    def _vectorized(self, k: int, shapes: list, depth: int) -> tuple:
        row = shapes[k][-1:]
        body = self._body([row], depth, row)

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            return jnp.vectorize(lambda x: body(jnp, lax, [x]), signature="(n)->(n)")(pool[k])

        return run, shapes[k]

    def _states(self, k: int, shapes: list, depth: int) -> tuple:
        """A scan whose carry has an array, a counter, a mask, and an index that walks."""
        shape = shapes[k]
        body = self._body([*shapes, shape], depth, shape)
        length, n = int(self.rng.integers(2, 6)), shape[0] if shape else 1

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            def step(state: Any, t: Any) -> Any:
                x, at, seen, tally = state
                new = body(jnp, lax, [*pool, x])
                value = new[at] if shape else new
                old = jnp.sum(value) > 0.0123
                new = new.at[at].add(0.1 * value) if shape else new + 0.1
                tally = jnp.where(old, tally * 3 + t, tally ^ 5)
                return (new, (at * 5 + 3) % n, seen | old, tally % 1009), (jnp.sum(value), at, old)

            start = (pool[k], jnp.asarray(0), jnp.asarray(False), jnp.asarray(1, "int32"))
            times = jnp.arange(length, dtype="int32")
            (x, at, seen, tally), (sums, places, flags) = lax.scan(step, start, times)
            sums = jnp.where(flags, sums, 0.5 * sums) + 0.01 * places
            return x + jnp.where(seen, 0.1, 0.2) + 0.001 * tally + 0.1 * sums[-1] + 0.01 * at

        return run, shape

    def _handed(self, k: int, shapes: list, depth: int) -> tuple:
        """Loops in loops that hand on arrays: their own, the other's, the pool's; some are changed."""
        shape = shapes[k]
        kinds = [self.pick(["scan", "fori", "unknown"]) for _ in range(2)]
        rounds = [int(self.rng.integers(1, 4)) for _ in range(2)]
        plans = [
            [
                (int(self.rng.integers(99)), self.pick(["as it is", "as it is", "row", "new"]))
                for _ in s
            ]
            for s in (
                "cd",
                "cd",
                "ab",
            )  # where inner loops start, what they hand on, and outer ones
        ]

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            def chosen(plan: list, arrays: list, t: Any) -> tuple:
                made = []
                for number, how in plan:
                    x = arrays[number % len(arrays)]
                    if how == "new":
                        x = jnp.sin(x) + 0.3 * arrays[0]
                    elif how == "row" and shape:
                        x = x.at[..., (t + number) % shape[-1]].add(0.5)
                    made.append(x)
                return tuple(made)

            def loop(level: int, step: Any, state: tuple) -> tuple:
                n = rounds[level]
                if kinds[level] == "scan":
                    return lax.scan(lambda s, t: (step(t, s), None), state, jnp.arange(n))[0]
                if kinds[level] == "unknown" and not self.smooth:
                    n = n + (jnp.sum(pool[k]) > 1e9).astype(int)
                return lax.fori_loop(0, n, step, state)

            def outer(i: Any, s: tuple) -> tuple:
                step = lambda j, t: chosen(plans[1], [*t, *s, pool[k]], i + j)
                inner = loop(1, step, chosen(plans[0], [*s, pool[k]], i))
                return chosen(plans[2], [*inner, *s], i)

            a, b = loop(0, outer, (pool[k], 0.5 * pool[k]))
            return a - 0.3 * b

        return run, shape

    def _machine(self, k: int, shapes: list, depth: int) -> tuple:
        """For each number a loop of integers, which ends when it likes."""
        dtype = self.pick(["int32", "int64", "uint32"])

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            n = (jnp.tanh(pool[k]) * 40.37 + 50.123).astype(dtype)

            def rounds(m: Any) -> Any:
                def step(state: Any) -> Any:
                    v, count = state
                    return jnp.where(v % 2 == 0, v // 2, 3 * v + 1), count + 1

                return lax.while_loop(lambda s: (s[0] > 1) & (s[1] < 60), step, (m, 0))[1]

            return jnp.vectorize(rounds)(n).astype(pool[k].dtype) * 0.01 + pool[k]

        return run, shapes[k]

    def _nested(self, k: int, shapes: list, depth: int) -> tuple:
        """Loops in loops with bounds that the outer one sets, written into one array."""
        size = int(np.prod(shapes[k]))
        rounds = min(size, 5)

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            def outer(i: Any, x: Any) -> Any:
                def inner(j: Any, y: Any) -> Any:
                    return y.at[j].add(0.3 * jnp.sin(y[i] - y[j]))

                return lax.fori_loop(0, i + 1, inner, x)

            return lax.fori_loop(0, rounds, outer, jnp.ravel(pool[k])).reshape(shapes[k])

        return run, shapes[k]

    def _complex_states(self, k: int, shapes: list, depth: int) -> tuple:
        turn = complex(*self.rng.normal(size=2).round(2))

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            x = jnp.tanh(pool[k])

            def step(z: Any, t: Any) -> Any:
                w = z * (turn / (1.0 + abs(turn))) + t
                w = w.at[0].multiply(0.5 - 0.25j)
                return w, jnp.real(w * jnp.conj(w))

            z, norms = lax.scan(step, lax.complex(x, 0.5 - x), jnp.arange(3) * 0.1)
            return jnp.real(z) - 0.3 * jnp.imag(z) + 0.1 * norms[1]

        return run, shapes[k]

    def _halves(self, k: int, shapes: list, depth: int) -> tuple:
        """Sums of numbers of 16 bits that are exact, so that their order cannot show."""
        dtype = self.pick(["float16", "bfloat16"])

        def run(jnp: Any, lax: Any, pool: list) -> Any:
            x = jnp.round(jnp.tanh(pool[k]) * 2.0 + 0.123).astype(dtype)
            y = jnp.where(x > 0, x + 1, x * 2)
            top = jnp.max(y, axis=-1, keepdims=True) if shapes[k] else y
            return pool[k] + 0.05 * (y * top).astype(pool[k].dtype)

        return run, shapes[k]
