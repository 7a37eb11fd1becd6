"""Calls leak nothing: references, results' memory, workspaces, threads that call at once."""

import gc
import os
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref

import numpy as np
import pytest
from llvm_texts import Emitted, adder, copies, use_workspace

from fnx.core.array import ConcreteArray
from fnx.lowering.cpu.loader import executable as invoke
from fnx.lowering.cpu.loader import load
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.cpu.runtime import call_wrapper_loader


@pytest.mark.parametrize("release", [False, True])
@pytest.mark.parametrize("n", [5, 30_000])
def test_references_are_balanced(release, n):
    executable = adder(n)
    executable.release_gil = release
    a, b = ConcreteArray(np.ones(n)), ConcreteArray(np.ones(n))
    leaves = [a, b]
    odd = [a, b._value[::-1]]
    call = executable.fast
    watched = [a, b, a._value, b._value, leaves, a._value.dtype, ConcreteArray, call, np.ndarray]
    call(leaves), call(odd)
    gc.collect()
    before = [sys.getrefcount(x) for x in watched]
    results = [call(leaves) for _ in range(100)]
    assert [sys.getrefcount(r) for r in results] == [2 + 1] * 100  # results, r, the argument
    assert all(sys.getrefcount(r[0]) == 2 for r in results)
    assert all(sys.getrefcount(r[0]._value) == 2 for r in results)
    del results
    for _ in range(1000):
        call(leaves), call(odd)
    after = [sys.getrefcount(x) for x in watched]
    assert after == before


def test_no_memory_is_leaked():
    n = thresholds.KEPT_BYTES // 8 - 1  # NumPy's memory, which is traced
    executable = adder(n)
    x = ConcreteArray(np.ones(n))

    def work(rounds):
        for _ in range(rounds):
            executable.fast((x, x))
            executable.fast((x, 1))

    work(100)
    gc.collect()
    tracemalloc.start()
    try:
        work(100)
        before = tracemalloc.get_traced_memory()[0]
        work(3000)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 16 * n


def test_results_live_and_die_like_others():
    executable = adder(50_000)
    x = np.ones(50_000)
    (out,) = executable.fast([x, x])
    array = out._value
    assert gc.is_tracked(out)
    reference = weakref.ref(out)
    del out
    assert reference() is None
    np.testing.assert_array_equal(array[::7], 3.0)  # the block lives with the array
    view = array[10:20]
    del array
    gc.collect()
    for _ in range(5):
        executable.fast([x * 0, x * 0])
    np.testing.assert_array_equal(view, 3.0)


def test_blocks_of_large_results_are_used_again():
    executable = adder(1 << 17)
    x = np.ones(1 << 17)
    invoke.release_memory()
    wrap = call_wrapper_loader.get()
    assert wrap.held() == (0, 0)
    seen = set()
    for _ in range(20):
        (out,) = executable.fast([x, x])
        seen.add(out._value.ctypes.data)
        assert out._value.ctypes.data % 64 == 0
        del out
    assert len(seen) == 1
    assert wrap.held() == (1, 8 << 17)
    outs = [executable.fast([x, x])[0] for _ in range(100)]
    assert len({o._value.ctypes.data for o in outs}) == 100
    assert wrap.held() == (0, 0)
    del outs
    count, size = wrap.held()
    assert count == thresholds.KEPT_BLOCKS
    assert size == count * (8 << 17)
    invoke.release_memory()
    assert wrap.held() == (0, 0)


