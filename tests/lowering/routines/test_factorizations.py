"""fnx's own factors of dense matrices and triangular systems: all sizes at the edges of blocks."""

import ctypes
from itertools import product

import numpy as np
import pytest
import scipy.linalg

from fnx.lowering.cpu.kernels import factorizations, library, lu
from fnx.lowering.cpu.llvm import ir_vectors
from fnx.lowering.cpu.processor import features

if not ir_vectors.exists("float64"):
    pytest.skip("this CPU has no vectors with masks", allow_module_level=True)

TOLERANCE = {"float32": 1e-5, "float64": 2e-14}
SIZES = [1, 2, 5, 7, 8, 9, 15, 16, 17, 24, 31, 40, 65, 130]
SIGNATURES = {
    "solve_left": factorizations.SOLVE,
    "solve_right": factorizations.SOLVE,
    "cholesky": factorizations.CHOLESKY,
    "lu": lu.ARGUMENTS,
}


@pytest.fixture(params=product((256, 512), ("float32", "float64")), ids=str)
def routines(request):
    """A dtype, and a function that calls a routine with numbers and arrays.

    LLVM splits vectors that this CPU does not have.
    """
    bits, dtype = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(features, "vector_bits", lambda: bits)
        product_ = library.code.__wrapped__("gemm", dtype).addresses
        patch.setattr(library, "address", lambda r, d: product_[library.name(r, d)])
        addresses = library.code.__wrapped__("factorizations", dtype).addresses

        def call(name, *args):
            kinds = [ctypes.c_void_p if k == "ptr" else ctypes.c_int64 for k in SIGNATURES[name]]
            f = ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(addresses[library.name(name, dtype)])
            most = max(a for a in args[:2] if isinstance(a, int))
            work = np.full(factorizations.work_elements(most, most, dtype) + 1, 3, dtype)
            given = (a.ctypes.data if isinstance(a, np.ndarray) else a for a in (*args, work))
            result = f(*given)
            assert work[-1] == 3
            return result

        yield dtype, call


def strides(a):
    return [s // a.itemsize for s in a.strides]


def framed(x):
    """A copy inside of a larger matrix, and that."""
    whole = np.full((x.shape[0] + 2, x.shape[1] + 3), 7, x.dtype)
    inner = whole[1:-1, 1:-2]
    inner[:] = x
    return inner, whole


def untouched(whole):
    whole = whole.copy()
    whole[1:-1, 1:-2] = 7
    assert (whole == 7).all()


def test_triangular_systems(routines):
    dtype, call = routines
    rng = np.random.default_rng(0)
    for n, c, upper, fortran in product(SIZES, (1, 3, 8, 19, 40), (0, 1), "CF"):
        t = np.tril(rng.normal(size=(n, n))) / n + 2 * np.eye(n)
        t = np.array(t.T if upper else t, dtype, order=fortran)
        unread = np.array(t + np.tri(n, k=-1).T * 9 if not upper else t + np.tri(n, k=-1) * 9)
        unread = np.array(unread, dtype, order=fortran)
        for unit in (0, 1):
            full = t.astype(float)
            if unit:
                np.fill_diagonal(full, 1)
            b = rng.normal(size=(n, c)).astype(dtype)
            x, whole = framed(b)
            call("solve_left", n, c, unread, *strides(unread), x, c + 3, unit, upper)
            untouched(whole)
            np.testing.assert_allclose(full @ x, b, atol=n * TOLERANCE[dtype])
            x, whole = framed(b.T)
            call("solve_right", c, n, unread, *strides(unread), x, n + 3, unit, 1 - upper)
            untouched(whole)
            np.testing.assert_allclose(x @ full, b.T, atol=n * TOLERANCE[dtype])


def test_cholesky(routines):
    dtype, call = routines
    rng = np.random.default_rng(1)
    for n in SIZES:
        a = rng.normal(size=(n, n))
        a = (a @ a.T / n + np.eye(n)).astype(dtype)
        x, whole = framed(np.tril(a) + 5 * np.tri(n, k=-1).T.astype(dtype))
        assert call("cholesky", n, x, n + 3) == 0
        untouched(whole)
        found = np.tril(x).astype(float)
        np.testing.assert_allclose(found @ found.T, a, atol=4 * n * TOLERANCE[dtype])
        for value in (-1, 0, np.nan):
            bad = a.copy()
            bad[n // 2, n // 2] = value
            assert call("cholesky", n, bad, n) != 0


def test_lu(routines):
    dtype, call = routines
    rng = np.random.default_rng(2)
    for n in SIZES:
        for m in {n, n + 5, max(1, n - 3), 3 * n + 1, max(1, n // 4)}:
            a = rng.normal(size=(m, n)).astype(dtype)
            k = min(m, n)
            x, whole = framed(a)
            pivots = np.full(k, -1, np.int32)
            call("lu", m, n, x, n + 3, pivots)
            untouched(whole)
            if dtype == "float64":
                np.testing.assert_array_equal(pivots, scipy.linalg.lapack.dgetrf(a)[1])
            lower, upper = np.tril(x[:, :k], -1) + np.eye(m, k), np.triu(x[:k])
            assert abs(lower).max() <= 1
            for i, p in enumerate(pivots):
                a[[i, p]] = a[[p, i]]
            np.testing.assert_allclose(lower @ upper, a, atol=9 * n * TOLERANCE[dtype])


def test_pivots_of_equal_zero_and_tiny_numbers(routines):
    """Of equal ones the first; none of zeros; numbers whose inverses overflow are divided by."""
    dtype, call = routines
    tiny = np.finfo(dtype).smallest_subnormal * 8
    for n in (1, 5, 20):
        ones, pivots = np.ones((n, n), dtype), np.full(n, -1, np.int32)
        call("lu", n, n, ones, n, pivots)
        np.testing.assert_array_equal(pivots, np.arange(n))
        np.testing.assert_array_equal(ones[1:, 0], 1)
        zeros = np.zeros((n, n), dtype)
        call("lu", n, n, zeros, n, pivots)
        np.testing.assert_array_equal(pivots, np.arange(n))
        assert not zeros.any()
        small = (np.eye(n) + np.tri(n, k=-1) / 2).astype(dtype) * tiny
        call("lu", n, n, small, n, pivots)
        np.testing.assert_array_equal(small, np.eye(n) * tiny + np.tri(n, k=-1) / 2)
