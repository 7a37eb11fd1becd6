"""Compiled loops tell how far they are, show bars, and say where Ctrl-C stopped them."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.lowering.cpu.loader import progress as records
from fnx.observe import progress as bars

PATIENCE = 30  # seconds for another thread to do what takes it milliseconds


def step(c, _):
    return jnp.sin(c) * 0.999, c


def by_scan(x, **kw):
    return lax.scan(step, x, None, length=1000, **kw)[0]


def by_fori(x, **kw):
    return lax.fori_loop(0, 1000, lambda i, c: jnp.sin(c), x, **kw)


def by_while(x, **kw):
    return lax.while_loop(lambda c: c[0] < 1000, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x), **kw)[
        1
    ]


def by_map(x, **kw):
    return lax.map(by_fori, x * jnp.arange(1000.0), **kw).sum()


def uneven(x, **kw):
    """A loop per member, of lengths of their own."""
    one = lambda n: lax.while_loop(
        lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 0.9), (0, x), **kw
    )
    return fnx.vmap(one)(jnp.arange(1000))[1].sum()


LOOPS = {f.__name__: f for f in (by_scan, by_fori, by_while, by_map, uneven)}


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("compiled", [False, True])
def test_every_kind_of_loop_counts(name, compiled, seen):
    f = LOOPS[name]
    with fnx.progress():
        (fnx.jit(f) if compiled else f)(0.7)
    (record,) = [r for r in seen if r.site.kind != "loop"]
    assert (record.done, record.state) == (1000, records.DONE)
    assert record.total == (None if name == "by_while" else 1000)
    assert f"{os.path.basename(__file__)}:" in record.site.short


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_can_ask_for_itself(name, seen):
    f = LOOPS[name]
    fnx.jit(f)(0.7)
    assert seen == []
    result = fnx.jit(lambda x: f(x, progress=True))(0.7)
    assert [(r.done, r.state) for r in seen] == [(1000, records.DONE)]
    assert result == fnx.jit(f)(0.7)


def test_batches_count_once(seen):
    with fnx.progress():
        fnx.jit(fnx.vmap(by_scan))(jnp.ones(7))
        fnx.pmap(by_scan)(jnp.ones(1))
    assert [r.done for r in seen] == [1000, 1000]


@pytest.mark.parametrize("name", ["by_scan", "by_fori"])
def test_both_sweeps_of_a_gradient_count(name, seen):
    with fnx.progress():
        fnx.jit(fnx.grad(LOOPS[name]))(0.7)
    assert [(r.site.backward, r.done) for r in seen] == [(False, 1000), (True, 1000)]


def test_loops_inside_others_have_none_of_their_own(seen):
    with fnx.progress():
        fnx.jit(lambda x: lax.scan(lambda c, _: (by_scan(c), None), x, None, length=30)[0])(0.7)
    assert [r.done for r in seen] == [30]


def test_loops_in_branches_count_where_they_run(seen):
    f = lambda x: lax.switch(
        jnp.int32(x), [lambda x: x, by_scan, lambda x: by_fori(by_while(x))], x
    )
    ran = []
    with fnx.progress():
        for call, x in ((fnx.jit(f), 1.5), (fnx.jit(f), 2.5), (f, 2.5)):
            call(x)
            ran.append({r.site.kind: r.done for r in seen if r.state == records.DONE})
            seen.clear()
    both = {"while_loop": 1000, "fori_loop": 1000}
    assert ran == [{"scan": 1000}, both, both]


@pytest.mark.own_code
def test_nothing_is_left_without_observation():
    f = fnx.jit(by_scan)
    before = f.lower(0.7).as_text("llvm")
    with fnx.progress():
        shown = f.lower(0.7).as_text("llvm")
        f(0.7)
    assert "atomic i64" in shown
    assert f.lower(0.7).as_text("llvm") == before
    assert "atomic i64" not in before


def test_calls_within_and_after_are_of_different_programs(seen):
    f = fnx.jit(by_scan)
    for _ in range(3):
        with fnx.progress():
            f(0.7)
        f(0.7)
    assert len(seen) == 3
    try:
        fnx.config.update("progress", True)
        f(0.7), f(0.7)
    finally:
        fnx.config.update("progress", False)
    f(0.7)
    assert len(seen) == 5


def test_the_bar_is_there_while_the_loop_runs(monkeypatch):
    monkeypatch.setattr(bars, "EVERY", 0.001)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    waited = []

    def wait(k):
        end = time.monotonic() + PATIENCE
        while "scan test_progress.py" not in sys.stderr.getvalue() and time.monotonic() < end:
            time.sleep(0.001)
        waited.append("scan test_progress.py" in sys.stderr.getvalue())

    def body(c, k):
        fnx.debug.callback(wait, k)
        return c + 1, None

    assert lax.scan(body, 0, jnp.arange(20), progress=True)[0] == 20
    assert waited == [True] * 20
    assert "20/20" in sys.stderr.getvalue()


def test_text_is_printed_in_order_while_the_loop_runs(capsys):
    seen = []

    def body(c, k):
        fnx.debug.print("before {}", k)
        fnx.debug.callback(lambda k: seen.append(capsys.readouterr().out), k)
        fnx.debug.print("after {}", k)
        return c + 1, None

    fnx.jit(lambda x: lax.scan(body, x, jnp.arange(20)))(0)
    assert seen == ["before 0\n", *(f"after {k - 1}\nbefore {k}\n" for k in range(1, 20))]


@pytest.fixture(autouse=True)
def _heard():
    """Ctrl-C is heard: a shell starts background jobs with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(f, *args):
    """What Ctrl-C says, which comes once the loop of f has gone a part of its way."""
    message = []

    @contextlib.contextmanager
    def watch(loops):
        def press():
            end = time.monotonic() + PATIENCE
            while loops[-1].done == 0 and time.monotonic() < end:
                time.sleep(0.001)
            signal.raise_signal(signal.SIGINT) if os.name == "nt" else os.kill(
                os.getpid(), signal.SIGINT
            )

        threading.Thread(target=press, daemon=True).start()
        yield

    records.watch.append(watch)
    try:
        with pytest.raises(KeyboardInterrupt) as error:
            f(*args)
        message.append(str(error.value))
    finally:
        records.watch.remove(watch)
    return message[0]


