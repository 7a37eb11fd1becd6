"""Devices that raise, are interrupted, fork, or are more than there are processors."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from contextvars import copy_context

import numpy as np
import pytest
from agreement import close
from teams import WAITING, both, mapped

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.sharding import PartitionSpec as P

RNG = np.random.default_rng(5)
pytestmark = WAITING


@pytest.mark.parametrize("bad", range(3))
def test_a_device_that_raises_ends_the_others(bad, runs):
    def check(k):
        if k == bad:
            raise KeyError("mine")
        return k

    def f(x):
        k = fnx.pure_callback(check, fnx.ShapeDtypeStruct((), np.int32), lax.axis_index("i"))
        return lax.psum(x * k, "i")

    g = fnx.pmap(f, axis_name="i")
    for _ in range(3):
        with pytest.raises(KeyError, match="mine"):
            g(jnp.arange(3.0))
    both(mapped(lambda x: lax.psum(x, "i")), np.arange(3.0), runs=runs)  # others still run


def test_debug_nans_names_the_line(runs):
    g = fnx.pmap(lambda x: lax.psum(jnp.log(x), "i"), axis_name="i")
    g(jnp.arange(4.0) + 1)
    with fnx.debug_nans(), pytest.raises(FloatingPointError, match="log"):
        g(jnp.arange(4.0) - 1)


def test_devices_in_devices(runs):
    """A program of devices that a device calls back."""
    inner = fnx.pmap(lambda x: lax.psum(x, "j"), axis_name="j")

    def host(x):
        return np.asarray(inner(jnp.stack([x, 2 * x])))[0]

    def f(x):
        y = fnx.pure_callback(host, fnx.ShapeDtypeStruct((), np.float64), x)
        return lax.psum(y, "i")

    both(mapped(f), np.arange(3.0), runs=runs)


def test_programs_that_callbacks_call(runs):
    devices = fnx.make_mesh((4,), ("d",))
    over = lambda f: fnx.jit(fnx.shard_map(f, mesh=devices, in_specs=P("d"), out_specs=P("d")))
    inner = over(lambda x: lax.psum(fnx.pure_callback(np.sin, x, x), "d") * x)

    def other(x):
        return np.asarray(inner(np.tile(x, 4)))[: len(x)]

    outer = over(lambda x: fnx.pure_callback(other, x, x) - lax.pmax(x, "d"))
    x = np.arange(8.0)
    for _ in range(2):
        close(outer(x), 4 * np.sin(x) * x - np.tile([6.0, 7.0], 4))

    def failing(x):
        raise ValueError("in the program within")

    inner = over(lambda x: lax.psum(fnx.pure_callback(failing, x, x), "d"))
    with pytest.raises(ValueError, match="in the program within"):
        outer(x)


def test_threads_of_the_user_call_at_once(runs):
    f = fnx.jit(mapped(lambda x: x + lax.psum(x, "i")))
    xs = [jnp.asarray(RNG.normal(size=(2, 50))) for _ in range(4)]
    found = [None] * 4

    def work(k):
        for _ in range(30):
            found[k] = f(xs[k])

    threads = [threading.Thread(target=copy_context().run, args=(work, k)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for x, y in zip(xs, found, strict=True):
        close(y, np.asarray(x) + np.asarray(x).sum(0))


def test_more_devices_than_processors(runs):
    def f(x):
        return lax.scan(
            lambda c, _: (lax.psum(c, "i") / 8 + lax.axis_index("i"), None), x, None, 50
        )[0]

    both(mapped(f), np.arange(8.0), runs=runs)


_CTRL_C = """
import signal, sys, numpy as np, fnx, fnx.numpy as jnp
from fnx import lax
from fnx.sharding import PartitionSpec as P
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.cpu.loader import team
thresholds.TEAM = -1
team.processors = lambda: 2
fnx.config.update("num_devices", 2)

def f(x):
    def body(c):
        return c[0] + 1, lax.psum(c[1], "i") * 0.5
    return lax.while_loop(lambda c: c[0] >= 0, body, (jnp.int64(0), x))[1]

signal.signal(signal.SIGINT, signal.default_int_handler)  # which background jobs of shells ignore
g = fnx.jit(fnx.pmap(f, axis_name="i")).lower(jnp.ones(2))
print("ready", flush=True)
try:
    fnx.pmap(f, axis_name="i")(jnp.ones(2))
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(fnx.pmap(lambda x: lax.psum(x, "i"), axis_name="i")(jnp.ones(2)))
"""


def test_threads_end_with_their_program(runs):
    def threads():
        gc.collect()
        return set(os.listdir("/proc/self/task"))

    others = threads()  # of teams of other tests, which may end meanwhile
    f = mapped(lambda x: lax.psum(x * 3, "i"))
    f(jnp.arange(2.0))
    own = threads() - others
    assert own
    f(jnp.arange(2.0))
    assert own <= threads() <= own | others
    del f
    end = time.monotonic() + 20
    while own & threads() and time.monotonic() < end:
        time.sleep(0.01)
    assert not own & threads()


@pytest.mark.slow
def test_ctrl_c():
    command = [sys.executable, "-c", _CTRL_C]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline().strip() == "ready"
            time.sleep(2)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert out.split() == ["interrupted", "[2.", "2.]"]


def test_a_forked_child_makes_threads_of_its_own(runs):
    f = mapped(lambda x: lax.psum(x, "i"))
    f(jnp.arange(2.0))
    pid = os.fork()
    if not pid:
        os._exit(0 if float(f(jnp.arange(2.0))[0]) == 1.0 else 1)
    assert os.waitpid(pid, 0)[1] == 0
