"""The thread pool: each round once, whoever calls, however often, after forks too."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from thread_tasks import TASKS, parallel_for

from fnx.core.errors import InvalidValue
from fnx.lowering.cpu.jit import code_cache
from fnx.lowering.cpu.runtime import thread_pool


@pytest.fixture(scope="module")
def tasks():
    code = code_cache.code(TASKS, ("count", "nested", "who"))
    yield code.addresses
    assert code.keep  # while this lives, so does the code


@pytest.fixture(autouse=True)
def _keep_number():
    before = thread_pool.get_num_threads()
    yield
    thread_pool.set_num_threads(before)


@pytest.mark.parametrize("number", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 17, 1000, 100_003])
@pytest.mark.parametrize("grain", [1, 16, 10**6])
def test_each_round_once(tasks, number, n, grain):
    thread_pool.set_num_threads(number)
    counts = np.zeros(n + 1, np.int64)
    for _ in range(20):
        parallel_for(tasks["count"], counts, n, grain)
    assert (counts[:n] == 20).all()
    assert counts[n] == 0


def test_several_threads_take_part(tasks):
    thread_pool.set_num_threads(3)
    owners = np.zeros(1000, np.int64)
    seen: set[int] = set()
    deadline, caller = time.monotonic() + 20, threading.get_ident()
    # Where CPUs are few, others may do all of a loop before they let the caller go on.
    while (len(seen) < 3 or caller not in seen) and time.monotonic() < deadline:
        parallel_for(tasks["who"], owners, 1000, 1)
        assert len(set(owners.tolist())) <= 3
        seen |= set(owners.tolist())
    assert len(seen) >= 3  # in each round the caller and two of those that exist
    assert caller in seen
    assert thread_pool.pool().workers() >= 2


def test_fewer_threads_after_more(tasks):
    for number in (5, 2, 1):
        thread_pool.set_num_threads(number)
        owners = np.zeros(1000, np.int64)
        for _ in range(20):
            parallel_for(tasks["who"], owners, 1000, 1)
            assert len(set(owners.tolist())) <= number


def test_small_loops_stay_with_the_caller(tasks):
    thread_pool.set_num_threads(4)
    owners = np.zeros(100, np.int64)
    parallel_for(tasks["who"], owners, 100, 100)
    assert set(owners.tolist()) == {threading.get_ident()}


def test_short_loops_in_succession_wake_a_thread(tasks):
    thread_pool.set_num_threads(2)
    owners = np.zeros(2, np.int64)
    counts = np.zeros(1000, np.int64)
    parallel_for(tasks["count"], counts, 1000, 1)
    time.sleep(0.05)  # until it sleeps
    deadline = time.monotonic() + 20
    while len(set(owners.tolist())) < 2 and time.monotonic() < deadline:
        parallel_for(tasks["count"], counts, 2, 1)
        parallel_for(tasks["who"], owners, 2, 1)
    assert len(set(owners.tolist())) == 2


def test_nested_loops(tasks):
    thread_pool.set_num_threads(3)
    context = np.zeros(1 + 40 * 50, np.int64)
    context[0] = thread_pool.address()
    for _ in range(50):
        parallel_for(tasks["nested"], context, 40, 1)
    assert (context[1:] == 50).all()


def test_many_callers_at_once(tasks):
    thread_pool.set_num_threads(3)
    bad = []

    def call() -> None:
        counts = np.zeros(3000, np.int64)
        for _ in range(500):
            parallel_for(tasks["count"], counts, 3000, 10)
        if not (counts == 500).all():
            bad.append(counts)

    callers = [threading.Thread(target=call) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert bad == []


_FORK = """
import ctypes, os, sys
import numpy as np
sys.path.insert(0, {tests!r})
from thread_tasks import TASKS, parallel_for
from fnx.lowering.cpu.jit import code_cache
from fnx.lowering.cpu.runtime import thread_pool
code = code_cache.code(TASKS, ("count", "nested", "who"))
tasks = code.addresses
thread_pool.set_num_threads(3)

def work():
    counts = np.zeros(30000, np.int64)
    for _ in range(50):
        parallel_for(tasks["count"], counts, 30000, 10)
    assert (counts == 50).all()
    assert thread_pool.pool().workers() == 2, thread_pool.pool().workers()

work()
for _ in range(3):
    child = os.fork()
    if child == 0:
        work()
        os._exit(7)
    work()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print("good")
"""


def test_threads_start_anew_after_a_fork(repository):
    script = _FORK.format(tests=str(repository / "tests" / "support"))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "good\n", done.stderr


def test_workers_leave_signals_to_python(tasks):
    thread_pool.set_num_threads(3)
    parallel_for(tasks["count"], np.zeros(30000, np.int64), 30000, 1)
    masks = {}
    for task in os.listdir("/proc/self/task"):
        text = Path(f"/proc/self/task/{task}/status").read_text()
        masks[int(task)] = int(text.split("SigBlk:")[1].split()[0], 16)
    sigint = 1 << (2 - 1)
    assert sum(bool(mask & sigint) for mask in masks.values()) >= 2
    assert not masks[os.getpid()] & sigint


@pytest.mark.parametrize("n", [0, -1, 1.5, "2", None, 10**6])
def test_bad_numbers_of_threads(n):
    before = thread_pool.get_num_threads()
    with pytest.raises(InvalidValue, match="number of threads"):
        thread_pool.set_num_threads(n)
    assert thread_pool.get_num_threads() == before


def test_number_from_the_environment(monkeypatch):
    monkeypatch.setenv("FNX_NUM_THREADS", "3")
    assert thread_pool.default_threads() == 3
    for bad in ("0", "many", "-2", "1e3"):
        monkeypatch.setenv("FNX_NUM_THREADS", bad)
        with pytest.raises(InvalidValue, match="FNX_NUM_THREADS"):
            thread_pool.default_threads()
    monkeypatch.delenv("FNX_NUM_THREADS")
    assert 1 <= thread_pool.default_threads() <= len(os.sched_getaffinity(0))


def test_affinity():
    all_cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(all_cpus)})
    try:
        assert thread_pool.available_cpus() == 1
    finally:
        os.sched_setaffinity(0, all_cpus)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("150000 100000", 2),
        ("100000 100000", 1),
        ("max 100000", None),
        ("10000 100000", 1),
        ("", None),
    ],
)
def test_quota_of_control_groups(tmp_path, text, cpus):
    own = tmp_path / "cgroup"
    own.write_text("0::/slice/job\n")
    root = tmp_path / "fs"
    (root / "slice" / "job").mkdir(parents=True)
    (root / "slice" / "cpu.max").write_text(text)
    assert thread_pool.quota(root, own) == (cpus or thread_pool._MOST)
    own.write_text("3:cpu,cpuacct:/job\n2:memory:/job\n")
    (root / "cpu" / "job").mkdir(parents=True)
    quota, period = text.split() if text else ("-1", "100000")
    (root / "cpu" / "job" / "cpu.cfs_quota_us").write_text(quota.replace("max", "-1"))
    (root / "cpu" / "job" / "cpu.cfs_period_us").write_text(period)
    assert thread_pool.quota(root, own) == (cpus or thread_pool._MOST)
    assert thread_pool.quota(root, tmp_path / "absent") == thread_pool._MOST
