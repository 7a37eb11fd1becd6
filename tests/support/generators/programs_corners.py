"""Random nestings with what seldom meets: modes of indices, windows, integers, axes other than 0."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from programs_wider import Pair, Wider

_AT = ("add", "set", "max", "multiply", "divide", "apply")


class Corners(Wider):
    """As Wider, with kinds of functions whose arguments are drawn, too."""

    def plain(self) -> list:
        found = [*super().plain(), self._whole_numbers, self._given_functions, self._zero_tangents]
        found += [self._safe, self._host, self._selected, self._precision]
        if self.rank:
            found += [self._places, self._moved_slices, self._windows, self._convolved, self._keys]
            found += [self._running, self._spectrum, self._factors, self._looked_up, self._extrema]
            found += [self._products, self._bits]
        return found

    def around(self) -> list:
        found = [*super().around(), self._static, self._rolled, self._records, self._jacobians]
        return [*found, self._donated, self._several, self._curvature, *self._columns()]

    def by_rows(self) -> list:
        return [*super().by_rows(), self._chosen, self._in_batches, self._until_each]

    def going_forward(self) -> list:
        return [*super().going_forward(), self._curvature, self._jacobians]

    def _columns(self) -> list:
        return [self._along, self._backwards] if self.rank else []

    def draw(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    # --- integers and precision ------------------------------------------------------------------

    def _whole_numbers(self) -> Callable:
        dtype, other = self.draw("int8", "uint8", "int32"), self.draw(3, 5, 7)

        def made(lib: SimpleNamespace) -> Callable:
            def f(x: Any) -> Any:
                n = lib.jnp.floor(lib.jnp.sin(lib.lax.stop_gradient(x)) * 50 + 60).astype(dtype)
                wrapped = (n * n + n // other) % other + (n >> 1) ^ (n << 2)
                return x + (wrapped % 16).astype(lib.jnp.asarray(x).dtype) * 0.125

            return f

        return made

    def _precision(self) -> Callable:
        bits = self.draw((5, 10), (8, 7), (8, 23))
        return lambda lib: (
            lambda x: (
                x
                + lib.lax.reduce_precision(
                    lib.lax.stop_gradient(lib.jnp.round(lib.jnp.asarray(x) * 4)), *bits
                )
            )
        )

    def _bits(self) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            def f(x: Any) -> Any:
                on = lib.lax.stop_gradient(x) > 0.1
                count = lib.lax.population_count(lib.jnp.packbits(on).astype("uint32"))
                return x * (count.sum() + on.argmax()).astype(x.dtype)

            return f

        return made

    # --- rules -----------------------------------------------------------------------------------

    def _given_functions(self) -> Callable:
        """Rules of functions with arguments that have no derivatives."""

        def forward(lib: SimpleNamespace, x: Any) -> Any:
            f = lib.api.custom_jvp(lambda g, n, y: g(y) * n, nondiff_argnums=(0, 1))
            f.defjvp(lambda g, n, p, t: (g(p[0]) * n, t[0] * n * 0.25))
            return f(lib.jnp.sin, 2, x)

        def back(lib: SimpleNamespace, x: Any) -> Any:
            f = lib.api.custom_vjp(lambda g, y, z: g(y) * z["a"], nondiff_argnums=(0,))
            f.defvjp(
                lambda g, y, z: (g(y) * z["a"], y),
                lambda g, y, ct: (ct * lib.jnp.cos(y), {"a": None}),
            )
            return f(lib.jnp.sin, x, {"a": 1.5})

        made = forward if self.forward else self.draw(forward, back)
        return lambda lib: partial(made, lib)

    def _zero_tangents(self) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            f = lib.api.custom_jvp(lambda x, y: lib.jnp.sin(x) + y)
            f.defjvps(lambda t, out, x, y: 2.0 * t * lib.jnp.cos(x), None)
            return lambda x: f(x, 0.5)

        return made

    def _safe(self) -> Callable:
        """Two choices, so that no derivative of what is not chosen is seen."""

        def made(lib: SimpleNamespace) -> Callable:
            def f(x: Any) -> Any:
                good = x > 0.2
                return lib.jnp.where(good, lib.jnp.log(lib.jnp.where(good, x, 1.0)), x * x)

            return f

        return made

    def _selected(self) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            def f(x: Any) -> Any:
                cases = [lib.jnp.sin(x), x * x, 0.5 * x]
                chosen = lib.jnp.select([x > 0.7, x < -0.1], cases[:2], cases[2])
                return chosen + lib.jnp.clip(x, -0.3, 0.8)

            return f

        return made

    def _host(self) -> Callable:
        method = self.draw("sequential", "expand_dims", "broadcast_all")

        def made(lib: SimpleNamespace) -> Callable:
            def f(x: Any) -> Any:
                y = lib.lax.stop_gradient(x) + lib.jnp.zeros((), lib.jnp.asarray(x).dtype)
                out = lib.api.ShapeDtypeStruct(lib.jnp.shape(y), y.dtype)
                return x * lib.api.pure_callback(np.sign, out, y, vmap_method=method)

            return f

        return made

    # --- places ----------------------------------------------------------------------------------

    def _places(self) -> Callable:
        name, mode = self.draw(*_AT), self.draw(None, "drop", "clip", "promise_in_bounds")
        index = self.draw(1, -1, np.array([2, 0]), np.array([1]), np.array([-2, -1]))
        if mode in (None, "drop"):
            index = self.draw(index, 5, np.array([7, 1]), np.array([-9, 2]))
        unique = bool(self.draw(True, False))

        def made(lib: SimpleNamespace) -> Callable:
            value = lib.jnp.tanh if name == "apply" else 0.75
            how = {"unique_indices": True} if unique and np.ndim(index) else {}
            return lambda x: getattr(x.at[index], name)(value, mode=mode, **how)

        return made

    def _moved_slices(self) -> Callable:
        start = self.draw(0, 1, 2, 5, -1)

        def made(lib: SimpleNamespace) -> Callable:
            def f(x: Any) -> Any:
                at = start + lib.jnp.sum(lib.lax.stop_gradient(x) > 0.3)
                part = lib.lax.dynamic_slice(x, (at,), (2,))
                return lib.lax.dynamic_update_slice(lib.jnp.sin(x), part * 2, (at - 1,))

            return f

        return made

    def _looked_up(self) -> Callable:
        side = self.draw("left", "right")

        def made(lib: SimpleNamespace) -> Callable:
            table = np.array([-0.5, 0.0, 0.25, 1.0])

            def f(x: Any) -> Any:
                k = lib.jnp.searchsorted(table.astype(x.dtype), lib.lax.stop_gradient(x), side=side)
                return lib.jnp.interp(x, table, np.cos(table)).astype(x.dtype) + x * (k % 2)

            return f

        return made

    # --- windows, orders, transforms -------------------------------------------------------------

    def _windows(self) -> Callable:
        op, start = self.draw(("add", 0.0), ("max", -np.inf), ("min", np.inf))

        def made(lib: SimpleNamespace) -> Callable:
            return lambda x: lib.lax.reduce_window(
                lib.jnp.sin(x), np.asarray(start, x.dtype), getattr(lib.lax, op), (2,), (1,), "SAME"
            )

        return made

    def _convolved(self) -> Callable:
        pads, reach = self.draw(((1, 1), 1), ((2, 0), 1), ((2, 2), 2))

        def made(lib: SimpleNamespace) -> Callable:
            def f(x: Any) -> Any:
                taps = lib.jnp.cos(x)[None, None]
                y = lib.lax.conv_general_dilated(
                    x[None, None], taps, (1,), (pads,), rhs_dilation=(reach,)
                )
                return y[0, 0]

            return f

        return made

    def _keys(self) -> Callable:
        keys = self.draw(1, 2)

        def made(lib: SimpleNamespace) -> Callable:
            def f(x: Any) -> Any:
                first = lib.jnp.floor(lib.jnp.sin(x) * 2)
                found = lib.lax.sort((first, x, x * x), num_keys=keys)
                return found[1] + found[2]

            return f

        return made

    def _extrema(self) -> Callable:
        name = self.draw("max", "min", "ptp", "prod", "median", "var", "nanmax")

        def made(lib: SimpleNamespace) -> Callable:
            def f(x: Any) -> Any:
                y = lib.jnp.where(x > 0.9, 0.5, x)  # with ties, and zeros
                return x * getattr(lib.jnp, name)(lib.jnp.maximum(y, 0.0)) + lib.jnp.sort(x)[1]

            return f

        return made

    def _running(self) -> Callable:
        name, back = (
            self.draw("cummax", "cummin", "cumsum", "cumprod", "cumlogsumexp"),
            self.draw(0, 1),
        )
        return lambda lib: (
            lambda x: getattr(lib.lax, name)(lib.jnp.sin(x), axis=0, reverse=bool(back))
        )

    def _spectrum(self) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            def f(x: Any) -> Any:
                z = lib.jnp.fft.fft(lib.jnp.sin(x)) * (0.5 - 2j)
                y = lib.jnp.abs(lib.jnp.fft.ifft(z)) + lib.jnp.angle(z)
                return (y + lib.jnp.real(z * lib.jnp.conj(z))).astype(x.dtype)

            return f

        return made

    def _factors(self) -> Callable:
        name = self.draw("cholesky", "inv", "eigh", "slogdet", "qr", "expm")

        def made(lib: SimpleNamespace) -> Callable:
            def f(x: Any) -> Any:
                y = lib.jnp.sin(x)
                a = lib.jnp.outer(y, y) + lib.jnp.diag(2.0 + np.arange(3.0)).astype(x.dtype)
                if name == "expm":
                    return (lib.api.scipy.linalg.expm(a * 0.1) @ x).astype(x.dtype)
                found = getattr(lib.jnp.linalg, name)(a)
                if name == "qr":
                    return x * lib.jnp.abs(lib.jnp.diagonal(found[1]))
                if name in ("eigh", "slogdet"):
                    return x * found[name == "slogdet"]
                return found @ x

            return f

        return made

    def _products(self) -> Callable:
        text = self.draw("i,j->i", "i,i->", "i,j->ji", "...,...->...")
        return lambda lib: lambda x: x + lib.jnp.sum(lib.jnp.einsum(text, lib.jnp.sin(x), x))

    # --- functions of a function -----------------------------------------------------------------

    def _static(self, f: Callable) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            g = lib.api.jit(
                lambda n, t, *, how: {"y": f(lib)(t["x"]) * n if how else t["x"], "z": None},
                static_argnums=0,
                static_argnames="how",
            )
            return lambda x: g(2, {"x": x, "none": None}, how="so")["y"]

        return made

    def _donated(self, f: Callable) -> Callable:
        return lambda lib: lambda x: lib.api.jit(f(lib), donate_argnums=0)(lib.jnp.asarray(x) * 1)

    def _rolled(self, f: Callable) -> Callable:
        """A scan of nothing, written out in part."""
        length, unroll, back = self.draw(2, 3, 5), self.draw(1, 2, True), self.draw(True, False)

        def made(lib: SimpleNamespace) -> Callable:
            def outer(x: Any) -> Any:
                first = lib.jnp.sin(x) + lib.jnp.zeros(lib.jnp.shape(x), lib.jnp.asarray(x).dtype)
                step = lambda c, _: (lib.jnp.sin(f(lib)(c)).astype(c.dtype), {"c": c, "none": ()})
                last, rows = lib.lax.scan(step, first, None, length, reverse=back, unroll=unroll)
                return last + rows["c"][0] * rows["c"][-1]

            return outer

        return made

    def _records(self, f: Callable) -> Callable:
        """Derivatives with respect to trees, of which a part has none."""

        def made(lib: SimpleNamespace) -> Callable:
            loss = lambda p: lib.jnp.sum(f(lib)(p.first)) * p.second["w"] + p.second["n"]

            def outer(x: Any) -> Any:
                tree = Pair(x, {"w": 0.5, "n": 3})
                y, pull = lib.api.vjp(loss, tree)
                return pull(y)[0].first

            return outer

        return made

    def _jacobians(self, f: Callable) -> Callable:
        name = self.draw("jacfwd", "jacrev")

        def made(lib: SimpleNamespace) -> Callable:
            def outer(x: Any) -> Any:
                table = getattr(lib.api, name)(lambda y: lib.jnp.sin(f(lib)(y)))(x)
                return lib.jnp.tanh(lib.jnp.sum(table, 0) if lib.jnp.ndim(x) else table)

            return outer

        return made

    def _curvature(self, f: Callable) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            second = lambda x: lib.api.jvp(
                lib.api.grad(lambda y: lib.jnp.sum(lib.jnp.cos(f(lib)(y)))), (x,), (x,)
            )[1]
            return lambda x: lib.jnp.tanh(second(x))

        return made

    def _several(self, f: Callable) -> Callable:
        """A loop with a tree, whose numbers stay weak or become strong."""

        def made(lib: SimpleNamespace) -> Callable:
            def outer(x: Any) -> Any:
                y = lib.jnp.asarray(x) + lib.jnp.zeros((), lib.jnp.asarray(x).dtype)
                step = lambda k, t: {"k": t["k"] + k, "y": (f(lib)(t["y"]) * 0.5).astype(y.dtype)}
                found = lib.lax.fori_loop(1, 3, step, {"k": 0, "y": y})
                return found["y"] * found["k"]

            return outer

        return made

    def _along(self, f: Callable) -> Callable:
        """Members along other axes than the first."""
        into, out = self.draw(1, -1, -2), self.draw(0, 1, -1)

        def made(lib: SimpleNamespace) -> Callable:
            def outer(x: Any) -> Any:
                table = lib.jnp.stack([lib.jnp.sin(x), x, 2 * x], 1 if into != -2 else 0)
                rows = lib.api.vmap(f(lib), into, out)(table)
                return lib.jnp.sum(rows * lib.jnp.arange(9.0).reshape(3, 3), 1).astype(x.dtype)

            return outer

        return made

    def _backwards(self, f: Callable) -> Callable:
        op = self.draw("multiply", "maximum", "add")
        return lambda lib: (
            lambda x: lib.lax.associative_scan(
                getattr(lib.jnp, op), lib.jnp.sin(f(lib)(x)), reverse=True
            )
        )

    # --- row by row ------------------------------------------------------------------------------

    def _chosen(self, f: Callable) -> Callable:
        """Branches by an index that differs between members, and is out of range for some."""

        def made(lib: SimpleNamespace) -> Callable:
            def row(r: Any) -> Any:
                k = lib.jnp.floor(lib.lax.stop_gradient(r) * 3).astype(int)
                same = lambda y: (f(lib)(y) * 1.0).astype(r.dtype)
                two = [same, lib.jnp.sin, lambda y: y * y]
                return lib.lax.switch(k, two, r + lib.jnp.zeros((), r.dtype))

            return lib.api.vmap(row)

        return made

    def _in_batches(self, f: Callable) -> Callable:
        size = self.draw(1, 2, 3)
        return lambda lib: lambda x: lib.lax.map(f(lib), x, batch_size=size)

    def _until_each(self, f: Callable) -> Callable:
        """Loops that end at different times, some before they begin."""

        def made(lib: SimpleNamespace) -> Callable:
            def row(r: Any, limit: Any) -> Any:
                more = lambda s: (s["n"] < limit) & (lib.jnp.abs(s["y"]) < 2.0)
                step = lambda s: {"n": s["n"] + 1, "y": (f(lib)(s["y"]) + 0.3).astype(r.dtype)}
                start = {"n": 0, "y": lib.lax.stop_gradient(r) + lib.jnp.zeros((), r.dtype)}
                last = lib.lax.while_loop(more, step, start)
                return lib.lax.stop_gradient(last["y"]) * r + last["n"]

            return lambda x: lib.api.vmap(row, (0, 0))(x, lib.jnp.array([0, 3, 1]))

        return made
