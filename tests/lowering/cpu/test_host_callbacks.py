"""Calls that call back: results, exceptions, threads; and calls that Ctrl-C stops."""

import ctypes
import gc
import os
import signal
import sys
import threading
import time
import traceback
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from llvm_texts import Emitted, adder, call_host, spin

from fnx.core.array import ConcreteArray
from fnx.lowering.cpu.loader import executable as invoke
from fnx.lowering.cpu.loader import load
from fnx.lowering.cpu.runtime import call_wrapper_loader, host_callbacks


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
    assert host_callbacks.take_error() is None


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
    assert call_wrapper_loader.get().held()[0] == 2
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
    address = invoke.symbols.resolve("fnx_poll")
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
    code = invoke.call_wrapper_loader.code_cache.code(loop, ("loop",))
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
    run = kind(code.addresses["loop"])
    spans = []
    for _ in range(5):
        start = time.perf_counter()
        run(address, 100_000)
        spans.append((time.perf_counter() - start) / 100_000)
    assert min(spans) < 1e-6


def test_a_signal_before_the_first_line_of_a_callback(monkeypatch):
    """Nothing that a callback says can catch it; the program ends all the same, with that error."""

    class Early(host_callbacks.Callback):
        def _enter(self, pointers):
            if not begun:
                begun.append(1)
                raise Trouble("early")
            return super()._enter(pointers)

    begun = []

    monkeypatch.setattr(host_callbacks, "Callback", Early)
    monkeypatch.setattr(
        sys, "unraisablehook", host_callbacks._keep_early_error(sys.__unraisablehook__)
    )
    executable = hosted(lambda x: x, [((), "float64")], [((), "float64")])
    twice = lambda: [executable([np.array(1.0)]) for _ in range(2)]
    with pytest.raises(
        Trouble, match="early"
    ):  # what ctypes returns is anything: the first may go well
        twice()
    assert executable([np.array(1.0)])[0] == 1.0
