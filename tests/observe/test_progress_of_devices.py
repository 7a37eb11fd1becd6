"""Loops that devices run side by side have bars, too, and say where Ctrl-C stopped them."""

import contextlib
import os
import re
import signal
import threading
import time

import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config
from fnx.lowering.cpu.loader import progress as records
from fnx.transforms.traced_program import BACKEND

pytestmark = pytest.mark.own_code
PATIENCE = 30  # seconds for another thread to do what takes it milliseconds


@pytest.fixture(autouse=True)
def _apart(monkeypatch):
    """Two devices, each with a thread of its own."""
    monkeypatch.setattr(type(BACKEND), "team_pays", lambda self, size, work, exchanges: True)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    fnx.clear_caches()
    with config.num_devices(2):
        yield
    signal.signal(signal.SIGINT, before)


def alone(x, n=1000):
    return lax.scan(lambda c, _: (jnp.sin(c) * 0.999, None), x, None, length=n)[0]


def together(x, n=1000):
    return lax.scan(lambda c, _: (lax.pmean(c, "i") * 0.999, None), x, None, length=n)[0]


def mapped(f):
    return fnx.pmap(f, axis_name="i")


@pytest.mark.parametrize("f", [alone, together])
def test_the_loop_of_all_devices_counts_once(f, seen):
    compiled = mapped(f)
    compiled(jnp.ones(2))  # without bars, which is another program
    assert seen == []
    for _ in range(2):
        with fnx.progress():
            compiled(jnp.ones(2))
    loops = [r for r in seen if isinstance(r, records.Slowest)]
    assert [(r.done, r.total, r.state) for r in loops] == [(1000, 1000, records.DONE)] * 2
    assert all("test_progress_of_devices.py" in r.site.short for r in loops)


def test_both_sweeps_of_a_gradient_count(seen):
    with fnx.progress():
        mapped(fnx.grad(alone))(jnp.ones(2))
    assert [(r.site.backward, r.done) for r in seen] == [(False, 1000), (True, 1000)]


def test_the_device_that_is_behind_is_shown():
    site = records.LoopSite("scan", None)
    devices = [records.Record(site) for _ in range(3)]
    loop = records.Slowest(devices)
    assert (loop.done, loop.state) == (0, 0)
    devices[0].tell(7, 9, records.RUNNING)
    devices[1].tell(5, 9, records.RUNNING)
    assert (loop.done, loop.total, loop.state) == (5, 9, records.RUNNING)
    assert str(loop) == "iteration 5 of 9 of scan, on device 1"
    devices[1].tell(9, 9, records.DONE)
    assert (loop.done, loop.state) == (7, records.RUNNING)
    devices[0].tell(9, 9, records.DONE)
    assert (loop.done, loop.state) == (9, records.DONE)
    loop.reset()
    assert (loop.done, loop.state) == (0, 0)


def test_control_c_says_where_devices_were():
    n = 10**11

    @contextlib.contextmanager
    def watch(loops):
        def press():
            end = time.monotonic() + PATIENCE
            while loops[-1].done == 0 and time.monotonic() < end:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=press, daemon=True).start()
        yield

    f = mapped(lambda x: alone(x, n))
    records.watch.append(watch)
    try:
        with fnx.progress(), pytest.raises(KeyboardInterrupt) as error:
            f(jnp.ones(2))
    finally:
        records.watch.remove(watch)
    place = f"scan at {re.escape(__file__)}:{alone.__code__.co_firstlineno + 1} \\(alone\\)"
    text = str(error.value)
    assert re.fullmatch(f"stopped in iteration [1-9][0-9]* of {n} of {place}, on device [01]", text)


# One that is heard where Python itself forgets a weak reference is lost, and said to be.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_control_c_names_the_loops_of_devices_that_are_not_observed():
    f = mapped(lambda x: alone(x, 10**11))
    over = threading.Event()

    def press():  # again and again, as what is heard before the program runs is not what is looked for
        while not over.wait(0.3):
            os.kill(os.getpid(), signal.SIGINT)

    found = ""
    threading.Thread(target=press, daemon=True).start()
    end = time.monotonic() + PATIENCE
    try:
        while "compiled code" not in found and time.monotonic() < end:
            try:
                f(jnp.ones(2))
            except KeyboardInterrupt as error:
                found = str(error)
    finally:
        over.set()
    assert re.search(r"compiled code of .*: scan at .*py:\d+ \(alone\)", found), found