def long(x):
    return lax.scan(step_alone, x, None, length=10**11)[0]


def step_alone(c, _):
    return jnp.sin(c) * 0.999, None


@pytest.mark.parametrize("make", [fnx.jit, lambda f: f, lambda f: fnx.jit(fnx.vmap(f))])
def test_control_c_says_where_it_stopped(make):
    x = 0.7 if make(long) is long or make is fnx.jit else jnp.ones(3)
    with fnx.progress():
        text = interrupted(make(long), x)
    count = int(text.split()[3])
    assert 0 < count < 10**11
    line = long.__code__.co_firstlineno + 1
    assert text == f"stopped in iteration {count} of {10**11} of scan at {__file__}:{line} (long)"


@pytest.mark.parametrize("backend", ["cpu", "numba"])
def test_control_c_names_the_loops_of_a_program_that_is_not_observed(backend):
    pressed = threading.Event()

    def body(c):
        def press(k):
            if not pressed.is_set():
                pressed.set()
                os.kill(os.getpid(), signal.SIGINT)

        fnx.debug.callback(press, c)
        return c + 1

    def f(x):
        return lax.while_loop(lambda c: c < 10**9, body, x)

    with pytest.raises(
        KeyboardInterrupt, match=r"compiled code of f: while_loop at .*py:"
    ) as error:
        fnx.jit(f, backend=backend)(0)
    assert f":{f.__code__.co_firstlineno + 1} (f)" in str(error.value)


# --- what cannot be shown ------------------------------------------------------------------------


