"""Calls: native wrapper and ctypes agree, reject what does not fit, and leak nothing."""

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import tracemalloc
import weakref
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from llvm_texts import Emitted, axpy, call_host, copies, spin, use_workspace

from fnx.core import dtypes
from fnx.core.array import ConcreteArray
from fnx.core.errors import ShapeError
from fnx.lowering.runtime import blocks, host, invoke, load, native

LLVM = {"float64": "double", "float32": "float", "int64": "i64", "int32": "i32", "int8": "i8"}
LLVM |= {"bool": "i8", "bfloat16": "i16", "float16": "i16", "uint8": "i8", "int16": "i16"}
LLVM |= {"uint64": "i64", "uint32": "i32", "uint16": "i16", "complex64": "i64"}
LLVM |= {"complex128": "i128"}


def adder(n=5, shape=None, weak=(False, False), out_weak=False, kind="float64"):
    shape = (n,) if shape is None else shape
    inputs = [(shape, kind, w) for w in weak]
    program = Emitted(axpy(LLVM[kind]), [int(np.prod(shape))])
    return load.load(program, inputs, [(shape, kind, out_weak)], 0)


def test_the_wrapper_knows_this_interpreter():
    assert native.get() is not None
    assert type(adder().fast) is type(len)


def test_three_ways_agree():
    executable = adder()
    x, y = np.linspace(0, 1, 5), np.linspace(-3, 2, 5)
    want = 2 * x + y
    (fast,) = executable.fast([ConcreteArray(x), ConcreteArray(y)])
    assert type(fast) is ConcreteArray
    assert fast.weak_type is False
    assert fast._value.flags.carray
    for out in (fast._value, *executable([x, y]), *executable.by_ctypes([x, y])):
        np.testing.assert_allclose(out, want, rtol=1e-15)
        assert out.dtype == np.float64


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
def test_dtypes_and_ranks(dtype, shape):
    spec = [(shape, dtype, False)]
    executable = load.load(Emitted(copies([LLVM[dtype.name]])), spec, spec, 0)
    x = np.ones(shape, dtype)
    (boxed,) = executable.fast([ConcreteArray(x)])
    for out in (boxed._value, *executable([x]), *executable.by_ctypes([x])):
        assert out.dtype == dtype
        assert out.shape == shape
        assert out.tobytes() == x.tobytes()
        assert not np.shares_memory(out, x)


def test_dtype_objects_that_are_equal_but_not_the_same():
    executable = adder()
    x = np.ones(5, np.dtype("f8").newbyteorder("="))
    assert x.dtype is not np.dtype("f8")
    assert executable.fast([x, x]) is not NotImplemented
    assert executable.fast([x, x.astype(">f8")]) is NotImplemented


def test_leaves_may_be_a_tuple_and_numpy_arrays():
    executable = adder()
    x = np.ones(5)
    for leaves in ((x, x), [x, ConcreteArray(x)], (ConcreteArray(x), x)):
        (out,) = executable.fast(leaves)
        np.testing.assert_array_equal(out._value, np.full(5, 3.0))


class Odd(np.ndarray):
    """A subclass, which may do anything."""


X = np.ones(5)
MISFITS = {
    "short": (X,),
    "long": (X, X, X),
    "shape": (X, np.ones(4)),
    "rank": (X, np.ones((5, 1))),
    "scalar": (X, np.ones(())),
    "dtype": (X, np.ones(5, np.float32)),
    "int": (X, np.ones(5, np.int64)),
    "order": (X, np.ones(5, ">f8")),
    "stride": (X, np.ones(10)[::2]),
    "negative": (X, X[::-1]),
    "unaligned": (X, np.frombuffer(bytes(41), np.uint8)[1:].view(np.float64)),
    "subclass": (X, X.view(Odd)),
    "boxed shape": (ConcreteArray(np.ones(4)), X),
    "boxed weak": (ConcreteArray(X, True), X),
    "number": (X, 1.0),
    "none": (X, None),
    "list": (X, [1.0] * 5),
    "no value": (X, ConcreteArray.__new__(ConcreteArray)),
    "dict": {0: X, 1: X},
    "array": X,
    "nothing": None,
    "iterator": iter((X, X)),
}


