"""Stencils that wrap around: the ends of long rows are made in the loop over these."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.lowering.generate import boundary_regions

pytestmark = pytest.mark.usefixtures("checked")


def laplacian(np_, u, axes):
    return sum(np_.roll(u, s, a) for a in axes for s in (1, -1)) - 2 * len(axes) * u


@pytest.mark.parametrize("shape", [(50, 40), (33, 64), (20, 24, 40), (0, 40), (1, 50), (2, 3, 70)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "complex64", "int32", "bool"])
def test_the_ends_of_long_rows_are_made_with_these(shape, dtype):
    rng = np.random.default_rng(3)
    u, v = (rng.integers(0, 9, shape).astype(dtype) for _ in range(2))

    def step(np_, u, v):
        p, q = np_.roll(u, -2, -1) * v, np_.roll(v, 1, -1)
        return p + np_.roll(q, 3, 0) * np_.roll(u, -1, 0), np_.roll(q, -1, 0) * u + np_.roll(
            p, 1, -1
        )

    for got, wanted in zip(fnx.jit(lambda u, v: step(jnp, u, v))(u, v), step(np, u, v)):
        np.testing.assert_array_equal(got, wanted)


def test_regions_side_by_side_are_rows_where_rows_are_long():
    step = lambda u: u + 0.1 * laplacian(jnp, u, range(u.ndim))
    text = lambda *shape: fnx.jit(step).lower(jnp.ones(shape)).as_text("kernel")
    assert (
        text(40, 40, 40).count("kernel k") <= 5
    )  # the inside, and four slabs, with the ends of rows
    assert text(20, 20, 20).count("kernel k") > 5  # vectors go along the ends of short rows
    spans = [((1, 1), (9, 39)), ((1, 39), (9, 40)), ((0, 1), (1, 39)), ((1, 0), (9, 1))]
    row = [((1, 0), (9, 1)), ((1, 1), (9, 39)), ((1, 39), (9, 40))]
    assert boundary_regions.rows(spans) == [row, [((0, 1), (1, 39))]]
    assert boundary_regions.rows([((0,), (9,)), ((9,), (50,))]) == [[((0,), (9,))], [((9,), (50,))]]


def test_derivatives_of_rows_with_their_ends():
    u = np.random.default_rng(4).normal(size=(2, 21, 40))

    def energy(np_, u):
        for _ in range(2):
            u = u + 0.1 * np_.roll(u, 1, -1) * (np_.roll(u, -1, 0) - np_.roll(u, 1, 0))
        return (u**3).sum()

    f = lambda u: energy(jnp, u)
    slope = fnx.jit(fnx.vmap(fnx.grad(f)))(u)
    d = np.random.default_rng(5).normal(size=u.shape[1:])
    for k in range(2):
        ends = [energy(np, u[k] + h * d) for h in (1e-6, -1e-6)]
        np.testing.assert_allclose(np.vdot(slope[k], d), (ends[0] - ends[1]) / 2e-6, rtol=1e-6)
    curve = fnx.jit(lambda u: fnx.jvp(fnx.grad(f), (u,), (d,))[1])(u[0])
    with fnx.disable_jit():
        around = [fnx.grad(f)(u[0] + h * d) for h in (1e-6, -1e-6)]
    np.testing.assert_allclose(curve, (around[0] - around[1]) / 2e-6, rtol=1e-5, atol=1e-5)