class Broken:
    """A stream to which nothing can be written; tqdm keeps its lock where that happens."""

    def write(self, text):
        raise ZeroDivisionError

    flush = write


def counted(n):
    return fnx.jit(lambda x: lax.fori_loop(0, n, lambda i, c: jnp.sin(c) + 0.25, x))(0.5)


def by_numpy(n):
    x = 0.5
    for _ in range(n):
        x = np.sin(x) + 0.25
    return x


def test_a_stream_that_cannot_be_written_to_costs_no_result_and_no_lock(monkeypatch):
    from tqdm.std import tqdm

    monkeypatch.setattr(bars, "EVERY", 0.001)
    monkeypatch.setattr(sys, "stderr", Broken())
    with fnx.progress():
        for n in (200_000, 300_000):
            np.testing.assert_allclose(counted(n), by_numpy(n), rtol=1e-12)
    free = []

    def look():
        lock = tqdm.get_lock().th_lock
        free.append(lock.acquire(timeout=20))
        if free[0]:
            lock.release()

    other = threading.Thread(target=look)
    other.start()
    other.join()
    assert free == [True]


def test_where_no_thread_can_be_started_there_are_no_bars(monkeypatch):
    def refused(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(bars, "start_new_thread", refused)
    monkeypatch.setattr(bars._monitor, "looks", False)
    with fnx.progress():
        np.testing.assert_allclose(counted(1000), by_numpy(1000), rtol=1e-12)
    assert not bars._monitor.looks


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_forked_child_has_bars_of_its_own(monkeypatch):
    monkeypatch.setattr(bars, "EVERY", 0.001)
    with fnx.progress():
        counted(100_000)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)
            os._exit(0 if np.allclose(counted(100_000), by_numpy(100_000)) else 1)
        assert os.waitpid(child, 0)[1] == 0


PRINTING = """
import fnx, sys, time

def body(c, k):
    fnx.debug.print("at {{}}", k)
    fnx.debug.callback(lambda k: sys.stdin.readline(), k)
    return c + 1, None

{use}
{call}
print("end")
"""
USES = {
    "jit": ("f = fnx.jit(lambda x: fnx.lax.scan(body, x, fnx.numpy.arange(5)))", "f(0)"),
    "eager": ("f = lambda x: fnx.lax.scan(body, x, fnx.numpy.arange(5))", "f(0)"),
    "numba": ("f = fnx.jit(lambda x: fnx.lax.scan(body, x, fnx.numpy.arange(5)), backend='numba')", "f(0)"),
    "grad": (
        "f = fnx.jit(fnx.grad(lambda x: fnx.lax.scan(body, x, fnx.numpy.arange(5))[0]))", "f(0.0)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("use", USES)
def test_a_pipe_gets_each_line_while_the_loop_waits(use):
    """Each iteration goes on only when the line that it printed was read from a pipe."""
    made, call = USES[use]
    with subprocess.Popen(
        [sys.executable, "-c", PRINTING.format(use=made, call=call)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        for k in range(5):
            assert process.stdout.readline() == f"at {k}\n"
            process.stdin.write("\n")
            process.stdin.flush()
        assert process.stdout.readline() == "end\n"


DIES_WITHIN_TQDM = """
import os
from tqdm.std import tqdm
import fnx
import fnx.numpy as jnp
from fnx import lax

lock = tqdm.get_lock().mp_lock  # shared with forked processes
child = os.fork()
if child == 0:
    lock.acquire()
    os._exit(0)
os.waitpid(child, 0)
with fnx.progress():
    f = fnx.jit(lambda x: lax.fori_loop(0, 60_000_000, lambda i, c: jnp.sin(c) + i, x))
    print(0 <= float(f(0.0)) - 59_999_999 <= 1)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_process_that_ended_while_it_drew_stops_no_bar_of_others():
    command = [sys.executable, "-c", DIES_WITHIN_TQDM]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert found.stdout == "True\n"
    assert "fori_loop" in found.stderr
