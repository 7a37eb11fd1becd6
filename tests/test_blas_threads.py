"""Small triangular solves run in one thread, and leave the number of threads as it was."""

import ctypes

import numpy as np
import pytest
import scipy.linalg

import fnx
import fnx.scipy.linalg
from fnx.lowering import blas_threads, library, machine

POINTERS = [ctypes.c_void_p] * 11


@pytest.fixture
def watched():
    """The guard around a routine that notes what happens, under 4 threads at first."""
    log, threads = [], [4]

    def put(n):
        threads[0] = n

    types = [
        ctypes.CFUNCTYPE(ctypes.c_int32)(lambda: threads[0]),
        ctypes.CFUNCTYPE(None, ctypes.c_int32)(put),
        ctypes.CFUNCTYPE(None, *POINTERS)(lambda *_: log.append(threads[0])),
    ]
    addresses = [ctypes.cast(t, ctypes.c_void_p).value for t in types]
    imports = dict(zip(("get_threads", "set_threads", "routine"), addresses, strict=True))
    code = machine.code(blas_threads.text(), ["solve"], imports, kind="function")
    solve = ctypes.CFUNCTYPE(None, *POINTERS)(code.addresses["solve"])

    def call(m, n):
        sizes = [ctypes.c_int32(m), ctypes.c_int32(n)]
        pointers = [ctypes.cast(ctypes.pointer(s), ctypes.c_void_p) for s in sizes]
        solve(*[None] * 4, *pointers, *[None] * 5)
        return log[-1], threads[0]

    call.put, call.keep = put, (types, code)
    return call


@pytest.mark.parametrize(
    ("m", "n", "inside"),
    [(60, 60, 1), (8, 400, 1), (100, 100, 1), (101, 100, 4), (50_000, 50_000, 4)],
)
def test_threads_inside_and_after(watched, m, n, inside):
    assert watched(m, n) == (inside, 4)


def test_one_thread_is_left_alone(watched):
    watched.put(1)
    assert watched(60, 60) == (1, 1)


@pytest.mark.parametrize("n", [20, 60, 150])
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_solves_are_right_and_threads_as_before(n, dtype):
    rng = np.random.default_rng(n)
    a = (np.tril(rng.normal(size=(n, n))) + n * np.eye(n)).astype(dtype)
    b = rng.normal(size=(n, n)).astype(dtype)
    controls = blas_threads._controls()
    count = ctypes.CFUNCTYPE(ctypes.c_int32)(controls[0]) if controls else lambda: 1
    before = count()
    found = fnx.jit(lambda a, b: fnx.scipy.linalg.solve_triangular(a, b, lower=True))(a, b)
    expected = scipy.linalg.solve_triangular(a, b, lower=True)
    tol = 1e-5 if dtype == "complex64" else 1e-12
    np.testing.assert_allclose(found, expected, rtol=tol, atol=tol * abs(expected).max())
    assert count() == before


def test_without_openblas_the_routine_is_itself(monkeypatch):
    monkeypatch.setattr(blas_threads, "_controls", lambda: None)
    assert blas_threads.guarded.__wrapped__(123) == 123
    assert library.resolve("blas:dgemm")