@pytest.mark.parametrize("name", MISFITS)
def test_misfits_are_for_the_slow_path(name):
    executable = adder()
    before = sys.getrefcount(NotImplemented)
    assert executable.fast(MISFITS[name]) is NotImplemented
    assert abs(sys.getrefcount(NotImplemented) - before) < 3


@pytest.mark.parametrize("name", ["order", "stride", "negative", "unaligned", "subclass", "list"])
def test_the_slow_path_takes(name):
    executable = adder()
    leaves = MISFITS[name]
    want = 2 * np.asarray(leaves[0]) + np.asarray(leaves[1], np.float64)
    np.testing.assert_array_equal(executable(leaves)[0], want)
    np.testing.assert_array_equal(executable.by_ctypes(leaves)[0], want)


@pytest.mark.parametrize("name", ["short", "long", "shape", "rank", "dtype", "int"])
def test_the_slow_path_refuses(name):
    for call in (adder(), adder().by_ctypes):
        with pytest.raises(ShapeError, match=r"inputs|shape"):
            call(MISFITS[name])


@pytest.mark.parametrize("weak", [True, False, None])
def test_weak_types(weak):
    executable = adder(shape=(), weak=(weak, None), out_weak=bool(weak))
    leaves = {w: ConcreteArray(np.array(3.0), w) for w in (True, False)}
    for given, leaf in leaves.items():
        outs = executable.fast([leaf, leaf])
        if weak is not None and weak != given:
            assert outs is NotImplemented
        else:
            assert outs[0].weak_type is bool(weak)
            assert float(outs[0]) == 9.0
    bare = executable.fast([np.array(3.0), np.array(3.0)])
    assert (bare is NotImplemented) == (weak is True)


NUMBERS = [
    ("float64", 1.5, True),
    ("float64", 1, False),
    ("float64", True, False),
    ("float32", 1.1, True),
    ("int64", 2**63 - 1, True),
    ("int64", -(2**63), True),
    ("int64", 2**63, False),
    ("int64", 1.0, False),
    ("int64", True, False),
    ("int32", 2**31 - 1, True),
    ("int32", -(2**31), True),
    ("int32", 2**31, False),
    ("int8", 1, False),
    ("bool", True, True),
    ("bool", False, True),
    ("bool", 1, False),
    ("complex128", 1j, False),
    ("float64", np.float64(2.5), False),
]


@pytest.mark.parametrize(("kind", "number", "fits"), NUMBERS)
def test_python_numbers(kind, number, fits):
    weak = kind != "bool"
    spec = [((), kind, weak)]
    executable = load.load(Emitted(copies([LLVM[kind]])), spec, spec, 0)
    outs = executable.fast([number])
    if not fits:
        assert outs is NotImplemented
    else:
        assert outs[0]._value == np.asarray(number, kind)
        assert outs[0]._value.dtype == np.dtype(kind)
    strong = load.load(Emitted(copies([LLVM[kind]])), [((), kind, not weak)], spec, 0)
    assert strong.fast([number]) is NotImplemented
    vector = load.load(Emitted(copies([LLVM[kind]])), [((1,), kind, weak)], spec, 0)
    assert vector.fast([number]) is NotImplemented


@pytest.mark.parametrize("count", [1, 3, 40, 500])
def test_many_arrays(count):
    kinds = [list(LLVM)[k % len(LLVM)] for k in range(count)]
    specs = [((), kind, False) for kind in kinds]
    executable = load.load(Emitted(copies([LLVM[k] for k in kinds])), specs, specs, 0)
    inputs = [np.array(k % 2, dtypes.canonical(kind)) for k, kind in enumerate(kinds)]
    fast = [x._value for x in executable.fast([ConcreteArray(x) for x in inputs])]
    for outs in (fast, executable(inputs), executable.by_ctypes(inputs)):
        assert [o.tobytes() for o in outs] == [x.tobytes() for x in inputs]


