"""fnx's own products of matrices: all shapes at the edges of tiles and blocks, all layouts."""

import ctypes
from itertools import product

import numpy as np
import pytest

import fnx as jax
import fnx.numpy as jnp
from fnx.lowering.cpu.kernels import gemm, library
from fnx.lowering.cpu.llvm import ir_vectors
from fnx.lowering.cpu.processor import features
from fnx.lowering.cpu.runtime import thread_pool

if not ir_vectors.exists("float64"):
    pytest.skip("this CPU has no vectors with masks", allow_module_level=True)

I, P = ctypes.c_int64, ctypes.c_void_p
KIND = ctypes.CFUNCTYPE(None, I, I, I, P, I, I, P, I, I, P, I, P)
TOLERANCE = {"float32": 1e-5, "float64": 3e-14}


def routines(dtype, bits):
    """gemm and gemm_minus for vectors of so many bits; LLVM splits those that this CPU does not have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(features, "vector_bits", lambda: bits)
        found = library.code.__wrapped__("gemm", dtype).addresses
    return [KIND(found[library.name(which, dtype)]) for which in ("gemm", "gemm_minus")]


def multiply(f, a, b, start=7):
    """What becomes of a matrix of `start`, with marks around what may be written."""
    (m, k), n, dtype = a.shape, b.shape[1], a.dtype.name
    out = np.full((m + 2, n + 3), 7, dtype)
    out[1:-1, :n] = start
    in_place = b.strides[1] == b.itemsize and gemm.reads_in_place(m, n, k, dtype)
    elements = 0 if in_place else gemm.work_elements(n, k, dtype)
    work = np.full(elements + 1, 3, dtype)

    def given(x):
        return x.ctypes.data, *(s // x.itemsize for s in x.strides)

    c = out[1:-1, :n]
    f(m, n, k, *given(a), *given(b), c.ctypes.data, n + 3, work.ctypes.data)
    assert (out[[0, -1]] == 7).all()
    assert (out[:, n:] == 7).all()
    assert work[-1] == 3
    return c


def matrix(rng, shape, dtype, transposed):
    """A matrix whose rows, or columns, are contiguous and lie apart."""
    shape = shape[::-1] if transposed else shape
    whole = rng.normal(size=(shape[0], shape[1] + 5)).astype(dtype)
    x = whole[:, 2 : 2 + shape[1]]
    return x.T if transposed else x


@pytest.mark.parametrize("bits", [256, 512])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_edges_of_tiles_and_blocks(dtype, bits):
    f, minus = routines(dtype, bits)
    rng = np.random.default_rng(0)
    sizes = product((1, 2, 7, 8, 9, 90), (1, 7, 8, 17, 50, 200, 400), (1, 3, 16, 31, 256, 300))
    for (m, n, k), left, right in product(sizes, (False, True), (False, True)):
        a, b = matrix(rng, (m, k), dtype, left), matrix(rng, (k, n), dtype, right)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(features, "vector_bits", lambda: bits)
            c, rest = multiply(f, a, b), multiply(minus, a, b, start=2)
        expected = a.astype("f8") @ b.astype("f8")
        for found in c, 2 - rest:
            error = np.abs(found - expected).max() / np.sqrt(k)
            assert error < TOLERANCE[dtype], (m, n, k, left, right)


@pytest.mark.parametrize("f", [lambda a, b: a @ b, lambda a, b: a.T @ b, lambda a, b: a @ b.T])
def test_threads_make_the_same_bits(f):
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 500, 500))
    same_bits(f, a, b)


@pytest.mark.parametrize("m", [3, 20, 32])
@pytest.mark.parametrize("n", [500, 1001])
def test_threads_share_columns_of_few_rows(m, n):
    rng = np.random.default_rng(1)
    same_bits(lambda a, b: a @ b, rng.normal(size=(m, 700)), rng.normal(size=(700, n)))


def same_bits(f, a, b):
    before = thread_pool.get_num_threads()
    try:
        found = []
        for n in (1, 3):
            thread_pool.set_num_threads(n)
            found.append(np.asarray(jax.jit(f)(a, b)))
    finally:
        thread_pool.set_num_threads(before)
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], f(a, b), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nans_stay_in_their_row_and_column(dtype):
    a, b = np.ones((2, 60, 60), dtype)
    a[3, 5], b[7, 50] = np.nan, np.inf
    found = np.asarray(jax.jit(jnp.matmul)(a, b))
    np.testing.assert_array_equal(found, a @ b)


@pytest.mark.own_code
def test_products_of_programs_use_it():
    def f(a, b, c):
        return a @ b + (c.T @ a).T, jnp.einsum("bij,bjk->bik", jnp.stack([a, b]), jnp.stack([c, a]))

    a, b, c = np.random.default_rng(2).normal(size=(3, 40, 40))
    compiled = jax.jit(f).lower(a, b, c)
    assert "fnx_gemm_float64" in compiled.as_text("kernel")
    first, second = compiled.compile()(a, b, c)
    np.testing.assert_allclose(first, a @ b + (c.T @ a).T, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(second, np.stack([a @ c, b @ a]), rtol=1e-12, atol=1e-12)
