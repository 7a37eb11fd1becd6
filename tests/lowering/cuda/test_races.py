"""No two threads of a kernel meet: what one writes no other one reads or writes without a barrier."""

from dataclasses import replace

import numpy as np
import pytest
from cuda_programs import PROGRAMS
from races import Watch, Watched, Who

import fnx
import fnx.numpy as jnp


def watched(gpu, f, args):
    gpu.watches = True
    found = fnx.tree.leaves(fnx.jit(f, backend="cuda")(*args))
    wanted = fnx.tree.leaves(f(*args))
    for a, b in zip(found, wanted, strict=True):
        tolerance = 1e-9 if np.asarray(b).dtype.itemsize > 4 else 1e-3
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    assert gpu.made("launch")
    return gpu.races


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(gpu, name):
    assert not watched(gpu, *PROGRAMS[name])


MORE = {
    "sorted": lambda x: (jnp.sort(x[:, 0]), fnx.lax.top_k(x[:, 1], 3)),
    "transposed": lambda x: x.T * 2,
    "added in order": lambda x: jnp.zeros(900).at[(x[:, 0] * 99).astype(int)].add(x[:, 1]),
    "the last one stays": lambda x: jnp.zeros(90).at[(x[:, 0] * 9).astype(int)].set(x[:, 1]),
    "rows of complex numbers": lambda x: (x * 1j).sum(1),
    "rows of whole numbers": lambda x: (x * 9).astype("int16").sum(1),
}


@pytest.mark.parametrize("name", MORE)
def test_more_programs(gpu, name):
    assert not watched(gpu, MORE[name], [np.random.default_rng(0).normal(size=(40, 37))])


@pytest.mark.parametrize("threads", [64, 256])
@pytest.mark.parametrize("dtype", ["float64", "int16", "complex128"])
def test_blocks_of_several_warps(gpu, monkeypatch, threads, dtype):
    from fnx.lowering.cuda import backend
    from fnx.lowering.cuda.kernels.thresholds import SIMULATED

    monkeypatch.setattr(backend, "limits", lambda: replace(SIMULATED, threads=threads, blocks=2))
    x = (np.random.default_rng(0).normal(size=(3, 300)) * 9).astype(dtype)
    top = (lambda x: x.prod(1)) if dtype.startswith("complex") else (lambda x: x.max(1))
    assert not watched(gpu, lambda x: (x.sum(1), x.sum(), top(x)), [x])
    assert any(block == (threads, 1) for _, _, block in gpu.made("launch"))


class Thread:
    def __init__(self, thread, barriers=0, block=(0, 0)):
        self.who = Who(block, (thread, 0), barriers)


def test_threads_that_meet_are_seen():
    for other, count in (
        (Thread(0), 0),  # the same one
        (Thread(1), 1),
        (Thread(1, barriers=1), 0),
        (Thread(1, barriers=1, block=(1, 0)), 1),
    ):
        watch, array = Watch("k"), np.zeros(4)
        Watched(array, 0, watch, Thread(0), "a")[1] = 1.0
        assert Watched(array, 0, watch, other, "a")[1] == 1.0
        assert len(watch.found) == count


def test_shared_memory_that_nobody_wrote_is_seen():
    watch = Watch("k")
    Watched(np.zeros(4), ("shared", 1, (0, 0)), watch, Thread(0), "a")[2]
    assert watch.found == ["k: nobody wrote a[2]"]


def test_places_outside_are_seen():
    with pytest.raises(IndexError, match=r"k: a\[4\] of 4"):
        Watched(np.zeros(4), 0, Watch("k"), Thread(0), "a")[4]


def test_a_kernel_that_lacks_a_barrier_is_seen(gpu, monkeypatch):
    from fnx.lowering.cuda import device_code

    whole = device_code.cubin

    def without(printed, architecture):
        printed.source = printed.source.replace("cuda.syncthreads()", "pass", 1)
        return whole(printed, architecture)

    monkeypatch.setattr(device_code, "cubin", without)
    gpu.watches = True
    fnx.jit(lambda x: x.T * 2, backend="cuda")(np.ones((9, 13))).block_until_ready()
    assert any("square0" in r or "shared" in r for r in gpu.races)
