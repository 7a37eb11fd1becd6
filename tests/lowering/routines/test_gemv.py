"""fnx's own products of matrices and vectors: all remainders of blocks, both orders in memory."""

import ctypes
from itertools import product

import numpy as np
import pytest

import fnx as jax
import fnx.numpy as jnp
from fnx.lowering.cpu.kernels import library
from fnx.lowering.cpu.llvm import ir_vectors
from fnx.lowering.cpu.runtime import thread_pool

if not ir_vectors.exists("float64"):
    pytest.skip("this CPU has no vectors with masks", allow_module_level=True)

I, P = ctypes.c_int64, ctypes.c_void_p
KIND = ctypes.CFUNCTYPE(None, I, I, P, I, I, P, P)
# Shapes of which threads share runs of columns, of equal lengths or not.
LARGE = (1, 300_007), (5, 60_001), (600, 450), (4096, 65), (4097, 65)
EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52}


@pytest.mark.parametrize("by_rows", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainders_of_blocks(dtype, by_rows, bits):
    code = library.code.__wrapped__("gemv", dtype)
    f = KIND(code.addresses[library.name("gemv", dtype)])
    rng = np.random.default_rng(0)
    lengths = (1, 2, 7, 8, 12, 15, 16, 17, 31, 33, 129, 260)
    for m, k in [*product(lengths, lengths), (3, 5000), (5000, 3), (9000, 11), *LARGE]:
        shape = (m, k) if by_rows else (k, m)
        whole = rng.normal(size=(shape[0], shape[1] + 3)).astype(dtype)
        a = whole[:, 1 : 1 + shape[1]]
        a = a if by_rows else a.T
        x, y = rng.normal(size=k).astype(dtype), np.full(m + 2, 7, dtype)
        strides = [s // a.itemsize for s in a.strides]
        f(m, k, a.ctypes.data, *strides, x.ctypes.data, y[1:].ctypes.data)
        assert (y[[0, -1]] == 7).all()
        size = abs(a).astype("f8") @ abs(x).astype("f8")
        error = abs(y[1:-1] - a.astype("f8") @ x.astype("f8"))
        assert (error <= (4 + k / 8) * EPSILON[dtype] * size).all(), (m, k)


def test_threads_make_the_same_bits():
    a, x = np.random.default_rng(1).normal(size=(1500, 1100)), np.arange(1100.0)
    f = jax.jit(lambda a, x, y: (a @ x, y @ a))
    before, found = thread_pool.get_num_threads(), []
    try:
        for n in (1, 3):
            thread_pool.set_num_threads(n)
            found.append([np.asarray(v) for v in f(a, x, a[:, 0])])
    finally:
        thread_pool.set_num_threads(before)
    for one, three, want in zip(*found, (a @ x, a[:, 0] @ a), strict=True):
        np.testing.assert_array_equal(one, three)
        np.testing.assert_allclose(one, want, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nans_stay_in_their_row(dtype):
    a, x = np.ones((70, 90), dtype), np.ones(90, dtype)
    a[3, 5], a[41, 89] = np.nan, np.inf
    f = jax.jit(jnp.matmul)
    np.testing.assert_array_equal(f(a, x), a @ x)
    np.testing.assert_array_equal(f(x[:70], a), x[:70] @ a)


@pytest.mark.own_code
def test_products_of_programs_use_it():
    def f(a, x, y):
        stack = jnp.stack([a, 2 * a])
        return a @ x, y @ a, a.T @ y, jnp.einsum("bij,j->bi", stack, x), a[:, 3] @ a, a @ a[5, :60]

    a, x, y = np.ones((80, 60)), np.arange(60.0), np.arange(80.0)
    a[7, 9] = 3
    compiled = jax.jit(f).lower(a, x, y)
    assert "fnx_gemv_float64" in compiled.as_text("kernel")
    for got, want in zip(compiled.compile()(a, x, y), f(a, x, y), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)


@pytest.mark.own_code
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_multiplies_what_is_long_enough_to_be_read_in_vectors(dtype):
    """A matrix of few rows, too: loops would add up number by number what lies side by side."""
    a, x, y = np.ones((14, 56), dtype), np.arange(56, dtype=dtype), np.arange(14, dtype=dtype)
    a[3, 5] = 2
    f = lambda a, x: (a @ x, x @ a.T)
    lowered = jax.jit(f).lower(a, x)
    assert lowered.as_text("kernel").count(f"fnx_gemv_{dtype}") == 2
    for got in lowered.compile()(a, x):
        np.testing.assert_array_equal(got, a @ x)
    assert "fnx_gemv" not in jax.jit(jnp.matmul).lower(y, a[:, :14]).as_text("kernel")
