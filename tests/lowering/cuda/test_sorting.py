"""Sorting by many threads: tiles in shared memory, and passes that merge them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from launched import shapes

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.lowering.cuda.kernels.thresholds import SIMULATED

RNG = np.random.default_rng(0)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5])


def keys(n, dtype):
    if dtype.startswith("float") or dtype == "bfloat16":
        return jnp.asarray(RNG.choice(SPECIAL, n)).astype(dtype)
    return jnp.asarray(RNG.integers(0, 7, n)).astype(dtype)  # many are equal


def same(f, *args):
    got, wanted = fnx.jit(f, backend="cuda")(*args), f(*args)
    for a, b in zip(*map(fnx.tree.leaves, (got, wanted)), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        a, b = (np.asarray(x).astype("f8") for x in (a, b))
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(np.signbit(a), np.signbit(b))


TILE = 24  # elements


@pytest.mark.parametrize("n", [32, 48, 49, 100, 193])
def test_lengths(gpu, n):
    x = jnp.asarray(RNG.normal(size=n))
    gpu.watches = True
    same(jnp.sort, x)
    text = fnx.jit(jnp.sort, backend="cuda").lower(x).as_text("cuda")
    assert f"# {math.ceil(math.log2(math.ceil(n / TILE)))} times\n" in text
    assert not gpu.races


@pytest.mark.parametrize(("rows", "n"), [(3, 40), (5, 33), (2, 50)])
def test_rows(gpu, monkeypatch, rows, n):
    """Several in a block, one in a block, and those of several tiles."""
    from fnx.lowering.cuda import backend

    most = replace(SIMULATED, threads=32 if n == 33 else 16 if n == 40 else 8)
    monkeypatch.setattr(backend, "limits", lambda: most)
    x = jnp.asarray(RNG.normal(size=(rows, n)))
    gpu.watches = True
    same(lambda x: jnp.sort(x, 1), x)
    kernels, _ = shapes(lambda x: jnp.sort(x, 1), x)
    assert kernels == ["block"] if n < 50 else kernels.count("block") == 3
    assert not gpu.races


@pytest.mark.parametrize("k", [1, 3, 40, 50])
@pytest.mark.parametrize("dtype", ["float64", "float16", "int32"])
def test_top_k(gpu, k, dtype):
    x = keys(150, dtype).reshape(3, 50)
    same(lambda x: lax.top_k(x, k), x)
    assert not [grid for name, grid, block in gpu.made("launch") if "top_k" in name]


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "bfloat16", "int32", "uint8", "bool"]
)
def test_equal_keys_and_special_values_stay_in_order(gpu, dtype):
    same(lambda x: (jnp.sort(x), jnp.argsort(x, stable=True)), keys(50, dtype))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_axes(gpu, axis):
    shape = [2, 3, 2]
    shape[axis] = 40
    same(lambda x: jnp.sort(x, axis), jnp.asarray(RNG.normal(size=shape)))


def test_several_keys(gpu):
    a, b, c = keys(45, "int32"), keys(45, "float64"), jnp.arange(45)
    same(lambda a, b, c: lax.sort((a, b, c), num_keys=2), a, b, c)


def test_what_follows_sorting(gpu):
    x = jnp.asarray(RNG.normal(size=60))
    same(lambda x: (jnp.sort(-x)[::-1], jnp.median(x), jnp.unique(x, size=60)), x)
    same(fnx.grad(lambda x: jnp.sum(jnp.sort(x) * jnp.arange(60.0))), x)


def test_sorts_in_loops_and_branches(gpu):
    """Where other statements are around, whole blocks sort all the same."""
    x = jnp.asarray(RNG.normal(size=50))
    for f in (
        lambda x: lax.fori_loop(0, 3, lambda i, v: jnp.sort(v * -1.5), x),
        lambda x: lax.cond(x[0] > 9, lambda v: v * 2, jnp.sort, x),
        lambda x: lax.map(jnp.sort, jnp.stack([x[:40], x[10:]])),
    ):
        same(f, x)
    assert "_sort" in {name[2:7] for name, *_ in gpu.made("launch")}
