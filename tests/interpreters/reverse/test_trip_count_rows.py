"""Loops over the rows of sparse matrices, whose bounds are read from pointers: their derivatives."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import policy
from fnx.core.jaxpr import subjaxprs
from fnx.interpreters.passes.simplify import simplify

RNG = np.random.default_rng(11)
JIT = pytest.mark.parametrize("jit", [fnx.jit, lambda f: f])
COUNTS_OF_ROWS = RNG.integers(0, 5, 30)
POINTERS = np.concatenate([[0], np.cumsum(COUNTS_OF_ROWS)])
COLUMNS = np.array(
    [RNG.integers(0, max(i, 1)) for i in range(30) for _ in range(COUNTS_OF_ROWS[i])]
)
VALUES = RNG.normal(size=len(COLUMNS))


def sparse_chain(pointers, values, x):
    """A row takes up what rows before it gave."""

    def row(i, x):
        term = lambda k, s: jnp.sin(s) + values[k] * x[jnp.asarray(COLUMNS)[k]]
        return x.at[i].set(lax.fori_loop(pointers[i], pointers[i + 1], term, x[i]))

    return lax.fori_loop(0, 30, row, x)


def sparse_updates(pointers, values, x):
    """As a chain, but each term updates the array."""

    def row(i, x):
        term = lambda k, x: x.at[i].add(values[k] * jnp.sin(x[jnp.asarray(COLUMNS)[k]]))
        return lax.fori_loop(pointers[i], pointers[i + 1], term, x)

    return lax.fori_loop(0, 30, row, x)


@JIT
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("too_much", [True, False])
@pytest.mark.parametrize("f", [sparse_chain, sparse_updates])
def test_rows_of_sparse_matrices(f, too_much, closed, jit, monkeypatch):
    """Bounds that are read: from a constant, of which all numbers are known, or from an argument."""
    if too_much:
        monkeypatch.setattr(policy, "VIRTUAL_ROW_BYTES", 1)
    x = jnp.linspace(-1.0, 1.0, 30)

    def by_hand(values, x):
        for i in range(30):
            s = x[i]
            for k in range(POINTERS[i], POINTERS[i + 1]):
                if f is sparse_chain:
                    s = jnp.sin(s) + values[k] * x[int(COLUMNS[k])]
                else:
                    x = x.at[i].add(values[k] * jnp.sin(x[int(COLUMNS[k])]))
            x = x.at[i].set(s) if f is sparse_chain else x
        return jnp.sum(jnp.cos(x))

    expected = fnx.grad(by_hand, (0, 1))(jnp.asarray(VALUES), x)
    loss = lambda p, v, x: jnp.sum(jnp.cos(f(p, v, x)))
    if closed:
        found = jit(fnx.grad(lambda v, x: loss(jnp.asarray(POINTERS), v, x), (0, 1)))(VALUES, x)
    else:
        found = jit(fnx.grad(loss, (1, 2)))(jnp.asarray(POINTERS), VALUES, x)
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("f", [sparse_chain, sparse_updates])
def test_sums_over_all_iterations_are_not_begun_anew_in_each(f):
    """The cotangent of the values is one array, also where blocks of iterations add to it."""

    def inner(jaxpr, inside=False):
        for e in jaxpr.eqns:
            if (
                inside
                and e.prim.name == "broadcast_in_dim"
                and e.outs[0].aval.shape == VALUES.shape
            ):
                yield e
            for j in subjaxprs(e.prim):
                yield from inner(j, True)

    loss = lambda p, v, x: jnp.sum(jnp.cos(f(p, v, x)))
    jaxpr = fnx.make_jaxpr(fnx.grad(loss, 1))(POINTERS, VALUES, np.ones(30)).jaxpr
    assert list(inner(jaxpr))
    assert not list(inner(simplify(jaxpr, final=True)))
