"""Random nestings of transformations, control flow, custom rules and pytrees, for fnx and for JAX alike."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

# What a program starts with: Python numbers and arrays that yield in promotion, and others that do not.
STARTS: tuple[Callable[[Any], Any], ...] = (
    lambda jnp: 0.5,
    lambda jnp: jnp.ones(()) * 0.25,
    lambda jnp: jnp.arange(3) * 0.5,
    lambda jnp: jnp.asarray(np.array([0.5, -0.25, 1.0])),
    lambda jnp: jnp.asarray(np.array([0.5, -0.25, 1.0], np.float32)),
)


class Nested:
    """A function from an array to one of its shape, drawn from a seed."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.start = STARTS[int(self.rng.integers(len(STARTS)))]
        self.rank = 0 if self.start in STARTS[:2] else 1
        self.names: list[str] = []
        self.forward = 0  # how many functions go forward around the one that is drawn

    def program(self, depth: int = 3) -> Callable[[SimpleNamespace], Any]:
        """`run(api)` gives a pytree of results; `api` has the names api, jnp and lax of either library."""
        first, second = self._function(depth), self._function(depth - 1)

        def run(lib: SimpleNamespace) -> Any:
            x = self.start(lib.jnp)
            return {"one": first(lib)(x), "both": (second(lib)(first(lib)(x)), x)}

        return run

    def _pick(self, kinds: list) -> Any:
        kind = kinds[int(self.rng.integers(len(kinds)))]
        self.names.append(kind.__name__.strip("_"))
        return kind

    def plain(self) -> list:
        """Kinds of functions that hold no others."""
        found = [self._sine, self._half, self._product, self._choice, self._rule_forward]
        found += [self._power, self._root, self._exponential, self._strong, self._halfway]
        found.append(self._solve)
        if self.rank:
            found += [self._cumulative, self._sorted, self._slice_set, self._segments, self._padded]
            found += [self._update, self._gather, self._empty]
        if not self.forward:  # such rules are for reverse mode alone
            found.append(self._rule_back)
        return found

    def around(self) -> list:
        """Kinds of functions of a function."""
        calls = [self._jit, self._checkpoint, self._grad, self._jvp, self._linearize, self._vjp]
        flow = [self._scan, self._fori, self._while, self._cond, self._switch, self._tree]
        return [*calls, *calls, *flow, *(self.by_rows() if self.rank else []), *self.whole()]

    def by_rows(self) -> list:
        """Those whose function gets a row of the argument."""
        return [self._vmap, self._map]

    def whole(self) -> list:
        """Those that need an argument of rows."""
        return [self._associative] if self.rank else []

    def going_forward(self) -> list:
        return [self._jvp, self._linearize]

    def _function(self, depth: int) -> Callable:
        plain = self.plain()
        if depth <= 0:
            return self._pick(plain)()
        kind = self._pick([*plain, *self.around()])
        if kind in plain:
            return kind()
        ahead, by_rows = kind in self.going_forward(), kind in self.by_rows()
        self.forward += ahead
        self.rank -= by_rows
        inner = self._function(depth - 1)
        self.forward -= ahead
        self.rank += by_rows
        return kind(inner)

    # --- plain functions -------------------------------------------------------------------------

    def _sine(self) -> Callable:
        return lambda lib: lib.jnp.sin

    def _half(self) -> Callable:
        return lambda lib: lambda x: x * 0.5 + 1

    def _product(self) -> Callable:
        return lambda lib: lambda x: x * lib.jnp.tanh(x)

    def _choice(self) -> Callable:
        return lambda lib: lambda x: lib.jnp.where(x > 0, x * 2.0, -x)

    def _rule_forward(self) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            f = lib.api.custom_jvp(lambda x: lib.jnp.tanh(x) * x)
            f.defjvp(lambda p, t: (lib.jnp.tanh(p[0]) * p[0], 3.0 * p[0] * t[0]))
            return f

        return made

    def _rule_back(self) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            f = lib.api.custom_vjp(lib.jnp.cos)
            f.defvjp(lambda x: (lib.jnp.cos(x), x), lambda x, ct: (ct * lib.jnp.sin(x),))
            return f

        return made

    def _power(self) -> Callable:
        return lambda lib: lambda x: (lib.jnp.tanh(x * x) + 1) ** 1.5

    def _root(self) -> Callable:
        return lambda lib: lambda x: lib.jnp.sqrt(x * x + 1)

    def _exponential(self) -> Callable:
        return lambda lib: lambda x: 2.0 ** lib.jnp.sin(x)

    def _strong(self) -> Callable:
        return lambda lib: lambda x: x + lib.jnp.zeros(lib.jnp.shape(x), lib.jnp.asarray(x).dtype)

    def _halfway(self) -> Callable:
        """Integers and truth values on the way."""

        def made(lib: SimpleNamespace) -> Callable:
            count = lambda x: lib.jnp.sum(
                lib.jnp.floor(lib.lax.stop_gradient(x)).astype(int) % 3 == 0
            )
            return lambda x: lib.jnp.where(count(x) > 1, x, -x * 0.5)

        return made

    def _solve(self) -> Callable:
        """A solver whose operator closes over what is traced."""

        def made(lib: SimpleNamespace) -> Callable:
            def solved(x: Any) -> Any:
                scale = 2 + lib.jnp.sum(lib.jnp.sin(x))
                by = lambda _, rhs: rhs / scale
                return lib.lax.custom_linear_solve(lambda y: y * scale, lib.jnp.cos(x), by, by)

            return solved

        return made

    def _cumulative(self) -> Callable:
        return lambda lib: (
            lambda x: lib.jnp.cumsum(lib.jnp.tanh(x)) + lib.jnp.cumprod(lib.jnp.sin(x))
        )

    def _sorted(self) -> Callable:
        return lambda lib: lambda x: lib.jnp.sort(lib.jnp.sin(x * 3)) * x[::-1]

    def _slice_set(self) -> Callable:
        return lambda lib: lambda x: x.at[0].set(x[1] * 2.0).at[2].multiply(0.5)

    def _segments(self) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            ids = np.array([1, 0, 1])
            return lambda x: lib.api.ops.segment_sum(lib.jnp.sin(x), ids, 3) + x

        return made

    def _padded(self) -> Callable:
        return lambda lib: (
            lambda x: lib.jnp.convolve(x, np.array([0.5, 0.25], x.dtype), mode="same")
        )

    def _update(self) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            return lambda x: lib.lax.dynamic_update_slice(x, lib.jnp.sin(x[:2]), (1,))

        return made

    def _gather(self) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            at = np.array([2, 5, 0])
            return lambda x: (
                x.at[at].get(mode="fill", fill_value=0.0) + x.at[at].add(x, mode="drop")
            )

        return made

    def _empty(self) -> Callable:
        return lambda lib: lambda x: x + lib.jnp.sum(lib.jnp.sin(x[:0]))

    # --- transformations -------------------------------------------------------------------------

    def _jit(self, f: Callable) -> Callable:
        return lambda lib: lib.api.jit(f(lib))

    def _checkpoint(self, f: Callable) -> Callable:
        return lambda lib: lib.api.checkpoint(f(lib))

    def _grad(self, f: Callable) -> Callable:
        return lambda lib: lib.api.grad(lambda x: lib.jnp.sum(f(lib)(x)))

    def _jvp(self, f: Callable) -> Callable:
        return lambda lib: lambda x: lib.api.jvp(f(lib), (x,), (x,))[1]

    def _linearize(self, f: Callable) -> Callable:
        return lambda lib: lambda x: lib.api.linearize(f(lib), x)[1](x)

    def _vjp(self, f: Callable) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            def back(x: Any) -> Any:
                y, pull = lib.api.vjp(f(lib), x)
                return pull(y)[0]

            return back

        return made

    def _vmap(self, f: Callable) -> Callable:
        return lambda lib: lib.api.vmap(f(lib))

    # --- control flow ----------------------------------------------------------------------------

    def _scan(self, f: Callable) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            step = lambda c, a: (f(lib)(c), c * a)
            return lambda x: lib.lax.scan(step, f(lib)(x), lib.jnp.arange(1, 4))[0]

        return made

    def _fori(self, f: Callable) -> Callable:
        return lambda lib: lambda x: lib.lax.fori_loop(0, 2, lambda k, c: f(lib)(c), f(lib)(x))

    def _while(self, f: Callable) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            more, step = lambda s: s[0] < 2, lambda s: (s[0] + 1, f(lib)(s[1]))
            # JAX goes forward alone through such a loop
            return lambda x: lib.lax.stop_gradient(
                lib.lax.while_loop(more, step, (0, f(lib)(x)))[1]
            )

        return made

    def _cond(self, f: Callable) -> Callable:
        return lambda lib: lambda x: lib.lax.cond(lib.jnp.sum(x) > 1, f(lib), f(lib), x)

    def _switch(self, f: Callable) -> Callable:
        return lambda lib: lambda x: lib.lax.switch(1, [f(lib), lambda y: f(lib)(f(lib)(y))], x)

    def _map(self, f: Callable) -> Callable:
        return lambda lib: lambda x: lib.lax.map(f(lib), x)

    def _associative(self, f: Callable) -> Callable:
        return lambda lib: lambda x: lib.lax.associative_scan(lib.jnp.add, f(lib)(x))

    def _tree(self, f: Callable) -> Callable:
        def made(lib: SimpleNamespace) -> Callable:
            both = lib.api.jit(lambda t: {"a": f(lib)(t["b"][0]), "b": t["b"][1]})
            return lambda x: lib.api.tree_util.tree_leaves(both({"b": (x, 2)}))[0]

        return made
