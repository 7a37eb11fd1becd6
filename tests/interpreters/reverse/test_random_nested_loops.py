"""Random loops in loops that update arrays in place: gradients against plain evaluation and slopes.

FNX_FUZZ=500 tries that many, from the seed FNX_FUZZ_FROM on.
"""

import os

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

FUZZ = int(os.environ.get("FNX_FUZZ", "0"))
START = int(os.environ.get("FNX_FUZZ_FROM", "0"))


class Nest:
    """A program: a list of statements; each is a function of the arrays and the counters around it."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.choose = seed % 3 == 0  # both branches are computed, and one is taken
        self.n = int(
            self.rng.choice([5, 5, 18])
        )  # in registers, or in memory; short or long columns
        self.depth = 3 if self.n < 10 else 2

    def pick(self, *options):
        return options[self.rng.integers(len(options))]

    def index(self, depth):
        """A place along an axis, as a function of the counters."""
        n, level = self.n, int(self.rng.integers(max(depth, 1)))
        number = int(self.rng.integers(n))
        kinds = [lambda at: number]
        if depth:
            kinds += [lambda at: at[level]] * 4
            kinds += [
                lambda at: at[level] - 1,
                lambda at: n - 1 - at[level],
                lambda at: jnp.minimum(at[level] + 1, n - 1),
                lambda at: (at[0] + at[-1]) % n,
                lambda at: at[level] // 2,
            ]
        return self.pick(*kinds)

    def mask(self, depth):
        """A choice of indices."""
        level, ix = int(self.rng.integers(max(depth, 1))), np.arange(self.n)
        if not depth:
            return lambda at: ix >= 1
        return self.pick(
            lambda at: ix < at[level],
            lambda at: ix > at[level],
            lambda at: ix <= at[level],
            lambda at: ix != at[level],
            lambda at: ix < jnp.minimum(at[0], at[-1]),
        )

    def vector(self, depth):
        """A row, a column, or something made of some."""
        i, which = self.index(depth), self.pick(0, 1)
        kind = self.pick("row", "column", "masked", "product", "slice", "mirror")
        if kind == "row":
            return lambda s, at: s[which][i(at)]
        if kind == "column":
            return lambda s, at: s[which][:, i(at)]
        if kind == "slice":
            return lambda s, at: lax.dynamic_slice(s[which], (i(at), 0), (1, self.n))[0]
        if kind == "mirror":
            back = lambda at: jnp.clip(i(at) - np.arange(self.n), 0, self.n - 1)
            return lambda s, at: s[which][i(at)][back(at)]
        x = self.vector(depth)
        if kind == "masked":
            mask = self.mask(depth)
            return lambda s, at: jnp.where(mask(at), x(s, at), 0.0)
        y = self.vector(depth)
        return lambda s, at: x(s, at) * y(s, at)

    def scalar(self, depth):
        i, j, which = self.index(depth), self.index(depth), self.pick(0, 1)
        kind = self.pick("element", "element", "dot", "sum", "ratio")
        if kind == "element":
            return lambda s, at: s[which][i(at), j(at)]
        x = self.vector(depth)
        if kind == "sum":
            return lambda s, at: jnp.sum(x(s, at)) / self.n
        if kind == "dot":
            y = self.vector(depth)
            return lambda s, at: jnp.dot(x(s, at), y(s, at)) / self.n
        below = self.scalar(depth)
        return lambda s, at: s[which][i(at), j(at)] / (1.5 + below(s, at) ** 2)

    def statement(self, depth):
        if depth < self.depth and self.rng.random() < (0.9 if depth == 0 else 0.45):
            return self.loop(depth)
        if depth and self.rng.random() < 0.2:
            return self.branch(depth)
        which, i, j = self.pick(0, 1), self.index(depth), self.index(depth)
        value, one = self.vector(depth), self.scalar(depth)
        new = lambda s, a: (a, s[1]) if which == 0 else (s[0], a)
        kind = self.pick("row", "column", "element", "element", "add", "scale", "slice", "outer")
        if kind == "row":
            return lambda s, at: new(s, s[which].at[i(at)].set(jnp.sin(value(s, at))))
        if kind == "column":
            return lambda s, at: new(s, s[which].at[:, i(at)].add(0.3 * jnp.sin(value(s, at))))
        if kind == "element":
            return lambda s, at: new(s, s[which].at[i(at), j(at)].set(jnp.sin(one(s, at))))
        if kind == "add":
            return lambda s, at: new(s, s[which].at[i(at), j(at)].add(0.2 * jnp.tanh(one(s, at))))
        if kind == "scale":
            inner = lambda s, at: s[which].at[i(at), 1:-1].multiply(jnp.cos(one(s, at)))
            return lambda s, at: new(s, inner(s, at))
        if kind == "slice":
            return lambda s, at: new(
                s, lax.dynamic_update_slice(s[which], jnp.cos(value(s, at))[None], (i(at), 0))
            )
        return lambda s, at: new(
            s, s[which] - 0.1 * jnp.outer(jnp.sin(value(s, at)), jnp.cos(value(s, at)))
        )

    def loop(self, depth):
        body = [self.statement(depth + 1) for _ in range(self.rng.integers(1, 4))]
        low, high = self.bounds(depth)
        secret = depth > 0 and self.rng.random() < 0.25

        def run(s, at):
            def step(k, s):
                for statement in body:
                    s = statement(s, (*at, k))
                return s

            end = high(at)
            if secret:  # a number of which nothing is known
                end = end - (s[0][0, 0] > 1e9).astype(int)
            return lax.fori_loop(low(at), end, step, s)

        return run

    def branch(self, depth):
        """One statement or another, or nothing, as the counters say."""
        i, j = self.index(depth), self.index(depth)
        one = self.statement(self.depth)
        other = self.pick(lambda s, at: s, self.statement(self.depth))

        def run(s, at):
            at = (*at, *(at[-1] for _ in range(self.depth - len(at))))
            on = i(at) > j(at)
            if self.choose:
                return tuple([jnp.where(on, x, y) for x, y in zip(one(s, at), other(s, at))])
            return lax.cond(on, lambda s: one(s, at), lambda s: other(s, at), s)

        return run

    def bounds(self, depth):
        """Numbers, or numbers of the loops around."""
        n = self.n
        low, high = int(self.rng.integers(0, 2)), n - int(self.rng.integers(0, 2))
        known = (lambda at: low), (lambda at: high)
        if not depth or self.rng.random() < 0.5:
            return known
        level = int(self.rng.integers(depth))
        return self.pick(
            (known[0], lambda at: at[level]),
            (lambda at: at[level] + 1, known[1]),
            (lambda at: at[level], lambda at: jnp.minimum(2 * at[0] + 1, n)),
            (lambda at: at[level] // 2, lambda at: n - at[level]),
        )

    def program(self):
        body = [self.loop(0) for _ in range(self.rng.integers(1, 3))]
        weights = np.cos(np.arange(self.n * self.n)).reshape(self.n, self.n)
        zeros = self.rng.random() < 0.4

        def loss(a, b):
            s = (a, jnp.zeros_like(b) + 0.0 * b[0, 0] if zeros else b)
            for statement in body:
                s = statement(s, ())
            return jnp.sum(s[0] * weights) + jnp.sum(jnp.sin(s[1]))

        args = [self.rng.uniform(-1, 1, (self.n, self.n)) for _ in range(2)]
        return loss, [jnp.asarray(a) for a in args]


@pytest.mark.parametrize("seed", range(START, START + (FUZZ or 10)))
def test_gradients_of_nests(seed, monkeypatch):
    monkeypatch.setattr("fnx.core.policy.SELECTED_ELEMENTS", 4)
    nest = Nest(seed)
    loss, args = nest.program()
    gradient = fnx.grad(loss, (0, 1))
    with fnx.core.config.check():
        expected = gradient(*args)  # eager, with compiled loops
        found = [fnx.jit(gradient)(*args)]
    if nest.n < 10:  # or it takes long
        with fnx.disable_jit():
            found.append(gradient(*args))
    for made in found:
        for a, b in zip(made, expected, strict=True):
            a, b = np.asarray(a), np.asarray(b)
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9 * (1 + np.abs(b).max()))
    rng = np.random.default_rng(seed)
    d = [rng.normal(size=a.shape) for a in args]
    slope = sum(np.sum(np.asarray(g) * v) for g, v in zip(expected, d))
    if not abs(slope) < 1e3:
        return  # small steps say nothing about what grows so fast
    f = fnx.jit(loss)
    ends = [float(f(*[a + h * v for a, v in zip(args, d)])) for h in (1e-6, -1e-6)]
    assert abs((ends[0] - ends[1]) / 2e-6 - slope) <= 1e-4 * (1 + abs(slope))
    linear = fnx.linearize(loss, *args)[1](*d)
    assert abs(float(linear) - slope) <= 1e-7 * (1 + abs(slope))
