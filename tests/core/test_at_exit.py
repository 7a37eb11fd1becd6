"""A process ends quietly, soon and with its own status, whatever its daemon threads are doing."""

import subprocess
import sys
import time

import pytest

PRELUDE = """
import sys, threading, time
import numpy as np
import fnx
import fnx.numpy as jnp
from fnx import lax

def for_ever(step, x):
    return fnx.jit(lambda x: lax.fori_loop(0, 10**10, lambda _, c: step(c), x))(x)

def callbacks(k, wait=0.0):
    def host(x):
        time.sleep(wait)
        return np.asarray(np.float64(x) * 0.5)
    kind = fnx.ShapeDtypeStruct((), "float64")
    for_ever(lambda c: fnx.pure_callback(host, kind, c), k)

def slow_callbacks(k):
    callbacks(k, 0.05)

def loops(k):
    for_ever(jnp.sin, k)

def arrays(k):
    for_ever(lambda c: jnp.sin(c @ c * 1e-3 + c), jnp.ones((200, 200)) * k)

def lanes(k):
    each = lambda x, n: lax.fori_loop(0, n, lambda _, c: jnp.sin(c), x)
    fnx.jit(fnx.vmap(each))(jnp.ones(4000) * k, jnp.full(4000, 10**9))

def compiling(k):
    for i in range(10**6):
        fnx.jit(lambda x: jnp.sort(x * (i + k)) + (x[:, None] * x).sum(0))(np.ones(5 + i % 7))

def calls(k):
    f = fnx.jit(lambda x: {"a": jnp.sin(x["a"]) + 1})
    x = {"a": k}
    while True:
        x = f(x)

def eager(k):
    while True:
        fnx.tree.map(lambda a, b: a * b, {"a": jnp.ones(3)}, {"a": jnp.ones(3) * k})

for k in range(3):
    threading.Thread(target=globals()[sys.argv[1]], args=(k + 1.0,), daemon=True).start()
time.sleep(0.7)
"""
ENDS = {"": 0, "sys.exit(7)": 7, "raise ValueError('the end')": 1}
KINDS = "callbacks slow_callbacks loops arrays lanes compiling calls eager".split()


# Threads meet what comes after the end of a program, whichever end it was: of those, one kind sees all.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "end"),
    [
        *((kind, "raise ValueError('the end')") for kind in KINDS),
        ("calls", ""),
        ("calls", "sys.exit(7)"),
    ],
)
def test_the_end(kind, end):
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", PRELUDE + end, kind], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == ENDS[end], ended.stderr
    assert "terminate" not in ended.stderr
    lines = ended.stderr.splitlines()
    assert lines[-1:] == (["ValueError: the end"] if "Value" in end else []), ended.stderr
    assert time.monotonic() - began < 30


def test_threads_outside_fnx_are_let_be():
    program = """
import threading, time
import fnx
def wait():
    try:
        time.sleep(100)
    finally:
        print("told to end")
threading.Thread(target=wait, daemon=True).start()
time.sleep(0.1)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_exit_functions_that_a_program_calls_itself_leave_it_whole():
    run = """
import atexit, sys, threading
import fnx, fnx.numpy as jnp
stop = threading.Event()
thread = threading.Thread(target=stop.wait)
thread.start()
before = sys.getswitchinterval()
atexit._run_exitfuncs()
assert fnx.tree_util.tree_leaves((1, {"a": 2})) == [1, 2]
assert fnx.jit(lambda t: t["a"] + 1)({"a": 2}) == 3
assert sys.getswitchinterval() == before
stop.set()
"""
    subprocess.run([sys.executable, "-c", run], check=True, timeout=100)
