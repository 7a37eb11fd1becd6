"""Sorting by many threads: merges by ranks, a kernel for each pass."""

import math

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

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


@pytest.mark.parametrize("n", [32, 33, 64, 100, 129])
def test_lengths(gpu, n):
    x = jnp.asarray(RNG.normal(size=n))
    same(jnp.sort, x)
    text = fnx.jit(jnp.sort).lower(x).as_text("cuda")
    assert f"# {math.ceil(math.log2(n)) - 2} times\n" in text  # and the first pass, and the last
    assert text.count("_sort(") == 3
    assert {name for name, *_ in gpu.made("cubin")} >= {"k1_sort", "k3_sort", "k5_sort"}


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