def test_small_blocks_do_not_push_out_costly_ones():
    invoke.release_memory()
    small, large = adder(thresholds.KEPT_BYTES // 8), adder(thresholds.COSTLY_BLOCK // 8)
    x, y = np.ones(thresholds.KEPT_BYTES // 8), np.ones(thresholds.COSTLY_BLOCK // 8)
    for n in (
        3,
        thresholds.KEPT_BLOCKS + 3,
    ):  # the second time, all but the costly ones' slots are taken
        outs = [large.fast([y, y]) for _ in range(3)]
        del outs
        outs = [small.fast([x, x]) for _ in range(n)]
        assert all(o[0]._value.ctypes.data % 64 == 0 for o in outs)
        del outs
        count, size = call_wrapper_loader.get().held()
        assert size == 3 * thresholds.COSTLY_BLOCK + (count - 3) * thresholds.KEPT_BYTES
    assert count == thresholds.KEPT_BLOCKS
    invoke.release_memory()


def test_waiting_blocks_are_bounded():
    wrap = call_wrapper_loader.get()
    limit = wrap._cell("fnx_limit")
    before, limit.value = limit.value, 3 << 20
    executable = adder(1 << 17)
    x = np.ones(1 << 17)
    try:
        outs = [executable.fast([x, x]) for _ in range(10)]
        del outs
        assert wrap.held() == (3, 3 << 20)
    finally:
        limit.value = before
        invoke.release_memory()


def test_blocks_fit():
    """A waiting block is used for sizes that differ by less than an eighth."""
    invoke.release_memory()
    big, small, other = (adder(n) for n in (200_000, 198_000, 100_000))
    for executable, n, waiting in ((big, 200_000, 1), (small, 198_000, 1), (other, 100_000, 2)):
        executable.fast([np.ones(n), np.ones(n)])
        assert call_wrapper_loader.get().held()[0] == waiting
    invoke.release_memory()


def test_blocks_keep_their_size_when_sizes_alternate():
    """The block of a larger array that a smaller one takes would be too small for its own kind."""
    invoke.release_memory()
    sizes = (1 << 19, (1 << 19) + 4000)
    small, large = (adder(n) for n in sizes)
    x, y = (np.ones(n) for n in sizes)
    for _ in range(20):
        a, b = small.fast([x, x]), large.fast([y, y])
        del a, b  # the larger one is the youngest that waits
    assert call_wrapper_loader.get().held()[0] == 2
    invoke.release_memory()


def test_waiting_blocks_that_nobody_wants_make_room():
    wrap = call_wrapper_loader.get()
    limit = wrap._cell("fnx_limit")
    before, limit.value = limit.value, 5 << 20
    invoke.release_memory()
    first, second = adder(1 << 19), adder(1 << 18)
    try:
        first.fast([np.ones(1 << 19), np.ones(1 << 19)])
        assert wrap.held() == (1, 4 << 20)
        second.fast([np.ones(1 << 18), np.ones(1 << 18)])
        assert wrap.held() == (1, 2 << 20)
    finally:
        limit.value = before
        invoke.release_memory()


def test_an_executable_dies():
    executable, x = adder(), np.arange(5.0)
    executable.fast([x, x])
    executable([x, x])
    reference = weakref.ref(executable)
    call = executable.fast
    del executable
    gc.collect()
    (out,) = call([x, x])  # the function holds all that it needs
    assert reference() is not None
    del call, out
    gc.collect()
    assert reference() is None


def test_no_memory_for_a_result():
    huge = 1 << 60
    executable = load.load(Emitted(copies([])), [], [((huge,), "int8")] * 2, 0)
    for call in (executable.fast, executable, executable.by_ctypes):
        with pytest.raises(MemoryError):
            call([])


def test_no_memory_for_the_workspace():
    spec = [((), "int64", False)]
    executable = load.load(Emitted(use_workspace(), [1]), spec, spec, 1 << 60)
    for call in (executable.fast, executable, executable.by_ctypes):
        with pytest.raises(MemoryError, match=str(1 << 60)):
            call([np.array(1)])


# --- workspaces and threads --------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 100, 200_000])
def test_workspace(n):
    spec = [((), "int64", False)]
    executable = load.load(Emitted(use_workspace(), [n]), spec, spec, 8 * n)
    for call in (executable, executable.by_ctypes):
        assert call([np.array(3)])[0] == 3 * n


def test_concurrent_calls_have_workspaces_of_their_own():
    n = 100_000
    spec = [((), "int64", False)]
    executable = load.load(Emitted(use_workspace(), [n]), spec, spec, 8 * n)
    assert executable.release_gil
    wrong = []

    def work(value):
        x = np.array(value)
        for _ in range(100):
            (out,) = executable.fast([x])
            if out._value != value * n:
                wrong.append((value, out))

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_long_programs_let_others_run():
    n = 3_000_000
    spec = [((), "int64", False)]
    executable = load.load(Emitted(use_workspace(), [n]), spec, spec, 8 * n)
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.perf_counter())

    other = threading.Thread(target=tick)
    other.start()
    try:
        spans = []
        for _ in range(20):
            start = time.perf_counter()
            executable.fast([np.array(1)])
            spans.append((start, time.perf_counter()))
    finally:
        stop.set()
        other.join()
    inside = sum(any(a < t < b for a, b in spans) for t in ticks[:: max(1, len(ticks) // 2000)])
    assert inside > 10


def test_leaves_may_vanish_while_a_program_runs():
    """Without the GIL, another thread empties the list of leaves."""
    n = 2_000_000
    executable = adder(n)
    for _ in range(5):
        leaves = [ConcreteArray(np.full(n, 2.0)), ConcreteArray(np.full(n, 3.0))]
        thief = threading.Timer(0.0005, leaves.clear)
        thief.start()
        outs = executable.fast(leaves)
        thief.join()
        if outs is not NotImplemented:
            assert (outs[0]._value == 7.0).all()


_AT_EXIT = """
import numpy as np
from llvm_texts import Emitted, axpy
from fnx.lowering.cpu.loader import load
n = 50_000
spec = [((n,), "float64", False)]
executable = load.load(Emitted(axpy(), [n]), spec * 2, spec, 0)
x = np.ones(n)
kept = [executable.fast([x, x]) for _ in range(10)]

class Late:
    def __init__(self):
        self.kept, self.call, self.x = kept, executable.fast, x
    def __del__(self):
        self.call([self.x, self.x])
        self.kept.clear()

late = Late()
late.self = late
print("done")
"""


def test_arrays_outlive_everything(repository):
    env = {**os.environ, "PYTHONPATH": str(repository / "tests" / "support")}
    done = subprocess.run(
        [sys.executable, "-c", _AT_EXIT], env=env, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
