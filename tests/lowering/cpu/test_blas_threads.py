"""Small work of OpenBLAS is done in one thread; then its number of threads is as it was."""

import ctypes
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.linalg

import fnx
import fnx.numpy
import fnx.scipy.linalg
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.cpu.runtime import blas_threads


@pytest.fixture
def watched():
    """The guard of an OpenBLAS that has 4 threads at first."""
    threads, set_to = [4], []

    def put(n):
        threads[0] = n
        set_to.append(n)

    functions = [
        ctypes.CFUNCTYPE(ctypes.c_int32)(lambda: threads[0]),
        ctypes.CFUNCTYPE(None, ctypes.c_int32)(put),
    ]
    code = blas_threads.compiled(*(ctypes.cast(f, ctypes.c_void_p).value for f in functions))
    enter = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.addresses["fnx_blas_enter"])
    leave = ctypes.CFUNCTYPE(None, ctypes.c_int64)(code.addresses["fnx_blas_leave"])
    ours = ctypes.c_int64.from_address(code.addresses["fnx_blas_threads"])
    ours.value = 4
    return SimpleNamespace(
        threads=threads, set_to=set_to, enter=enter, leave=leave, ours=ours, keep=(functions, code)
    )


def test_little_work_is_done_by_one_thread(watched):
    entered = watched.enter(thresholds.BLAS_WORK - 1)
    assert watched.threads == [1]
    watched.leave(entered)
    assert watched.threads == [4]


def test_much_work_is_left_to_openblas(watched):
    entered = watched.enter(thresholds.BLAS_WORK)
    assert watched.threads == [4]
    watched.leave(entered)
    assert watched.set_to == []


def test_one_thread_of_fnx_is_one_of_openblas(watched):
    watched.ours.value = 1
    entered = watched.enter(1 << 60)
    assert watched.threads == [1]
    watched.leave(entered)
    assert watched.threads == [4]


def test_one_thread_is_left_alone(watched):
    watched.threads[0] = 1
    watched.leave(watched.enter(1))
    assert watched.set_to == []


def test_the_last_to_leave_puts_the_number_back(watched):
    first, second = watched.enter(1), watched.enter(1)
    watched.leave(first)
    assert watched.threads == [1]
    watched.leave(second)
    assert watched.threads == [4]


def test_callers_in_many_threads(watched):
    def call():
        for _ in range(200):
            watched.leave(watched.enter(1))

    callers = [threading.Thread(target=call) for _ in range(4)]
    for c in callers:
        c.start()
    for c in callers:
        c.join()
    assert watched.threads == [4]


@pytest.mark.own_code
def test_calls_say_how_much_they_do():
    a = np.random.default_rng(0).normal(size=(40, 40))
    a = a @ a.T + np.eye(40)
    for f in (fnx.numpy.linalg.cholesky, lambda a: 1j * a @ a[0], fnx.numpy.linalg.eigvalsh):
        text = fnx.jit(f).lower(a).as_text("llvm")
        assert text.count("call i64 %") == 1


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


def test_another_blas_has_one_thread():
    code = blas_threads.compiled(*blas_threads._nothing())
    enter = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.addresses["fnx_blas_enter"])
    assert enter(1) == 1


def test_mapped_files_of_numbers_are_no_libraries(tmp_path):
    before = blas_threads._controls()
    folder = tmp_path / "openblas"
    folder.mkdir()
    names = [folder / "numbers.npy", tmp_path / "openblas.npy", tmp_path / "openblas-\udcff.npy"]
    for name in names:
        np.save(name, np.arange(9.0))
    mapped = [np.load(name, mmap_mode="r") for name in names]
    found = blas_threads._loaded()
    assert str(names[0]) not in found
    assert {str(name) for name in names[1:]} <= set(found)
    blas_threads._controls.cache_clear()
    assert blas_threads._controls() == before
    assert [float(m.sum()) for m in mapped] == [36.0] * 3


def test_a_library_that_is_not_loaded_is_not_loaded_to_look_at_it(tmp_path, monkeypatch):
    loaded = next((path for path in blas_threads._loaded() if ".so" in path), None)
    if loaded is None:
        pytest.skip("SciPy uses another BLAS")
    other = tmp_path / "libopenblas.so"
    other.write_bytes(Path(loaded).read_bytes())
    monkeypatch.setattr(blas_threads, "_loaded", lambda: [str(other)])
    blas_threads._controls.cache_clear()
    try:
        assert blas_threads._controls() is None
        assert str(other) not in Path("/proc/self/maps").read_text(errors="replace")
    finally:
        blas_threads._controls.cache_clear()
