"""Forked children find no lock held by a thread that is not there."""

import faulthandler
import os
import random
import re
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.threads.fork_safety import cached_property, fork_safe

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
PATIENCE = 60  # seconds


def in_child(run) -> int:
    """The status of a forked child that runs this, and ends itself if that takes too long."""
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        try:
            run()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("patience", [0, 0.1])
def test_a_lock_that_another_thread_holds_is_free_in_the_child(patience):
    lock = fork_safe(threading.RLock(), patience)
    held, end = threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            end.wait()

    def use():
        assert lock.acquire(timeout=10)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    try:
        assert in_child(use) == 0
        assert not lock.acquire(blocking=False)  # here it is held as before
    finally:
        end.set()
        holder.join()


@pytest.mark.parametrize("patience", [0, 0.1])
def test_a_lock_that_the_forking_thread_holds_stays_its_own(patience):
    lock = fork_safe(threading.RLock(), patience)

    def leave():
        lock.release()
        taken = []
        other = threading.Thread(target=lambda: taken.append(lock.acquire(timeout=10)))
        other.start()
        other.join()
        assert taken == [True]

    with lock:
        assert in_child(leave) == 0


def test_cached_properties_hold_no_lock():
    begun, end = threading.Event(), threading.Event()

    class Slow:
        @cached_property
        def value(self):
            if threading.current_thread() is not threading.main_thread():
                begun.set()
                end.wait()
            return 3

    other = threading.Thread(target=lambda: Slow().value)
    other.start()
    begun.wait()
    try:
        thing = Slow()
        assert in_child(lambda: Slow().value) == 0
        assert thing.value == thing.__dict__["value"] == 3
    finally:
        end.set()
        other.join()


def test_locks_of_modules_are_fork_safe(repository):
    """All that are made when a module is imported go through the helper."""
    bare = re.compile(r"^\w+(: \w+)? = (threading\.)?(R?Lock|Condition|Semaphore)\(", re.MULTILINE)
    cached = re.compile(r"^from functools import .*\bcached_property\b(?! as)", re.MULTILINE)
    folders = ("fnx", "lowering", "interpreters")
    files = [p for folder in folders for p in Path(repository, folder).rglob("*.py")]
    found = [p for p in files if bare.search(p.read_text()) or cached.search(p.read_text())]
    assert not found


def forks() -> None:
    """Forks at random moments while threads compile; each child compiles and runs."""

    def compile_all(k):
        for i in range(10_000):
            c = i + k / 10
            fnx.jit(lambda x, c=c: jnp.sort(x * c) + (x[:, None] * x).sum(0))(np.ones(5 + i % 7))

    for k in range(2):
        threading.Thread(target=compile_all, args=(k,), daemon=True).start()
    moments = random.Random(0)

    def compile_one():
        c = moments.random()
        x = np.arange(6.0)
        np.testing.assert_allclose(fnx.jit(lambda x: jnp.cos(x * c))(x), np.cos(x * c))

    for _ in range(8):
        time.sleep(moments.random() * 0.3)
        status = in_child(compile_one)
        if status:
            os._exit(2)
    os._exit(0)


@pytest.mark.slow
def test_children_compile_though_their_parent_compiled():
    program = "from tests.core.test_fork_safety import forks; forks()"
    ended = subprocess.run(
        [sys.executable, "-c", program], timeout=600, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr


def test_collections_are_on_again_in_a_child_of_one_who_compiled():
    """Compiling stops the search for cycles; the thread that would let it go on is not there."""
    program = """
import gc, os, threading
import numpy as np
import fnx
from fnx.transforms import traced_program
inside, end = threading.Event(), threading.Event()
def wait():
    with traced_program.without_collections():
        inside.set()
        end.wait()
other = threading.Thread(target=wait, daemon=True)
other.start()
inside.wait()
child = os.fork()
if child == 0:
    os._exit(0 if gc.isenabled() else 1)
assert not gc.isenabled()
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=PATIENCE).returncode == 0
