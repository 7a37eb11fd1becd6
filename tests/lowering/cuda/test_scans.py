"""Cumulative reductions: tiles in shared memory, parts of long rows, columns; orders that sizes decide."""

import numpy as np
import pytest
from launched import same, shapes

import fnx
import fnx.numpy as jnp
from fnx import lax

RNG = np.random.default_rng(0)
SCANS = {
    "cumsum": jnp.cumsum,
    "cumprod": jnp.cumprod,
    "cummax": lax.cummax,
    "cumlogsumexp": lax.cumlogsumexp,
}


@pytest.mark.parametrize(
    ("shape", "axis", "count"),
    [
        ((19,), 0, 1),  # some threads have no elements
        ((24,), 0, 1),  # a tile
        ((25,), 0, 2),  # tiles as parts: what each adds up to, and each again
        ((130,), 0, 2),  # of several tiles each
        ((11, 5), 1, 1),  # short rows share a block
        ((12, 30), 1, 1),  # a block goes through the tiles of a row
        ((2, 50), 1, 2),  # rows in parts
        ((3, 2, 7), 1, 1),  # columns
        ((13, 2), 0, 3),  # columns in parts
    ],
)
def test_rows_and_columns(gpu, shape, axis, count):
    x = jnp.asarray(RNG.normal(size=shape))
    gpu.watches = True
    for reverse in (False, True):
        f = lambda x, r=reverse: lax.cumsum(x, axis, reverse=r)
        same(f, x)
        kernels, _ = shapes(f, x)
        assert len([k for k in kernels if k != "single"]) == count
    assert not gpu.races


@pytest.mark.parametrize("name", SCANS)
def test_operations(gpu, name):
    same(lambda x: SCANS[name](x, 1), jnp.asarray(RNG.normal(size=(2, 26))))


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "uint32", "complex128"])
def test_dtypes(gpu, dtype):
    x = jnp.asarray(RNG.integers(-3, 4, (2, 26))).astype(dtype)  # partial sums are exact
    same(lambda x: jnp.cumsum(x, 1), x)


def test_special_values(gpu):
    x = jnp.asarray([-0.0, -0.0, 1.0, np.inf, 2.0, -np.inf, 1.0, np.nan, 3.0, -np.inf])
    for f in SCANS.values():
        same(f, x)
        same(f, x[6:8:-1])


def test_what_is_fused_with_them(gpu):
    x = jnp.asarray(RNG.normal(size=(3, 26)))
    same(lambda x: jnp.cumsum(jnp.sin(x), 1) * x, x)
    same(fnx.grad(lambda x: jnp.sum(jnp.cumsum(x * x, 1) ** 2)), x)


def test_no_long_scan_is_one_threads(gpu):
    for f in SCANS.values():
        assert "single" not in shapes(f, jnp.zeros(24))[0]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (lambda c: c / c[:, -1:])(jnp.cumsum(x, 1)),
        lambda x: jnp.cumsum(x, 1)[:, ::-1] * 2,
        lambda x: jnp.cumsum(fnx.nn.softmax(x, 1), 1),  # hands a sum on, too
        lambda x: jnp.cumsum(jnp.cumsum(x, 1), 1),
    ],
)
def test_rows_of_several_loops_are_scanned_by_blocks(gpu, f):
    x = jnp.asarray(1 + RNG.random((6, 26)))
    gpu.watches = True
    same(f, x)
    text = fnx.jit(f, backend="cuda").lower(x).as_text("cuda")
    assert "tile0 = cuda.shared.array" in text
    assert not gpu.races
