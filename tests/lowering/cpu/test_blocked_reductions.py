"""Reductions over lanes to more results than registers hold: a few at a time, strip by strip."""

from dataclasses import replace

import numpy as np
import pytest
from small_problems import agrees, kernels, normal

import fnx as jax
import fnx.numpy as jnp
from fnx.core import config
from fnx.lowering.cpu.processor import thresholds


@pytest.fixture(autouse=True)
def checked():
    with config.check():
        yield


def clusters(centres, points):
    distance = jnp.sum((points[:, None, :] - centres[None, :, :]) ** 2, axis=-1)
    return jnp.sum(jnp.min(distance, axis=1) ** 1.5)


def slope(centres, points):
    return jax.grad(clusters)(centres, points)


def curvature(centres, points, direction):
    """The gradient, and the Hessian times a direction."""
    return jax.jvp(lambda c: slope(c, points), (centres,), (direction,))


# Fewer points than a strip has; a strip; one more; parts that threads share, the last one short.
COUNTS = (17, 32, 33, 129, 5001)


@pytest.mark.parametrize("n", COUNTS)
def test_every_number_of_rounds(n):
    agrees(slope, normal(16, 4), normal(n, 4, seed=1))


@pytest.mark.parametrize("n", COUNTS)
def test_several_sums_in_one_pass(n):
    agrees(curvature, normal(9, 3), normal(n, 3, seed=1), normal(9, 3, seed=2))


def likelihood(means, factor, points):
    """Of points under a mixture, whose gradient by the factors is sums of outer products."""
    white = jnp.einsum("kij,nkj->nki", jnp.tril(factor), points[:, None, :] - means)
    return -jnp.sum(jax.nn.logsumexp(-0.5 * jnp.sum(white**2, axis=-1), axis=1))


def likelihood_slope(means, factor, points):
    return jax.grad(likelihood, (0, 1))(means, factor, points)


@pytest.fixture
def however_few(monkeypatch):
    """Lanes need not be so many that what they multiply would not stay in cache."""
    monkeypatch.setattr(thresholds, "CPU", replace(thresholds.CPU, far_batch=0))


@pytest.mark.parametrize("n", COUNTS)
def test_outer_products_of_all_lanes(n, however_few):
    args = normal(3, 6), normal(3, 6, 6, seed=1), normal(n, 6, seed=2)
    agrees(likelihood_slope, *args, rtol=1e-10)


