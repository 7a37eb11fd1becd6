"""Reductions are cut until all threads have a part; what one thread does with a sum ends its kernel."""

import numpy as np
import pytest
from launched import same, shapes

import fnx.numpy as jnp
from fnx import lax

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(40, 5), (41, 5), (70, 3), (300, 2), (33, 1), (64, 24)])
def test_columns_in_parts(gpu, shape):
    gpu.watches = True
    x = RNG.normal(size=shape)
    kinds, _ = shapes(lambda x: x.sum(0), x)
    assert len(kinds) == (1 if shape[1] == 24 else 2)
    same(lambda x: (x.sum(0), (x * x).max(0), (x * 9).astype(int).min(0), (x > 0).any(0)), x)
    same(lambda x: (x * (1 + 2j)).sum(0), x)
    assert not gpu.races


def test_scalars_end_the_kernel_before(gpu):
    gpu.watches = True
    x = RNG.normal(size=400)
    for f, count in (
        (jnp.sum, 2),
        (lambda x: (x.mean(), x.var()), 4),
        (lambda x: x.max() * 2 - 1, 2),
    ):
        kinds, _ = shapes(f, x)
        assert kinds == ["block"] * count
        same(f, x)
    assert not gpu.races


def test_scalars_of_loops_and_branches(gpu):
    gpu.watches = True
    x = RNG.normal(size=90)
    same(lambda x: lax.fori_loop(0, 5, lambda i, c: c + (x * c).sum() / (i + 9), 1.0), x)
    same(
        lambda x: lax.while_loop(lambda c: (x * c).max() < 9, lambda c: c + (x * x).mean(), 1.0), x
    )
    same(lambda x: lax.cond(x.sum() > 0, lambda v: (v * 2).sum() + v[3], lambda v: v.min(), x), x)
    assert not gpu.races


def test_columns_are_told_from_what_is_the_same_in_each(gpu):
    x, v = RNG.normal(size=(70, 24)), RNG.normal(size=70)
    kinds, _ = shapes(lambda x, v: (x * v[:, None]).sum(0), x, v)
    assert kinds == ["flat"]
    same(lambda x, v: (x * v[:, None]).sum(0), x, v)
    same(lambda x, v: (x * v[: x.shape[1]]).sum(1), x, v)


def test_extrema_of_complex_numbers_in_parts(gpu):
    z = RNG.normal(size=(400, 2)) @ np.array([1, 1j])
    for f in (lax.reduce_max, lax.reduce_min):
        same(lambda z, f=f: f(z, (0,)), z)
        same(lambda z, f=f: f(z.reshape(40, 10), (1,)), z)
