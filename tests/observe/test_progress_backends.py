"""Loops of other backends tell how far they are, too, and say where Ctrl-C stopped them."""

import contextlib
import io
import os
import signal
import sys
import threading
import time
from functools import partial

import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.experimental import checkify
from fnx.lowering.cpu.loader import progress as records
from fnx.observe import progress as bars

BACKENDS = ["numba", "reference"]
PATIENCE = 30  # seconds


def step(c, _):
    return jnp.sin(c), c


LOOPS = {
    "scan": lambda x: lax.scan(step, x, None, length=300)[0],
    "reverse": lambda x: lax.scan(step, x, None, length=300, reverse=True)[0],
    "fori": lambda x: lax.fori_loop(0, 300, lambda i, c: jnp.sin(c), x),
    "while": lambda x: lax.while_loop(lambda c: c[0] < 300, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x))[1],
    "nested": lambda x: lax.scan(lambda c, _: lax.scan(step, c, None, length=3), x, None, length=300)[0],
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", LOOPS)
def test_loops_count(name, backend, seen):
    f = fnx.jit(LOOPS[name], backend=backend)
    with fnx.progress():
        shown = f(0.7)
    (record,) = seen
    assert (record.done, record.state) == (300, records.DONE)
    assert record.total == 300
    assert f(0.7) == shown
    assert len(seen) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_loop_asks_for_itself_and_gradients_have_two(backend, seen):
    ask = lambda x: lax.scan(step, x, None, length=300, progress=True)[0]
    fnx.jit(ask, backend=backend)(0.7)
    assert [r.done for r in seen] == [300]
    seen.clear()
    fnx.jit(fnx.grad(ask), backend=backend)(0.7)
    assert [(r.site.backward, r.done) for r in seen] == [(False, 300), (True, 300)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_bar_is_drawn(backend, monkeypatch):
    monkeypatch.setattr(bars, "EVERY", 0.001)
    monkeypatch.setattr(sys, "stderr", io.StringIO())

    def wait(k):
        end = time.monotonic() + PATIENCE
        while "scan test_progress_b" not in sys.stderr.getvalue() and time.monotonic() < end:
            time.sleep(0.001)

    def body(c, k):
        fnx.debug.callback(wait, k)
        return c + 1, None

    f = fnx.jit(lambda c: lax.scan(body, c, jnp.arange(5), progress=True)[0], backend=backend)
    assert f(0) == 5
    assert "5/5" in sys.stderr.getvalue()


@pytest.mark.parametrize("backend", BACKENDS)
def test_control_c_says_the_iteration(backend, monkeypatch):
    monkeypatch.setattr(records, "watch", [])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    @contextlib.contextmanager
    def watch(loops):
        def press():
            end = time.monotonic() + PATIENCE
            while loops[0].done == 0 and time.monotonic() < end:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=press, daemon=True).start()
        yield

    records.watch.append(watch)
    f = lambda x: lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=10**11)[0]
    try:
        with pytest.raises(KeyboardInterrupt) as error, fnx.progress():
            fnx.jit(f, backend=backend)(0.5)
    finally:
        signal.signal(signal.SIGINT, before)
    text = str(error.value)
    assert text.startswith("stopped in iteration ")
    assert 0 < int(text.split()[3]) < 10**11
    assert f"of scan at {__file__}:" in text


def test_nothing_is_left_without_observation():
    f = fnx.jit(LOOPS["scan"], backend="numba")
    before = f.lower(0.7).as_text("numba")
    with fnx.progress():
        assert "tell(" in f.lower(0.7).as_text("numba")
    assert "tell(" not in before
    assert f.lower(0.7).as_text("numba") == before


@pytest.mark.parametrize("backend", BACKENDS)
def test_checks_are_no_loops(backend):
    """They know their places, too."""

    @partial(fnx.jit, backend=backend)
    def f(x):
        checkify.check(x > 0, "got {x}", x=x)
        return x

    with fnx.progress(), pytest.raises(ValueError, match=r"got -1\.0"):
        f(-1.0)
