"""What a loop overwrites in an array of zeros, each place once, is not stacked."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.jaxpr import check_jaxpr
from fnx.interpreters.passes.constant_residuals import without_known_stacks
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.primitives.scan import Scan

N = 20
A = jnp.asarray(np.random.default_rng(5).normal(size=(N, N)) / N + 2 * np.eye(N))


def by_columns(a):
    def column(j, l):
        return l.at[:, j].set(jnp.sin(a[:, j]) + l @ a[j])

    return lax.fori_loop(0, N, column, jnp.zeros((N, N)))


def by_slices_backwards(a):
    def row(k, x):
        i = N - 1 - k
        new = jnp.sin(lax.dynamic_slice(a, (i, 0), (1, N)) @ x)
        return lax.dynamic_update_slice(x, 1.0 + new, (i, 0))

    return lax.fori_loop(3, N, row, jnp.full((N, N), 0.5))


def the_same_row_twice(a):
    """Rows are written again in later iterations."""

    def row(i, x):
        return x.at[i // 2].set(jnp.sin(a[i] * x[i // 2] + x[0]))

    return lax.fori_loop(0, N, row, jnp.zeros((N, N)))


def ahead_of_itself(a):
    """An iteration reads a row of zeros that it overwrites, and spoils the next one."""

    def row(i, x):
        x = x.at[i].set(jnp.sin(a[i] + x[i] * x[0]))
        return x.at[jnp.minimum(i + 1, N - 1)].add(0.1 * a[i] * x[i])

    return lax.fori_loop(0, N, row, jnp.zeros((N, N)))


def wrapped_around(a):
    """Negative indices: the range says nothing about the places."""

    def row(i, x):
        return x.at[i].set(jnp.sin(a[i] * x[i - 1] + 0.1 * x[i]))

    return lax.fori_loop(-N // 2, N // 2 + 3, row, jnp.zeros((N, N)))


PROGRAMS = [by_columns, by_slices_backwards, the_same_row_twice, ahead_of_itself, wrapped_around]


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients_stay(f):
    loss = lambda a: jnp.sum(jnp.cos(f(a)) * A)
    with fnx.disable_jit():
        expected = np.asarray(fnx.grad(loss)(A))
    with fnx.core.config.check():
        found = np.asarray(fnx.jit(fnx.grad(loss))(A))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
    d = np.cos(np.arange(N * N)).reshape(N, N)
    slope = (float(loss(A + 1e-6 * d)) - float(loss(A - 1e-6 * d))) / 2e-6
    np.testing.assert_allclose(np.sum(found * d), slope, rtol=1e-5, atol=1e-7)


def dropped(f):
    """How many stacks of the loops of a gradient are found to be known."""
    jaxpr = simplify(fnx.make_jaxpr(fnx.grad(lambda a: jnp.sum(f(a) ** 2)))(A).jaxpr)
    small = without_known_stacks(jaxpr)
    check_jaxpr(small)
    before, after = (
        sum(len(e.outs) for e in j.eqns if isinstance(e.prim, Scan)) for j in (jaxpr, small)
    )
    return before - after


@pytest.mark.parametrize(
    ("f", "count"), list(zip(PROGRAMS, [1, 1, 0, 0, 0])), ids=[f.__name__ for f in PROGRAMS]
)
def test_only_what_no_iteration_wrote_before_is_known(f, count):
    assert dropped(f) == count
