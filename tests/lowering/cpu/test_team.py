"""Teams: their threads and memory whatever becomes of them."""

import gc
import os
import subprocess
import sys
import time

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config
from fnx.lowering.cpu.loader import team
from fnx.lowering.cpu.runtime import host_callbacks

pytestmark = pytest.mark.skipif(not team.can_wait(), reason="no threads that wait here")
ALL = (((0, 1, 2, 3),),)


def threads() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/task"))


def ended(before: int) -> bool:
    """Whether there are as few threads as before, or will be soon."""
    end = time.monotonic() + 20
    while threads() > before and time.monotonic() < end:
        time.sleep(0.01)
    return threads() <= before


def test_threads_end_with_their_team_wherever_it_is_dropped():
    before, of_others = threads(), set(team._in_use)
    for _ in range(20):
        team.Team(4, ALL)
    assert set(team._in_use) <= of_others
    assert ended(before)


def test_where_a_thread_is_missing_the_others_end():
    """A limit of memory leaves room for the stacks of some of the threads."""
    program = """
import os, resource
import fnx.numpy
from fnx.core.transport import TransportError
from fnx.lowering.cpu.loader import team
ALL = ((tuple(range(40)),),)
class Program:
    inputs, outputs, workspace_bytes = (), (), 0
program = team.TeamProgram(Program(), 40, ALL, [], "", list)
team.Team(2, (((0, 1),),))  # which loads what all need
before = len(os.listdir("/proc/self/task"))
with open("/proc/self/statm", encoding="ascii") as f:
    pages = int(f.read().split()[0])
most = pages * resource.getpagesize() + (60 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
try:
    program.run([()] * 40, [()] * 40)
    raise SystemExit("40 threads were had")
except TransportError as error:
    assert "40 devices need threads" in str(error), error
assert not team._in_use
for _ in range(2000):
    if len(os.listdir("/proc/self/task")) <= before:
        break
    os.sched_yield()
else:
    raise SystemExit("threads are left")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_nothing_is_kept_of_threads_that_called_back():
    kind = fnx.ShapeDtypeStruct((), "float64")
    with config.num_devices(2):
        f = fnx.pmap(lambda x: lax.psum(fnx.pure_callback(np.asarray, kind, x), "i"), axis_name="i")
        np.testing.assert_array_equal(f(np.array([1.0, 2.0])), [3.0, 3.0])
    assert not host_callbacks.contexts


@pytest.mark.parametrize(
    "huge",
    [
        lambda x: lax.all_gather(jnp.zeros(2**40) * x, "i").sum(),
        lambda x: jnp.zeros(2**40) * lax.psum(x, "i"),
    ],
    ids=["work", "results"],
)
def test_too_large_programs_of_members_name_bytes_and_break_nothing(huge):
    before = threads()
    with config.num_devices(2):
        with pytest.raises(MemoryError, match="bytes") as found:
            fnx.pmap(huge, axis_name="i")(np.zeros(2))
        assert isinstance(found.value, fnx.errors.FnxError), found.value
        f = fnx.pmap(lambda x: lax.psum(x, "i"), axis_name="i")
        np.testing.assert_array_equal(f(np.ones(2)), [2.0, 2.0])
    del f, found
    fnx.clear_caches()
    assert ended(before)
