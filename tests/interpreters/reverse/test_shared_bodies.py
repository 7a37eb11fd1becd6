"""A body is traced once for all loops of it: what is made of it for one must not serve another."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

N = 9
RNG = np.random.default_rng(5)
A = jnp.asarray(RNG.normal(size=(N, N)) / 3 + np.eye(N))
XS = jnp.asarray(RNG.normal(size=(6, N)) / 3)


def outer_products(state, x):
    i, a = state
    h = jnp.tanh(a @ x)
    return (i + 1, a + 0.1 * jnp.outer(h, x)), jnp.sum(h**2)


def updates_in_place(state, x):
    i, a = state
    row = jnp.sin(a[i % N]) * jnp.sum(x)
    return (i + 1, a.at[(i + 2) % N].set(row + a[i])), row[0]


def rows_by_a_pivot(state, x):
    i, a = state
    row = lambda k, a: a.at[k].add(-0.1 * a[i] * jnp.where(k > i, a[k, 0], 0.1))
    return (i + 1, lax.fori_loop(0, N, row, jnp.tanh(a))), a[0, 0] * x[0]


def whole_arrays(state, x):
    i, a = state
    return (i + 1, jnp.sin(a + x) * (1 + 0.1 * i)), jnp.max(a)


def until_it_is_small(state, x):
    i, a = state
    halve = lambda s: (s[0] + 1, s[1] * jnp.cos(s[1]) / 2)
    count, a = lax.while_loop(lambda s: jnp.max(s[1]) > 0.3, halve, (i * 0, a + x))
    return (i + 1, a + jnp.tanh(a) * count), jnp.sum(a)


def anew(step):
    """The same body, of which nothing has been made yet."""

    def body(state, x):
        return step(state, x)

    return body


def python_scan(step, state, xs, reverse):
    ys = [None] * len(xs)
    for t in reversed(range(len(xs))) if reverse else range(len(xs)):
        state, ys[t] = step(state, xs[t])
    return state, jnp.stack(ys)


def loss(scan, step, first, length, reverse):
    def f(a, xs):
        (_, last), ys = scan(step, (jnp.asarray(first), a), xs[:length], reverse=reverse)
        return jnp.sum(jnp.cos(last)) + jnp.sum(ys * jnp.arange(1.0, length + 1))

    return f


# Where the counter starts, how many iterations, from which end.
LOOPS = [(0, 6, False), (0, 6, True), (-6, 6, False), (0, 3, False), (2, 3, True)]


@pytest.fixture
def eager(monkeypatch):
    """What is worth while for large arrays is done for these."""
    monkeypatch.setattr("fnx.core.policy.RESIDUAL_BYTES", 0)
    monkeypatch.setattr("fnx.core.policy.LOW_RANK_BYTES", 0)
    monkeypatch.setattr("fnx.core.policy.LOW_RANK_STACKS", 100)


@pytest.mark.parametrize(
    "step", [outer_products, updates_in_place, rows_by_a_pivot, whole_arrays, until_it_is_small]
)
def test_loops_of_one_body_in_any_order(step, eager):
    exact = {k: fnx.grad(loss(python_scan, step, *k), (0, 1))(A, XS) for k in LOOPS}
    pairs = [pair for k in LOOPS[1:] for pair in ((LOOPS[0], k), (k, LOOPS[0]))]
    for pair in pairs:
        body = anew(step)
        for k in pair:
            f = loss(lax.scan, body, *k)
            for g in (fnx.grad(f, (0, 1)), fnx.jit(fnx.grad(f, (0, 1)))):
                for found, expected in zip(g(A, XS), exact[k], strict=True):
                    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
            slope = fnx.jit(fnx.linearize(f, A, XS)[1])(A, XS)
            expected = sum(jnp.vdot(x, e) for x, e in zip((A, XS), exact[k]))
            np.testing.assert_allclose(slope, expected, rtol=1e-9)
