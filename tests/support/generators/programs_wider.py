"""Random nestings with rules that close over values, named axes, policies, trees, implicit solvers."""

from collections import namedtuple
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from programs_nested import Nested

Pair = namedtuple("Pair", "first second")

_POLICIES = (
    "everything_saveable",
    "nothing_saveable",
    "dots_saveable",
    "dots_with_no_batch_dims_saveable",
)


class Wider(Nested):
    """As Nested, with more kinds of functions, and integers and truth values among the results."""

    def program(self, depth: int = 3) -> Callable[[SimpleNamespace], Any]:
        run = super().program(depth)

        def wider(lib: SimpleNamespace) -> Any:
            found = run(lib)
            x = found["one"]
            counts = {
                "positive": x > 0.1234567,
                "whole": lib.jnp.floor(lib.jnp.sin(x) * 8 + 0.37).astype("int32"),
            }
            return [found, None, counts, Pair(lib.jnp.argmax(x), lib.jnp.isfinite(x))]

        return wider

    def plain(self) -> list:
        found = [*super().plain(), self._closed_rule, self._found_root, self._complex, self._narrow]
        found += [self._transposed, self._record]
        if self.rank:
            found += [self._ragged, self._fourier, self._matrix]
        if not self.forward:
            found.append(self._closed_rule_back)
        return found

    def around(self) -> list:
        found = [
            *super().around(),
            self._policy,
            self._named,
            self._hessian,
            self._aux,
            self._gradient_of_tree,
        ]
        return [*found, self._scan_of_trees, self._bounds]

    def by_rows(self) -> list:
        found = [*super().by_rows(), self._vmap_of_trees, self._vmap_of_columns, self._collectives]
        return [*found, self._until, self._deep]

    def going_forward(self) -> list:
        return [*super().going_forward(), self._hessian]

    # --- plain functions -------------------------------------------------------------------------

    def _closed_rule(self) -> Callable:
        """A rule that closes over a traced value."""

        def made(lib: SimpleNamespace) -> Callable:
            def outer(x: Any) -> Any:
                by = lib.lax.stop_gradient(lib.jnp.sum(lib.jnp.cos(x)))
                f = lib.api.custom_jvp(lambda y: lib.jnp.sin(y) * by)
                f.defjvp(lambda p, t: (lib.jnp.sin(p[0]) * by, t[0] * by * 0.5))
                return f(x)

            return outer

        return made

    def _closed_rule_back(self) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            def outer(x: Any) -> Any:
                by = lib.lax.stop_gradient(lib.jnp.cos(x))
                f = lib.api.custom_vjp(lambda y: lib.jnp.sin(y) * by)
                f.defvjp(
                    lambda y: (lib.jnp.sin(y) * by, y), lambda y, ct: (ct * by + lib.jnp.tanh(y),)
                )
                return f(x)

            return outer

        return made

    def _found_root(self) -> Callable:
        """The y with y + y**3 / 3 = x, by Newton's method."""

        def made(lib: SimpleNamespace) -> Callable:
            def root(x: Any) -> Any:
                right = lib.jnp.sin(x)
                step = lambda _, y: y - (y + y * y * y / 3 - right) / (1 + y * y)
                solve = lambda f, y: lib.lax.fori_loop(0, 6, step, y)
                tangent = lambda g, y: y / g(lib.jnp.ones_like(y))
                start = lib.jnp.zeros_like(right)
                return lib.lax.custom_root(
                    lambda y: y + y * y * y / 3 - right, start, solve, tangent
                )

            return root

        return made

    def _complex(self) -> Callable:
        return lambda lib: (
            lambda x: lib.jnp.real(lib.jnp.exp(1j * x) * (x + 2j)).astype(lib.jnp.asarray(x).dtype)
        )

    def _narrow(self) -> Callable:
        return lambda lib: lambda x: lib.jnp.asarray(x).astype("float32") * 0.5 + x

    def _transposed(self) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            linear = lambda y: 2.0 * y - lib.jnp.sum(y)
            return lambda x: lib.api.linear_transpose(linear, x)(lib.jnp.sin(x))[0]

        return made

    def _record(self) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            step = lambda k, p: Pair(None, {"a": p.second["a"] * 0.5 + k, "n": p.second["n"] + 1})
            return lambda x: lib.lax.fori_loop(
                0, 3, step, Pair(None, {"a": lib.jnp.sin(x), "n": 0})
            ).second["a"]

        return made

    def _ragged(self) -> Callable:
        """Segments that depend on values."""
        name = ("segment_sum", "segment_max", "segment_prod")[int(self.rng.integers(3))]

        def made(lib: SimpleNamespace) -> Callable:
            def f(x: Any) -> Any:
                ids = (lib.lax.stop_gradient(x) > 0).astype(int)
                found = getattr(lib.api.ops, name)(lib.jnp.sin(x), ids, 2)
                return lib.jnp.where(lib.jnp.isfinite(found), found, 0)[ids] + x

            return f

        return made

    def _fourier(self) -> Callable:
        return lambda lib: (
            lambda x: lib.jnp.abs(lib.jnp.fft.rfft(lib.jnp.sin(x) + 2, 5)).astype(x.dtype)
        )

    def _matrix(self) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            def f(x: Any) -> Any:
                a = lib.jnp.outer(lib.jnp.sin(x), lib.jnp.cos(x)) + 3 * lib.jnp.eye(
                    3, dtype=x.dtype
                )
                return lib.jnp.linalg.solve(a, x) + lib.jnp.einsum("ij,j->i", a, x)

            return f

        return made

    # --- functions of a function -----------------------------------------------------------------

    def _policy(self, f: Callable) -> Callable:
        name = _POLICIES[int(self.rng.integers(len(_POLICIES)))]
        return lambda lib: lib.api.checkpoint(
            f(lib), policy=getattr(lib.api.checkpoint_policies, name)
        )

    def _named(self, f: Callable) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            keep = lib.api.checkpoint_policies.save_only_these_names("inner")
            name = lib.api.ad_checkpoint.checkpoint_name
            return lib.api.checkpoint(lambda x: lib.jnp.sin(name(f(lib)(x), "inner")), policy=keep)

        return made

    def _hessian(self, f: Callable) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            second = lib.api.jacfwd(lib.api.jacrev(lambda x: lib.jnp.sum(lib.jnp.sin(f(lib)(x)))))
            return lambda x: lib.jnp.tanh(second(x) if lib.jnp.ndim(x) == 0 else second(x) @ x)

        return made

    def _aux(self, f: Callable) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            def loss(t: dict, scale: Any) -> tuple:
                y = f(lib)(t["x"])
                return lib.jnp.sum(lib.jnp.sin(y)) * scale, {"y": y, "n": None}

            def outer(x: Any) -> Any:
                (_, aux), (g, by) = lib.api.value_and_grad(loss, (0, 1), has_aux=True)(
                    {"x": x}, 2.0
                )
                return g["x"] + aux["y"] * by

            return outer

        return made

    def _gradient_of_tree(self, f: Callable) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            loss = lambda p: lib.jnp.sum(f(lib)(p.first) * lib.jnp.cos(p.second["b"]))

            def outer(x: Any) -> Any:
                g = lib.api.grad(loss)(Pair(x, {"b": lib.jnp.sin(x), "c": None}))
                return g.first + g.second["b"]

            return outer

        return made

    def _scan_of_trees(self, f: Callable) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            def step(c: dict, a: Pair) -> tuple:
                y = lib.jnp.sin(f(lib)(c["y"])) * a.second
                return {"y": lib.jnp.asarray(y, lib.jnp.asarray(c["y"]).dtype), "none": None}, Pair(
                    c["y"], a.first
                )

            rows = Pair(np.arange(3), np.array([0.5, 1.5, -0.5]))

            def outer(x: Any) -> Any:
                start = {
                    "y": lib.jnp.asarray(x) + lib.jnp.zeros((), lib.jnp.asarray(x).dtype),
                    "none": None,
                }
                last, all_ = lib.lax.scan(step, start, rows, reverse=True, unroll=2)
                return last["y"] + lib.jnp.sum(all_.first, 0)

            return outer

        return made

    def _bounds(self, f: Callable) -> Callable:
        """A loop between bounds that are traced, which JAX goes through forward alone."""

        def made(lib: SimpleNamespace) -> Callable:
            def outer(x: Any) -> Any:
                n = lib.jnp.sum(lib.lax.stop_gradient(x) > 0) + 1
                first = lib.jnp.sin(x) + lib.jnp.zeros(lib.jnp.shape(x), lib.jnp.asarray(x).dtype)
                step = lambda k, c: lib.jnp.sin(f(lib)(c)).astype(c.dtype)
                return lib.lax.stop_gradient(lib.lax.fori_loop(0, n, step, first)) + x

            return outer

        return made

    # --- row by row ------------------------------------------------------------------------------

    def _vmap_of_trees(self, f: Callable) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            both = lambda t, y: {"u": f(lib)(t["a"]) * y, "v": (y, t["b"])}
            rows = lib.api.vmap(both, ({"a": 0, "b": None}, None), {"u": 0, "v": (None, None)})
            return lambda x: (lambda t: t["u"] + t["v"][1])(rows({"a": x, "b": 1.5}, 0.5))

        return made

    def _vmap_of_columns(self, f: Callable) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            one = lambda pair: lib.jnp.stack([f(lib)(pair[0]), f(lib)(pair[1])])
            columns = lib.api.vmap(one, 1, 1, spmd_axis_name="b")
            tables = lib.api.vmap(columns, 0, -1, spmd_axis_name="a")

            def outer(x: Any) -> Any:
                y = lib.jnp.stack([lib.jnp.sin(x), x])
                found = tables(lib.jnp.stack([y, 2 * y]))
                return found[0, :, 1] + found[1, :, 0]

            return outer

        return made

    def _collectives(self, f: Callable) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            def member(r: Any) -> Any:
                y = f(lib)(r)
                around = lib.lax.ppermute(y, "i", [(0, 1), (1, 2), (2, 0)])
                mean = lib.lax.pmean(lib.jnp.sin(y), "i")
                best = lib.lax.pmax(lib.lax.stop_gradient(y), "i")
                sums = lib.jnp.sum(lib.lax.all_gather(lib.jnp.sin(r), "i")) + lib.lax.psum(
                    lib.jnp.sin(y), "i"
                )
                return around + mean + best * 0.1 + sums + lib.lax.axis_index("i")

            return lib.api.vmap(member, axis_name="i")

        return made

    def _until(self, f: Callable) -> Callable:
        """A loop whose condition differs between the members of a batch."""

        def made(lib: SimpleNamespace) -> Callable:
            def row(r: Any) -> Any:
                r = r + lib.jnp.zeros((), r.dtype)
                more = lambda s: (s[0] < 4) & (s[1] < 0.6)
                step = lambda s: (s[0] + 1, (lib.jnp.tanh(f(lib)(s[1])) + 0.4).astype(r.dtype))
                n, last = lib.lax.while_loop(more, step, (0, lib.jnp.sin(r)))
                return lib.lax.stop_gradient(last) * r + n

            return lib.api.vmap(row)

        return made

    def _deep(self, f: Callable) -> Callable:
        """The gradient of rows of a scan that has a loop in it."""

        def made(lib: SimpleNamespace) -> Callable:
            def step(c: Any, _: Any) -> tuple:
                more, halve = lambda y: y > 0.5, lambda y: y * 0.5
                part = lib.lax.while_loop(more, halve, lib.lax.stop_gradient(lib.jnp.abs(c) + 0.25))
                c = lib.jnp.sin(f(lib)(c)).astype(c.dtype) * part
                return c, c

            row = lambda r: lib.lax.scan(step, r + lib.jnp.zeros((), r.dtype), None, length=2)
            total = lambda x: sum(lib.jnp.sum(y) for y in lib.api.vmap(row)(x))
            return lib.api.grad(total)

        return made
