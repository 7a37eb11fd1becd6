"""Sums of products: the operand is summed before the product."""

from itertools import combinations
from math import prod

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config
from fnx.core.jaxpr import check_jaxpr
from fnx.interpreters.passes.simplify import simplify

RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(3, 7, 2, 4)), RNG.normal(size=(4, 5, 3, 2))
DIMS = ((3,), (0,)), ((0,), (2,))  # the result: 3, 7, 2, 5, 2


def product(x, y):
    return lax.dot_general(x, y, DIMS)


def multiplications(f, *args):
    """Of all products that are left when a function is compiled."""
    jaxpr = simplify(fnx.make_jaxpr(f)(*args).jaxpr, final=True)
    check_jaxpr(jaxpr)
    found = [e for e in jaxpr.eqns if e.prim.name == "dot_general"]
    return sum(prod(e.outs[0].aval.shape) * X.shape[3] for e in found)


AXES = [axes for n in range(6) for axes in combinations(range(5), n)]


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_sums_over_any_axes(axes):
    f = lambda x, y: jnp.sum(product(x, y), axis=axes)
    expected = np.sum(np.asarray(product(X, Y)), axis=axes)
    with config.check():
        np.testing.assert_allclose(fnx.jit(f)(X, Y), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (2, 0, 4, 1, 3)], ids=str)
@pytest.mark.parametrize("axes", [(0,), (1, 3), (0, 2, 4), (1, 2, 3)], ids=str)
def test_what_is_transposed_and_negated_is_seen_through(order, axes):
    f = lambda x, y: jnp.sum(-jnp.transpose(-jnp.transpose(product(x, -y), order), order), axes)
    expected = np.sum(-np.asarray(product(X, Y)).transpose(order).transpose(order), axes)
    with config.check():
        np.testing.assert_allclose(fnx.jit(f)(X, Y), expected, rtol=1e-12, atol=1e-12)


def test_products_that_are_summed_have_fewer_rows():
    whole = 3 * 7 * 2 * 5 * 2 * 4
    count = lambda f: multiplications(f, X, Y)
    assert count(lambda x, y: jnp.sum(product(x, y), axis=0)) == whole  # along with others
    assert count(lambda x, y: jnp.sum(product(x, y), axis=(0, 1))) == whole // 7
    assert count(lambda x, y: jnp.sum(-product(x, y), axis=(1, 3, 4))) == whole // 70
    assert count(lambda x, y: (p := product(x, y), jnp.sum(p, axis=1))) == whole  # read besides


def test_narrow_sums_stay_as_they_are():
    x = np.full((300, 4), 1e3, np.float16)  # whose sum is too large for the dtype
    y = np.full((4, 3), 1e-3, np.float16)
    np.testing.assert_allclose(fnx.jit(lambda x, y: jnp.sum(x @ y, 0))(x, y), 1200, rtol=1e-2)


def test_gradients_by_what_all_rows_share():
    def loss(centre, weights, x):
        return jnp.sum(jnp.tanh((x - centre) @ weights) ** 2)

    args = RNG.normal(size=4), RNG.normal(size=(4, 3)), RNG.normal(size=(50, 4))
    gradient = fnx.grad(loss, (0, 1))
    with fnx.disable_jit():
        expected = gradient(*args)
    with config.check():
        found = fnx.jit(gradient)(*args)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11)
