"""What lives until the GPU has done what it was asked for, and what is said where CUDA's calls fail."""

import gc
import sys
import threading
from contextlib import suppress

import fake_gpu
import numpy as np
import pytest
from fake_gpu import CUDAError

import fnx
import fnx.numpy as jnp
from fnx.core.errors import JaxRuntimeError
from fnx.lowering.cuda import backend

X = np.random.default_rng(0).normal(size=(6, 50))


def on_gpu(f, **options):
    return fnx.jit(f, backend="cuda", **options)


def test_threads_that_come_at_once_have_one_driver(gpu, monkeypatch):
    """The streams of two would not wait for each other."""
    both, made = threading.Barrier(2), []

    class Slow(fake_gpu.Device):
        def create_stream(self):
            with suppress(threading.BrokenBarrierError):
                both.wait(0.2)  # for the other thread, which must not come this far
            return super().create_stream()

    monkeypatch.setattr(fake_gpu, "Device", Slow)
    threads = [threading.Thread(target=lambda: made.append(backend.driver())) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(map(id, made))) == 1


def test_code_stays_until_it_has_run(gpu):
    y = on_gpu(lambda x: x * 2 + 1)(X)
    gc.collect()  # the function is gone, its kernel waits
    assert gpu.waiting
    assert not gpu.unloaded
    np.testing.assert_array_equal(y, X * 2 + 1)
    del gpu.waiting[:]
    on_gpu(lambda x: x - 1)(X).block_until_ready()
    gc.collect()
    assert set(gpu.unloaded) == {0}


def graphed():
    """A function whose calls are graphs, of an array that is there, and has been called often."""

    def my_model(x):
        return x.sum(0), x.sum(1), x.max() + jnp.cumsum(x, 1)

    f, x = on_gpu(my_model), on_gpu(lambda x: x * 1.0)(X)
    for _ in range(8):
        y = f(x)
    return f, x, y


@pytest.mark.slow
def test_errors_of_graphs_name_the_program(gpu):
    f, x, y = graphed()
    fnx.block_until_ready(y)
    del gpu.calls[:]
    y = f(x)
    assert [c[0] for c in gpu.calls] == ["launch graph"]
    gpu.fails["sync"] = CUDAError("CUDA_ERROR_INVALID_VALUE: bad")
    with pytest.raises(JaxRuntimeError, match="before: my_model: k1"):
        y[0].block_until_ready()


def test_a_launch_that_fails_within_a_recording_is_what_is_said(gpu):
    """The end of such a recording fails, too."""
    f = on_gpu(lambda u: fnx.lax.fori_loop(0, 9, lambda i, v: v / jnp.max(v) + i, u))
    asked, known = [], gpu.call

    def call(name, *about):
        asked.append(name)
        if name == "launch" and "create_graph_builder" in asked:
            gpu.fails["launch"] = CUDAError("CUDA_ERROR_INVALID_CONFIGURATION: no")
            gpu.fails["end_building"] = CUDAError("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED")
        known(name, *about)

    gpu.call = call
    with pytest.raises(JaxRuntimeError, match=r"launch of .*INVALID_CONFIGURATION"):
        f(X[0])
    gpu.call = known
    assert "end_building" in asked
    np.testing.assert_allclose(on_gpu(lambda x: x + 1)(X), X + 1)


def test_memory_that_cannot_go_back_raises_nothing_and_tells_the_next_call(gpu):
    f = on_gpu(lambda x: x + 1)
    y = f(np.arange(6000.0))  # too large a block to be kept
    gpu.fails["free"] = CUDAError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal access")
    del y
    with pytest.raises(JaxRuntimeError, match=r"failed earlier .*ILLEGAL_ADDRESS"):
        f(X)


def test_errors_of_libraries_are_ours(cupy, gpu, monkeypatch):
    def full(*_):
        raise MemoryError("Out of memory allocating 8 bytes")

    monkeypatch.setattr(sys.modules["cupy"].linalg, "qr", full)
    with pytest.raises(JaxRuntimeError, match=r"qr.*Out of memory allocating"):
        on_gpu(jnp.linalg.qr)(X)


def test_what_half_a_program_has_overwritten_is_deleted(gpu):
    f = on_gpu(lambda x: (x * 2 + x.sum(), x.max(0)), donate_argnums=0)
    given = [on_gpu(lambda x: x * 1.0)(X) for _ in range(2)]
    known, launches = gpu.call, []

    def call(name, *about):
        launches.append(name == "launch")
        if sum(launches) > 1:
            gpu.fails["launch"] = CUDAError("CUDA_ERROR_INVALID_CONFIGURATION: no")
        known(name, *about)

    gpu.call = call
    with pytest.raises(JaxRuntimeError, match="INVALID_CONFIGURATION"):
        f(given[0])
    gpu.call = known
    gpu.fails.clear()
    assert given[0].is_deleted()
    gpu.fails["load"] = CUDAError("CUDA_ERROR_NO_BINARY_FOR_GPU: no")
    with pytest.raises(JaxRuntimeError, match="NO_BINARY"):
        on_gpu(lambda x: x * 3, donate_argnums=0)(given[1])
    np.testing.assert_array_equal(given[1], X)  # which nothing has touched


class Theirs:
    """An array of another library on the GPU."""

    def __init__(self, value):
        self.value = value
        self.__cuda_array_interface__ = {
            "shape": value.shape, "typestr": value.dtype.str, "strides": None, "version": 3,
            "data": (value.ctypes.data, False),
        }  # fmt: skip


def test_memory_of_others_is_not_donated(gpu):
    other = Theirs(X.copy())
    x = jnp.asarray(other)
    y = on_gpu(lambda x: x * 2, donate_argnums=0)(x)
    np.testing.assert_array_equal(y, X * 2)
    np.testing.assert_array_equal(other.value, X)
    assert x.is_deleted()