LAYOUTS = {
    "lanes first": lambda x, m: jnp.einsum(
        "nki,nkj->kij", x[:, None] - m, jnp.tanh(x[:, None] * m)
    ),
    "lanes last": lambda x, m: jnp.einsum("kin,kjn->ijk", x.T - m[:, :, None], x.T * m[:, :, None]),
    "one factor": lambda x, m: jnp.einsum("nki,nkj->kji", x[:, None] - m, x[:, None] - m),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "complex128", "int64"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_products_of_several_matrices(layout, dtype, however_few):
    x, m = (2 * normal(131, 7)).astype(dtype), (2 * normal(3, 7, seed=1)).astype(dtype)
    rtol = {"float16": 5e-2, "float32": 1e-3}.get(dtype, 1e-9)
    agrees(LAYOUTS[layout], x, m, rtol=rtol)


def test_what_is_not_finite_stays_in_its_products(however_few):
    x, m = normal(131, 7), normal(3, 7, seed=1)
    x[130, 3] = np.nan
    agrees(LAYOUTS["one factor"], x, m)


def test_products_in_a_loop_that_overwrites_what_they_are_made_of(however_few):
    def f(x, m):
        def step(_, state):
            x, total = state
            return x[::-1] * 0.9, total + LAYOUTS["lanes first"](x, m)

        return jax.lax.fori_loop(0, 3, step, (x, jnp.zeros((3, 7, 7))))

    agrees(f, normal(131, 7), normal(3, 7, seed=1), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("d", [12, 13])
def test_products_with_as_many_results_as_a_loop_takes_and_more(d, however_few):
    x, m = normal(50, d), normal(4, d, seed=1)
    agrees(LAYOUTS["one factor"], x, m, rtol=1e-10)
    text = jax.jit(LAYOUTS["one factor"]).lower(x, m).as_text("kernel")
    assert ("library" in text) == (4 * d * d > thresholds.CPU.batch_sums)


@pytest.mark.slow
def test_outer_products_of_all_lanes_go_through_no_memory():
    args = normal(5, 10), normal(5, 10, 10, seed=1), normal(5000, 10, seed=2)
    count, workspace = kernels(likelihood_slope, *args)
    assert count <= 6
    assert workspace < args[2].nbytes
    text = jax.jit(likelihood_slope).lower(*args).as_text("kernel")
    assert "library" not in text


@pytest.mark.parametrize("dtype", ["float32", "complex128", "int64", "float16"])
def test_other_dtypes(dtype):
    x = abs(8 * normal(300, 6)).astype(dtype)
    f = lambda x: jnp.sum(x[:, :, None] * jnp.cumsum(x, axis=1)[:, None, :], axis=0)
    agrees(f, x, rtol=1e-2 if dtype == "float16" else 1e-5)


def test_extrema_of_many_values():
    x = normal(700, 5)
    f = lambda x: (
        jnp.max(x[:, :, None] * x[:, None, :], axis=0),
        jnp.min(x[:, :, None] - x[:, None, :], 0),
    )
    agrees(f, x)


def test_values_that_are_stored_too_are_stored_once_for_all_rounds():
    def f(x):
        y = jnp.sin(x[:, :, None] * x[:, None, :])
        return jnp.sum(y, axis=0), y

    agrees(f, normal(145, 5))


def test_what_is_not_finite_stays_in_its_sums():
    points = normal(200, 4)
    points[3, 1], points[150, 2] = np.nan, np.inf
    agrees(slope, normal(16, 4), points)


def test_sums_inside_of_loops():
    def descend(centres, points):
        return jax.lax.fori_loop(0, 5, lambda _, c: c - 1e-4 * slope(c, points), centres)

    agrees(descend, normal(16, 4), normal(300, 4, seed=1), rtol=1e-10)


@pytest.mark.slow
def test_gradients_of_clusters_store_nothing_for_each_point():
    centres, points = normal(16, 4), normal(5000, 4, seed=1)
    count, workspace = kernels(slope, centres, points)
    assert count <= 3
    assert workspace < points.nbytes
    count, workspace = kernels(curvature, centres, points, centres)
    assert count <= 3
    assert workspace < points.nbytes


def test_what_waits_for_the_nearest_centre_is_computed_again_in_a_loop_of_its_own():
    text = jax.jit(curvature).lower(normal(16, 4), normal(5000, 4), normal(16, 4)).as_text("kernel")
    loops = text.count("# vector\n")
    text = jax.jit(slope).lower(normal(16, 4), normal(5000, 4)).as_text("kernel")
    assert loops == text.count("# vector\n") + 1


@pytest.mark.slow
def test_numbers_that_all_rounds_share_multiply_sums():
    def f(x, c):
        w = x / jnp.sqrt(jnp.sum(x**2, axis=1, keepdims=True))
        return jnp.sum(w[:, :, None] * c, 0), jnp.sum(2.0 * (w * w)[:, :, None] * (-4.0 * c), 0)

    for n in COUNTS:
        agrees(f, normal(n, 6), normal(6, 5))
    text = jax.jit(f).lower(normal(500, 6), normal(6, 5)).as_text("kernel")
    products = [line for line in text.splitlines() if "in1[" in line]
    assert len(products) == 60
    assert all(line.startswith("  out") for line in products)  # in no loop


def test_results_that_take_the_place_of_what_they_are_made_of():
    def f(x, c):
        w = x / jnp.sqrt(jnp.sum(x**2, axis=1, keepdims=True))

        def step(_, c):
            return jnp.sum(w[:, :, None] * c, 0)[::-1], jnp.sum(c) * 1e-3

        return jax.lax.fori_loop(0, 4, lambda k, s: step(k, s[0]), (c, 0.0))

    for n in COUNTS:
        agrees(f, 0.1 * abs(normal(n, 6)), normal(6, 6))


@pytest.mark.slow
def test_totals_of_several_kinds():
    def f(x):
        y = jnp.tanh(x[:, :, None] * x[:, None, :])
        few = y.astype(jnp.float32)
        return jnp.sum(y, 0), jnp.max(y, 0), jnp.sum(few, 0)

    for n in COUNTS:
        agrees(f, normal(n, 5), rtol=1e-4)
    text = jax.jit(f).lower(normal(5001, 5)).as_text("kernel")
    assert text.count("reassociate") == 3  # one loop joins the partial totals of each kind


@pytest.mark.slow
def test_terms_with_several_powers_of_two_before_them():
    def f(x):
        x = x / jnp.sqrt(jnp.sum(x**2, axis=1, keepdims=True))
        y = x[:, :, None] * x[:, None, :]
        return jnp.sum(2.0 * (y * x[:, :1, None]) - 4.0 * jnp.tanh(y), 0), jnp.sum(-8.0 * y, 0)

    for n in COUNTS:
        agrees(f, normal(n, 5))


def test_curvature_at_ties():
    points = np.zeros((50, 2))
    centres = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [2.0, 2.0], *np.ones((5, 2))])
    agrees(curvature, centres, points, normal(9, 2))
    agrees(curvature, np.ones((9, 2)), points, normal(9, 2))


def test_ties_share_their_slope():
    points = np.zeros((50, 2))
    centres = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [2.0, 2.0]])
    each = jax.jit(slope)(centres, points)
    third = 50 * 1.5 * 2.0 / 3.0
    np.testing.assert_allclose(each, third * np.array([[1, 0], [0, 1], [1, 0], [0, 0]]))


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
def test_products_that_sum_over_all_lanes(dtype):
    def f(x, w):
        y = jnp.tanh(x[:, None, :] * w)
        z = jnp.sum(y, axis=-1)
        return jnp.einsum("nki,nkj->kij", y, x[:, None, :] - w), jnp.einsum("nki,nk->i", y, z)

    for n in COUNTS:
        agrees(f, normal(n, 3).astype(dtype), normal(4, 3).astype(dtype), rtol=1e-4)


def mixture(factors, points):
    """Points under a mixture of normal distributions, from their inverse square roots."""
    white = jnp.einsum("kij,nj->nki", factors, points)
    return jnp.sum(jax.nn.logsumexp(-0.5 * jnp.sum(white**2, axis=-1), axis=1))


def test_gradients_of_small_matrices_store_nothing_for_each_point():
    factors, points = normal(10, 2, 2), normal(3000, 2)
    agrees(jax.grad(mixture), factors, points)
    count, workspace = kernels(jax.grad(mixture), factors, points)
    assert count == 1
    assert workspace < points.nbytes
    assert "fnx_gemm" not in jax.jit(jax.grad(mixture)).lower(factors, points).as_text("kernel")
    larger = normal(6, 8, 8), normal(300, 8)
    agrees(jax.grad(mixture), *larger)
    assert "fnx_gemm" in jax.jit(jax.grad(mixture)).lower(*larger).as_text("kernel")
