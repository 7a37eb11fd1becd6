"""Inner loops that change row after row, all rows at once: gradients agree with those of unrolled loops."""

import functools

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import policy
from fnx.interpreters.passes import loop_vectorize
from fnx.interpreters.primitives import scan

N, M = 9, 7
RNG = np.random.default_rng(31)
A = RNG.normal(size=(N, M)) + 3.0 * np.eye(N, M)
SQUARE = RNG.uniform(-1, 1, (N, N)) / N + np.diag(RNG.uniform(1, 2, N))


def fori(low, high, body, start):
    return lax.fori_loop(low, high, body, start)


def unrolled(low, high, body, start):
    for i in range(low, high):
        start = body(i, start)
    return start


def outer(body):
    """A loop of few iterations around what is tested, to which the array is handed on."""

    @functools.wraps(body)
    def run(loop, a):
        return loop(0, 4, lambda k, a: body(loop, k, jnp.tanh(a)), a)

    return run


def lu_by_rows(loop, a):
    """Elimination, the multipliers in the places of zeros."""
    n = a.shape[1]
    index = jnp.arange(n)

    def pivot(k, a):
        def row(i, a):
            m = jnp.where(i > k, a[i, k] / a[k, k], 0.0)
            a = a.at[i].add(-m * jnp.where(index > k, a[k], 0.0))
            return a.at[i, k].set(jnp.where(i > k, m, a[i, k]))

        return loop(0, a.shape[0], row, a)

    return loop(0, n, pivot, a)


def orthogonal_columns(loop, a):
    """Modified Gram-Schmidt, column by column."""
    m = a.shape[1]

    def direction(k, state):
        a, q, r = state
        norm = jnp.sqrt(jnp.sum(a[:, k] ** 2))
        q = q.at[:, k].set(a[:, k] / norm)

        def column(j, state):
            a, r = state
            v = jnp.where(j > k, jnp.dot(q[:, k], a[:, j]), 0.0)
            return a.at[:, j].add(-v * q[:, k]), r.at[k, j].add(v)

        a, r = loop(0, m, column, (a, r.at[k, k].set(norm)))
        return a, q, r

    _, q, r = loop(0, m, direction, (a, jnp.zeros(a.shape), jnp.zeros((m, m))))
    return jnp.concatenate([q * jnp.arange(m), r])


@outer
def pivot_changes(loop, k, a):
    """Rows after the pivot's see what its own iteration left of it."""
    return loop(0, N, lambda i, a: a.at[i].set(0.7 * jnp.sin(a[i]) + 0.4 * a[k] * a[i]), a)


@outer
def pivot_added(loop, k, a):
    return loop(0, N, lambda i, a: a.at[i].add(0.3 * a[2 * k] * jnp.cos(a[i]) * (i - 1.0)), a)


@outer
def some_rows(loop, k, a):
    """The pivot is one of them in some iterations only."""
    return loop(2, N - 2, lambda i, a: a.at[i].add(0.3 * a[3 * k - 1] * a[i]), a)


@outer
def from_the_end(loop, k, a):
    def row(t, a):
        i = N - 1 - t
        return a.at[i].set(jnp.sin(a[i]) * a[k + 3] + 0.1 * t)

    return loop(0, N, row, a)


@outer
def columns(loop, k, a):
    def column(j, a):
        a = a.at[:, j].multiply(0.9) if loop is None else a.at[:, j].set(0.9 * a[:, j])
        share = jnp.sum(a[:, j] * a[:, j]) * 0.1
        return a.at[k, j].set(share * a[k, j]).at[:, j].add(share * jnp.sin(a[:, j]))

    return loop(0, M, column, a)


@outer
def slices(loop, k, a):
    def row(i, a):
        old = lax.dynamic_slice(a, (i, 0), (1, M))
        lead = lax.dynamic_slice(a, (k, 0), (1, M))
        return lax.dynamic_update_slice(a, old * lead + 0.1, (i, 0))

    return loop(0, N, row, a)


@outer
def out_of_bounds(loop, k, a):
    """Beyond the end is the last row, before the start one from the end."""
    return loop(0, N, lambda i, a: a.at[i].add(0.1 * a[4 * k] * a[-k - 1] ** 0 * jnp.sin(a[i])), a)


CASES = [
    lu_by_rows, orthogonal_columns, pivot_changes, pivot_added, some_rows, from_the_end, columns,
    slices, out_of_bounds,
]  # fmt: skip


def values(case):
    return jnp.asarray(SQUARE if case is lu_by_rows else A)


@pytest.fixture
def eager(monkeypatch):
    """Take rows at once however little that saves; a list of what was made."""
    found = []
    make = loop_vectorize.rows_at_once

    def noted(body, ranges):
        made = make(body, ranges)
        found.append(made)
        return made

    monkeypatch.setattr(policy, "RESIDUAL_BYTES", 0)
    monkeypatch.setattr(scan, "rows_at_once", noted)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda f: f.__name__)
def test_gradients_agree_with_those_of_unrolled_loops(case, eager):
    def slope(loop):
        return fnx.jit(fnx.grad(lambda a: jnp.sum(jnp.cos(case(loop, a)))))(values(case))

    found = slope(fori)
    if case is not out_of_bounds:
        assert any(made is not None for made in eager)
    np.testing.assert_allclose(found, slope(unrolled), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("firsts", [(0, -4), (-4, 0)])
def test_one_loop_from_several_places(firsts, eager):
    """Rows from the front and from the end, by the same function: what is known of one call's counter
    says nothing of another's.
    """

    def slopes(loop):
        def step(state, _):
            k, a = state
            row = lambda i, a: a.at[i].add(-0.1 * a[k] * jnp.where(i > k, a[i, 0], 0.1))
            return (k + 1, loop(0, N, row, jnp.tanh(a))), None

        def loss(a, first):
            return jnp.sum(jnp.cos(lax.scan(step, (first, a), None, length=4)[0][1]))

        return [fnx.grad(loss)(A, jnp.asarray(first)) for first in firsts]

    found, expected = slopes(fori), slopes(unrolled)
    assert any(made is not None for made in eager)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", [lu_by_rows, orthogonal_columns])
def test_what_is_kept_does_not_grow_with_the_rows(case):
    """A few times the matrix: less than one row for each iteration of the inner loop."""
    n = 60
    a = RNG.normal(size=(n, n)) + 3.0 * n * np.eye(n)
    compiled = fnx.jit(fnx.grad(lambda a: jnp.sum(case(fori, a) ** 2))).lower(a).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 8 * a.nbytes


def test_iterations_that_meet_stay_a_loop():
    """Each row reads the one before it, or adds to what all of them share."""

    def chain(k, a):
        return lax.fori_loop(1, N, lambda i, a: a.at[i].add(0.3 * a[i - 1]), a)

    def total(k, a):
        def row(i, s):
            a, t = s
            return a.at[i].add(t[0]), t.at[0].add(a[i, 0])

        return lax.fori_loop(0, N, row, (a, jnp.zeros(2)))[0]

    def whole(k, a):
        return lax.fori_loop(0, N, lambda i, a: a.at[i].add(0.1 * jnp.sum(a, 0)), a)

    for body in (chain, total, whole):
        made = fnx.make_jaxpr(lambda a, body=body: body(0, a))(jnp.asarray(A))
        assert loop_vectorize.rows_at_once(made.jaxpr, (None,)) is None
