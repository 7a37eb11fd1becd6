"""Reductions under a mask take the rounds that the mask lets through, and give what all rounds give."""

import re

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

N = 90
MASKS = {  # of an index, and of the counter of the loop around, which runs past both ends of the row
    "below": lambda i, k: i < k,
    "up to": lambda i, k: k >= i,
    "above": lambda i, k: i > k,
    "from": lambda i, k: k - 3 <= i,
    "mirrored": lambda i, k: 80 - i > k,
    "between": lambda i, k: (i >= k - 30) & (i < k + 5),
    "nowhere": lambda i, k: (i > k) & (i < k - 4),
}
REDUCTIONS = {
    "sum": lambda np, m, x: np.sum(np.where(m, x * x, 0.0)),
    "product": lambda np, m, x: np.prod(np.where(m, 1 + x / 100, 1.0)),
    "largest": lambda np, m, x: np.max(np.where(m, x, -np.inf)),
    "smallest": lambda np, m, x: np.min(np.where(m, x, np.inf)),
    "dot": lambda np, m, x: np.dot(np.where(m, x, 0.0), np.where(m, x + 1, 0.0)),
    "two": lambda np, m, x: np.sum(np.where(m, x, 0.0)) + np.max(np.where(m, x, -9.0)),
    "other value": lambda np, m, x: np.sum(np.where(m, x, 0.5)),
    "other factor": lambda np, m, x: np.sum(np.where(m, x, 0.0) * x),
}
ROUNDS = 120


def each_round(mask, reduction):
    def f(x, start):
        def step(k, out):
            m = MASKS[mask](jnp.arange(N), k + start)
            return out.at[k].set(REDUCTIONS[reduction](jnp, m, x[k % 4]))

        return lax.fori_loop(0, ROUNDS, step, jnp.zeros(ROUNDS))

    return f


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_masked_reductions_are_those_of_whole_rows(mask, reduction):
    x = np.random.default_rng(0).normal(size=(4, N))
    start = -10
    expected = [
        REDUCTIONS[reduction](np, MASKS[mask](np.arange(N), k + start), x[k % 4])
        for k in range(ROUNDS)
    ]
    found = fnx.jit(each_round(mask, reduction))(x, start)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("mask", "reduction", "shorter"),
    [
        (m, r, r != "other value" and r != "other factor")
        for m in MASKS
        for r in ("sum", "dot", "smallest")
    ]
    + [("below", "other value", False), ("below", "other factor", False)],
)
def test_only_idle_rounds_are_left_out(mask, reduction, shorter):
    text = fnx.jit(each_round(mask, reduction)).lower(np.ones((4, N)), 0).as_text("kernel")
    rounds = re.findall(r"for i\d+ < (.*) with a", text)
    assert rounds
    assert all((r != str(N)) == shorter for r in rounds), rounds


def test_infinite_elements_count_where_the_mask_only_makes_factors_zero():
    x = np.ones((4, N))
    x[:, -1] = np.inf
    found = fnx.jit(each_round("below", "other factor"))(x, 0)
    assert np.isnan(found[:N]).all()


def test_a_bound_that_is_read_and_lanes_of_bounds():
    bounds = np.array([0, 5, 90, 200, -3, 17])
    x = np.random.default_rng(0).normal(size=(len(bounds), N))

    def rows(x, bounds):
        row = lambda c, both: (c, jnp.sum(jnp.where(jnp.arange(N) < both[1], both[0], 0.0)))
        return lax.scan(row, 0, (x, bounds))[1]

    expected = np.array([r[: max(b, 0)].sum() for r, b in zip(x, bounds, strict=True)])
    np.testing.assert_allclose(fnx.jit(rows)(x, bounds), expected, atol=1e-13)
    several = fnx.jit(fnx.vmap(rows))(np.stack([x, 2 * x]), np.stack([bounds, bounds]))
    np.testing.assert_allclose(several, [expected, 2 * expected], atol=1e-12)