def test_no_arrays_at_all():
    executable = load.load(Emitted(copies([])), [], [], 0)
    assert executable.fast([]) == []
    assert executable.fast(()) == []
    assert executable([]) == executable.by_ctypes([]) == []


def test_more_arrays_than_the_stack_bears(monkeypatch):
    monkeypatch.setattr(invoke, "_MANY", 2)
    executable = adder()
    assert type(executable.fast) is not type(len)
    (out,) = executable.fast([ConcreteArray(X), X])
    assert type(out) is ConcreteArray
    np.testing.assert_array_equal(out._value, np.full(5, 3.0))


def test_without_the_wrapper(monkeypatch):
    monkeypatch.setattr(native, "get", lambda: None)
    executable = adder()
    np.testing.assert_array_equal(executable([X, X])[0], np.full(5, 3.0))
    assert type(executable.fast((X, ConcreteArray(X)))[0]) is ConcreteArray


def test_zero_sized_arrays():
    executable = adder(shape=(0, 3))
    x = np.empty((0, 3))
    for outs in (executable([x, x]), executable.by_ctypes([x, x])):
        assert outs[0].shape == (0, 3)
    assert executable.fast([x, x])[0].shape == (0, 3)


# --- references and memory ---------------------------------------------------------------------


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
    executable = adder(2000)
    x = ConcreteArray(np.ones(2000))

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
    assert grown < 16 * 2000


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
    wrap = native.get()
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
    assert count == blocks.SLOTS
    assert size == count * (8 << 17)
    invoke.release_memory()
    assert wrap.held() == (0, 0)


def test_waiting_blocks_are_bounded():
    wrap = native.get()
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
        assert native.get().held()[0] == waiting
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
    assert native.get().held()[0] == 2
    invoke.release_memory()


def test_waiting_blocks_that_nobody_wants_make_room():
    wrap = native.get()
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
    executable = adder()
    executable.fast([X, X])
    executable([X, X])
    reference = weakref.ref(executable)
    call = executable.fast
    del executable
    gc.collect()
    (out,) = call([X, X])  # the function holds all that it needs
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


# --- callbacks and Ctrl-C ----------------------------------------------------------------------


def hosted(function, inputs, outputs):
    side = lambda specs: [(None, shape, dtype) for shape, dtype in specs]
    call = SimpleNamespace(callback=function, inputs=side(inputs), outputs=side(outputs))
    return load.load(Emitted(call_host(), [("host", call)]), inputs, outputs, 0)


WAYS = [lambda e: e.fast, lambda e: e, lambda e: e.by_ctypes]


def values(outs):
    return [o._value if isinstance(o, ConcreteArray) else o for o in outs]


@pytest.mark.parametrize("way", WAYS, ids=["fast", "plain", "ctypes"])
def test_host_callback(way):
    seen = []

    def function(x, k):
        seen.append((x, k))
        return x * k, x.sum()

    executable = hosted(
        function, [((3,), "float64"), ((), "int32")], [((3,), "float64"), ((), "float64")]
    )
    x = np.arange(3.0)
    product, total = values(way(executable)([x, np.array(2, np.int32)]))
    np.testing.assert_array_equal(product, 2 * x)
    assert total == 3.0
    given, _ = seen[0]
    assert not given.flags.writeable
    x[:] = 7.0
    np.testing.assert_array_equal(given, np.arange(3.0))  # it may be kept


def test_host_callback_in_bfloat16():
    executable = hosted(lambda x: x + x, [((2,), "bfloat16")], [((2,), "bfloat16")])
    (out,) = executable([np.ones(2, ml_dtypes.bfloat16)])
    assert out.dtype == ml_dtypes.bfloat16
    assert out.tolist() == [2, 2]


class Trouble(Exception):
    pass


@pytest.mark.parametrize("way", WAYS, ids=["fast", "plain", "ctypes"])
@pytest.mark.parametrize("kind", [Trouble, KeyboardInterrupt, SystemExit])
def test_exceptions_of_callbacks_come_through(way, kind):
    error = kind("here")

    def troublesome(x):
        raise error

    executable = hosted(troublesome, [((), "float64")], [((), "float64")])
    with pytest.raises(kind) as caught:
        way(executable)([np.array(1.0)])
    assert caught.value is error
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert names[-1] == "troublesome"
    assert host.take_error() is None


