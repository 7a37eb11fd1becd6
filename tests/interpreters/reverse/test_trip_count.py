"""Loops whose number of iterations is known only when they run, but bounded: reverse mode by a scan."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.aval import ShapedArray
from fnx.core.jaxpr import subjaxprs
from fnx.interpreters.analysis.value_ranges import Intervals

N = 8
RNG = np.random.default_rng(5)
L = np.tril(RNG.normal(size=(N, N)), -1) / N + np.diag(RNG.uniform(1, 2, N))
SPD = L @ L.T
B = RNG.normal(size=N)
K = np.arange(N)


def solve(lower, b):
    def row(i, x):
        s = lax.fori_loop(0, i, lambda j, s: s + lower[i, j] * x[j], 0.0)
        return x.at[i].set((b[i] - s) / lower[i, i])

    return lax.fori_loop(0, N, row, jnp.zeros(N))


def solve_masked(lower, b):
    def row(i, x):
        return x.at[i].set((b[i] - jnp.sum(jnp.where(i > K, lower[i] * x, 0.0))) / lower[i, i])

    return lax.fori_loop(0, N, row, jnp.zeros(N))


def back(lower, b):
    """Downwards, by loops with negative steps."""

    def row(state):
        i, x = state

        def term(inner):
            j, s = inner
            return j - 1, s + lower[j, i] * x[j]

        _, s = lax.while_loop(lambda inner: inner[0] > i, term, (N - 1, 0.0))
        return i - 1, x.at[i].set((b[i] - s) / lower[i, i])

    return lax.while_loop(lambda s: s[0] >= 0, row, (N - 1, jnp.zeros(N)))[1]


def back_masked(lower, b):
    def row(k, x):
        i = N - 1 - k
        s = jnp.sum(jnp.where(i < K, lower[:, i] * x, 0.0))
        return x.at[i].set((b[i] - s) / lower[i, i])

    return lax.fori_loop(0, N, row, jnp.zeros(N))


def cholesky(a):
    def row(i, a):
        def column(j, a):
            s = lax.fori_loop(0, j, lambda k, s: s - a[i, k] * a[j, k], a[i, j])
            return a.at[i, j].set(s / a[j, j])

        a = lax.fori_loop(0, i, column, a)
        a = lax.fori_loop(0, i, lambda k, a: a.at[i, i].add(-(a[i, k] ** 2)), a)
        return a.at[i, i].set(jnp.sqrt(a[i, i]))

    return jnp.tril(lax.fori_loop(0, N, row, a))


def cholesky_masked(a):
    def column(j, c):
        v = a[:, j] - c @ c[j]
        return c.at[:, j].set(jnp.where(j <= K, v / jnp.sqrt(v[j]), 0.0))

    return lax.fori_loop(0, N, column, jnp.zeros((N, N)))


def steps_of_two(lower, b):
    """Bounds at both ends, every second element, the limit included."""

    def row(i, x):
        def term(s):
            j, total = s
            return j + 2, total + lower[j, i] * jnp.sin(x[j] + total)

        _, total = lax.while_loop(lambda s: s[0] <= N - 1 - i // 2, term, (i // 3, 0.0))
        return x.at[i].add(total)

    return lax.fori_loop(0, N, row, b)


def steps_of_two_masked(lower, b):
    def row(i, x):
        def term(total, j):
            on = (j >= i // 3) & (j <= N - 1 - i // 2) & ((j - i // 3) % 2 == 0)
            return jnp.where(on, total + lower[j, i] * jnp.sin(x[j] + total), total), None

        return x.at[i].add(lax.scan(term, 0.0, jnp.arange(N))[0])

    return lax.fori_loop(0, N, row, b)


PAIRS = {
    "solve": (solve, solve_masked, (L, B)),
    "back": (back, back_masked, (L, B)),
    "cholesky": (cholesky, cholesky_masked, (SPD,)),
    "steps of two": (steps_of_two, steps_of_two_masked, (L, B)),
}


def loss(f):
    return lambda *args: jnp.sum(jnp.sin(f(*args)) * jnp.cos(jnp.arange(N)))


def agree(x, y):
    np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-11)


def whiles(jaxpr):
    """How many while loops there are, at any depth."""
    return sum(
        (e.prim.name == "while") + sum(whiles(j) for j in subjaxprs(e.prim)) for e in jaxpr.eqns
    )


@pytest.mark.parametrize("name", PAIRS)
def test_gradients(name):
    f, g, args = PAIRS[name]
    args = [jnp.asarray(a) for a in args]
    order = tuple(range(len(args)))
    want = fnx.grad(loss(g), order)(*args)
    compiled = fnx.jit(fnx.grad(loss(f), order))
    for found in (fnx.grad(loss(f), order)(*args), compiled(*args)):
        for x, y in zip(found, want, strict=True):
            agree(x, np.tril(y) if y.ndim == 2 and name == "solve" else y)
    assert whiles(fnx.make_jaxpr(fnx.grad(loss(f), order))(*args).jaxpr) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_second_order_lanes_and_forward(name):
    f, g, args = PAIRS[name]
    args = [jnp.asarray(a) for a in args]
    rng = np.random.default_rng(1)
    v = rng.normal(size=args[0].shape)

    def product(h):
        """Hessian times vector."""
        slope = lambda a: jnp.vdot(fnx.grad(loss(h))(a, *args[1:]), v)
        return fnx.jit(fnx.grad(slope))(args[0])

    def forward(h):
        slope = lambda a: fnx.grad(loss(h))(a, *args[1:])
        return fnx.jit(lambda a: fnx.jvp(slope, (a,), (v,))[1])(args[0])

    agree(product(f), product(g))
    agree(forward(f), forward(g))
    many = [np.stack([a, 1.1 * a, 0.9 * a]) for a in args]
    for t in (lambda h: fnx.vmap(fnx.grad(loss(h))), lambda h: fnx.grad(_sum(fnx.vmap(loss(h))))):
        agree(fnx.jit(t(f))(*many), fnx.jit(t(g))(*many))


def _sum(f):
    return lambda *args: jnp.sum(f(*args))


def test_bounds_of_each_lane():
    """Numbers of iterations that differ between lanes, by vmap of a function of the bound."""

    def power(n, x):
        return lax.fori_loop(0, jnp.clip(n, 0, 6), lambda i, y: y * jnp.sin(x + i), 1.0)

    def plain(n, x):
        y = 1.0
        for i in range(6):
            y = jnp.where(i < n, y * jnp.sin(x + i), y)
        return y

    n, x = np.array([0, 3, 6, 9, -2]), np.linspace(0.3, 1, 5)
    for t in (lambda f: fnx.vmap(fnx.grad(f, 1)), lambda f: fnx.grad(_sum(fnx.vmap(f)), 1)):
        agree(fnx.jit(t(power))(n, x), fnx.jit(t(plain))(n, x))
        agree(t(power)(n, x), t(plain)(n, x))

    def inside(x):  # the bound of a lane, in a loop over known iterations
        def row(i, total):
            return total + fnx.vmap(lambda j, x: power(jnp.minimum(i, j), x))(np.arange(5), x)

        return jnp.sum(lax.fori_loop(0, 4, row, jnp.zeros(5)))

    def same(x):
        total = jnp.zeros(5)
        for i in range(4):
            total = total + jnp.stack([plain(min(i, j), x[j]) for j in range(5)])
        return jnp.sum(total)

    agree(fnx.grad(inside)(x), fnx.grad(same)(x))
    agree(fnx.jit(fnx.grad(inside))(x), fnx.grad(same)(x))


def test_lanes_that_speak_to_each_other_run_all_iterations():
    def f(n, x):
        def step(i, y):
            return y * 0.5 + jnp.sin(y) * lax.psum(y, "lanes")

        def row(k, y):
            return lax.fori_loop(0, jnp.minimum(k, n), step, y)

        return lax.fori_loop(0, 3, row, x)

    x = np.linspace(0.3, 1, 4)
    same = np.full(4, 2)
    many = fnx.vmap(f, axis_name="lanes")
    slope = fnx.grad(lambda x: jnp.sum(many(same, x)))(x)
    h = 1e-6
    for k in range(4):
        d = np.eye(4)[k] * h
        want = (jnp.sum(many(same, x + d)) - jnp.sum(many(same, x - d))) / (2 * h)
        np.testing.assert_allclose(slope[k], want, rtol=1e-7)


def test_a_bound_that_nobody_knows_still_works():
    def f(n, x):
        return lax.fori_loop(0, n, lambda i, y: jnp.sin(y + x), x)

    def plain(x):
        y = x
        for _ in range(4):
            y = jnp.sin(y + x)
        return y

    agree(fnx.jit(fnx.grad(f, 1))(4, 0.5), fnx.grad(plain)(0.5))
    agree(fnx.grad(f, 1)(4, 0.5), fnx.grad(plain)(0.5))


def test_memory_is_that_of_the_outer_state():
    """The triangular solve keeps vectors alone, no matrix of terms."""
    n = 64
    lower = np.tril(RNG.normal(size=(n, n)), -1) / n + np.eye(n)

    def f(lower, b):
        def row(i, x):
            s = lax.fori_loop(0, i, lambda j, s: s + lower[i, j] * x[j], 0.0)
            return x.at[i].set((b[i] - s) / lower[i, i])

        return jnp.sum(lax.fori_loop(0, n, row, jnp.zeros(n)) ** 2)

    compiled = fnx.jit(fnx.grad(f, (0, 1))).lower(lower, np.ones(n)).compile()
    assert compiled.memory_analysis().temp_size_in_bytes <= 8 * 8 * n


def test_intervals_hold():
    """Each interval holds for values at its ends."""
    rng = np.random.default_rng(2)

    def f(i, j):
        a = jnp.maximum(i - j, 2) * jnp.minimum(j, 5)
        b = (i + 1) % 3 - j // 2
        c = jnp.clip(a, i, j + 4)
        d = jnp.where(b < 0, b + 7, a)
        e = jnp.argmax(jnp.arange(6.0) * i)
        return a, b, c, d, e, -d, lax.rem(b, 4), lax.div(a, 3), jnp.sign(b)

    jaxpr = fnx.make_jaxpr(f)(1, 1).jaxpr
    from fnx.core.jaxpr import Jaxpr
    from fnx.interpreters.passes.simplify import simplify

    jaxpr = simplify(jaxpr)
    known = Intervals(zip(jaxpr.inputs, [(-3, 6), (0, 9)]))
    for e in jaxpr.eqns:
        known.add(e)
    assert sum(known.of(o) is not None for o in jaxpr.outs) == len(jaxpr.outs)
    assert isinstance(jaxpr, Jaxpr)
    assert all(isinstance(a, ShapedArray) for a in jaxpr.out_avals)
    for _ in range(100):
        values = f(int(rng.integers(-3, 7)), int(rng.integers(0, 10)))
        for o, value in zip(jaxpr.outs, values, strict=True):
            low, high = known.of(o)
            assert low <= int(value) <= high
