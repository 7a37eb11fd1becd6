"""Reductions whose rows are added to accumulators in memory, a few rows at a time.

Up to 16 rows are one expression.
"""

from functools import reduce

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

pytestmark = pytest.mark.usefixtures("checked")

RNG = np.random.default_rng(3)
SHAPES = [(r, n) for r in (17, 18, 19, 20, 33) for n in (63, 64, 100, 257)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "complex64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_added_in_order(shape, dtype):
    """To the bit."""
    x = (10 * RNG.normal(size=shape)).astype(dtype)
    found = fnx.jit(lambda x: x.sum(0, dtype=dtype))(x)
    np.testing.assert_array_equal(found, reduce(np.add, x))
    if dtype != "complex64":
        np.testing.assert_array_equal(fnx.jit(lambda x: x.max(0))(x), x.max(0))


@pytest.mark.parametrize("axis", [0, 1, (0, 1), (0, 2), (1, 2)])
@pytest.mark.parametrize("shape", [(19, 3, 100), (3, 21, 64), (2, 18, 70)])
def test_axes_of_boxes(shape, axis):
    x = RNG.normal(size=shape)
    np.testing.assert_allclose(
        fnx.jit(lambda x: (x * x).sum(axis))(x), (x * x).sum(axis), rtol=1e-13
    )


@pytest.mark.parametrize("rows", [17, 20, 23])
def test_several_results_and_what_is_stored(rows):
    """Values that others read are stored by the same loop, and two reductions share it."""

    def f(x, c):
        y = x * c
        return y, y.sum(0), y.min(0), y.argmax(0)

    x, c = RNG.normal(size=(rows, 90)), RNG.normal(size=90)
    for found, expected in zip(fnx.jit(f)(x, c), f(x, c)):
        np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_in_place():
    """The array that is reduced is overwritten on the way."""

    def f(x):
        def step(_, x):
            x = 0.5 * x + 1.0
            return x - x.sum(0) / 100

        return lax.fori_loop(0, 3, step, x)

    x = RNG.normal(size=(23, 80))
    expected = x
    for _ in range(3):
        expected = 0.5 * expected + 1.0
        expected = expected - expected.sum(0) / 100
    np.testing.assert_allclose(fnx.jit(f, donate_argnums=0)(jnp.asarray(x)), expected, rtol=1e-13)
    np.testing.assert_allclose(fnx.jit(f)(x), expected, rtol=1e-13)


def test_first_of_equal_numbers():
    x = np.zeros((22, 70))
    x[5], x[9] = 1.0, 1.0
    x[3, ::2] = np.nan
    np.testing.assert_array_equal(fnx.jit(lambda x: jnp.argmax(x, 0))(x), np.argmax(x, 0))


def test_gradient():
    x = RNG.normal(size=(21, 100))
    found = fnx.jit(fnx.grad(lambda x: jnp.sum(jnp.max(x, 0) * jnp.sum(x * x, 0))))(x)
    top = x == x.max(0)
    expected = top * (x * x).sum(0) + 2 * x * x.max(0)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_all_sizes_share_code():
    """Whether there are rows left over is not known to the code."""

    def f(x):
        return jnp.sum(jnp.cos(x) * 1.375, 0)

    fnx.jit(f)(np.ones((100, 90)))
    before = fnx.compile_stats()["kernels_compiled"]
    for rows in (101, 102, 103, 60, 33):
        x = np.linspace(0, 1, rows * 90).reshape(rows, 90)
        np.testing.assert_allclose(fnx.jit(f)(x), np.sum(np.cos(x) * 1.375, 0), rtol=1e-13)
    assert fnx.compile_stats()["kernels_compiled"] == before