def test_failing_callbacks_leak_nothing():
    def troublesome(x):
        raise Trouble

    executable = hosted(troublesome, [((50_000,), "float64")], [((50_000,), "float64")] * 2)
    x = ConcreteArray(np.ones(50_000))
    invoke.release_memory()
    references = sys.getrefcount(x), sys.getrefcount(x._value)
    for _ in range(50):
        with pytest.raises(Trouble):
            executable.fast([x])
    gc.collect()
    assert (sys.getrefcount(x), sys.getrefcount(x._value)) == references
    assert native.get().held()[0] == 2
    invoke.release_memory()


@pytest.mark.parametrize(
    "answer",
    [np.ones(2), (np.ones(3), np.ones(3)), np.ones(3, complex), None, ["a", "b", "c"]],
    ids=["shape", "number", "dtype", "none", "text"],
)
def test_callbacks_that_do_not_keep_their_word(answer):
    executable = hosted(lambda x: answer, [((3,), "float64")], [((3,), "float64")])
    with pytest.raises((ValueError, TypeError)):
        executable([np.ones(3)])


def test_callbacks_may_call_programs():
    inner = adder(3)
    executable = hosted(lambda x: inner.fast([x, x])[0], [((3,), "float64")], [((3,), "float64")])
    np.testing.assert_array_equal(executable([np.ones(3)])[0], np.full(3, 3.0))


def test_an_error_stays_in_its_thread():
    barrier = threading.Barrier(2)
    caught = {}

    def function(x):
        barrier.wait(timeout=10)
        raise Trouble(float(x))

    executable = hosted(function, [((), "float64")], [])

    def work(value):
        try:
            executable.fast([np.array(value)])
        except Trouble as error:
            caught[value] = error.args[0]

    workers = [threading.Thread(target=work, args=(v,)) for v in (1.0, 2.0)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert caught == {1.0: 1.0, 2.0: 2.0}


@pytest.mark.parametrize("way", WAYS, ids=["fast", "plain", "ctypes"])
def test_ctrl_c_stops_a_program(way):
    executable = load.load(Emitted(spin(), [("symbol", "fnx_poll")]), [], [((), "int8")], 0)
    assert executable.release_gil
    call = way(executable)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    start = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            call([])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert 0.1 < time.monotonic() - start < 5


def test_ctrl_c_from_the_keyboard():
    executable = load.load(Emitted(spin(), [("symbol", "fnx_poll")]), [], [((), "int8")], 0)
    # A shell starts background jobs with SIGINT ignored; the program would then never end.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            executable.fast([])
    finally:
        signal.signal(signal.SIGINT, before)


def test_handlers_that_do_not_raise_do_not_stop_a_program():
    seen = []

    def second(*_):
        seen.append(time.monotonic())
        if len(seen) == 3:
            raise Trouble

    before = signal.signal(signal.SIGALRM, second)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    try:
        executable = load.load(Emitted(spin(), [("symbol", "fnx_poll")]), [], [], 0)
        with pytest.raises(Trouble):
            executable.fast([])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(seen) == 3


def test_poll_is_cheap():
    address = invoke.library.resolve("fnx_poll")
    loop = """
define i64 @loop(ptr %poll, i64 %n) nounwind {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %head ]
  %answer = call i32 %poll()
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %head, label %done
done:
  ret i64 %next
}
"""
    code = invoke.native.machine.code(loop, ("loop",))
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
    run = kind(code.addresses["loop"])
    spans = []
    for _ in range(5):
        start = time.perf_counter()
        run(address, 100_000)
        spans.append((time.perf_counter() - start) / 100_000)
    assert min(spans) < 1e-6


_AT_EXIT = """
import numpy as np
from llvm_texts import Emitted, axpy
from fnx.lowering.runtime import load
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
    env = {**os.environ, "PYTHONPATH": str(repository / "tests")}
    done = subprocess.run(
        [sys.executable, "-c", _AT_EXIT], env=env, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
