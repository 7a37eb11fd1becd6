"""Matrices that loops of loops read and sum up by columns lie there transposed."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.jaxpr import check_jaxpr
from fnx.interpreters.passes.layout_assignment import transposed_columns
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.primitives.scan import Scan
from fnx.ops.base.permute import Transpose

RNG = np.random.default_rng(1)
A, C = RNG.normal(size=(20, 17)), RNG.normal(size=(20, 20))


def rank_k(c, a):
    """Terms of a a^T, row by row."""

    def row(i, c):
        term = lambda k, c: c.at[i].add(a[i, k] * a[:, k])
        return lax.fori_loop(0, a.shape[1], term, c)

    return lax.fori_loop(0, a.shape[0], row, c)


def rows_and_columns(c, a):
    """The matrix is read both ways, and once as a whole."""

    def row(i, total):
        column = lambda k, t: t + jnp.sum(jnp.sin(a[:, k]) * c[:, i]) * a[i, k] * jnp.sum(a[i])
        return total + lax.fori_loop(0, a.shape[1], column, 0.0) + a[i, 0] * jnp.max(a)

    return lax.fori_loop(0, a.shape[0], row, 0.0)


def swaps(jaxpr):
    return sum(isinstance(e.prim, Transpose) for e in jaxpr.eqns)


@pytest.mark.parametrize("f", [rank_k, rows_and_columns], ids=lambda f: f.__name__)
def test_gradients_stay(f):
    loss = lambda c, a: jnp.sum(jnp.cos(f(c, a)))
    gradient = fnx.grad(loss, (0, 1))
    with fnx.disable_jit():
        expected = gradient(C, A)
    with fnx.core.config.check():
        found = fnx.jit(gradient)(C, A)
    for x, y in zip(found, expected):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-9, atol=1e-10)


def test_columns_read_and_summed_in_inner_loops_are_made_rows():
    jaxpr = fnx.make_jaxpr(fnx.grad(lambda a: jnp.sum(rank_k(C, a) ** 2)))(A).jaxpr
    small = simplify(jaxpr, True)
    check_jaxpr(small)
    assert swaps(small) >= 2, "the matrix before the loops, its cotangent after them"
    for outer in (e.prim.jaxpr for e in small.eqns if isinstance(e.prim, Scan)):
        for inner in (e.prim.jaxpr for e in outer.eqns if isinstance(e.prim, Scan)):
            for e in inner.eqns:
                if e.prim.name == "dynamic_slice":
                    assert e.prim.slice_sizes != (20, 1)
                if e.prim.name == "dynamic_slice_add":
                    assert e.inputs[1].aval.shape != (20, 1)


def test_columns_that_are_touched_once_are_left():
    once = lambda a: lax.fori_loop(0, 17, lambda k, s: s + jnp.sin(a[:, k]), jnp.zeros(20))
    jaxpr = simplify(fnx.make_jaxpr(once)(A).jaxpr)
    assert transposed_columns(jaxpr) is jaxpr


def test_a_sum_that_is_read_is_left():
    """Its rows are read while its columns are added to."""

    def row(i, c):
        return lax.fori_loop(0, 20, lambda k, c: c.at[:, k].add(c[i] * A[:, 0]), c)

    jaxpr = simplify(fnx.make_jaxpr(lambda c: lax.fori_loop(0, 20, row, c))(C).jaxpr)
    assert transposed_columns(jaxpr) is jaxpr
