"""The thread pool: each round once, whoever calls, however often, after forks too."""

import ctypes
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from fnx.core.errors import InvalidValue
from fnx.lowering.runtime import machine, threads

# context: counts[n], then the address of fnx_parallel_for, then the address of a word
TASKS = """
define void @count(ptr %context, i64 %lo, i64 %hi) nounwind {
entry:
  br label %head
head:
  %i = phi i64 [ %lo, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %hi
  br i1 %more, label %body, label %done
body:
  %p = getelementptr i64, ptr %context, i64 %i
  %old = load i64, ptr %p
  %new = add i64 %old, 1
  store i64 %new, ptr %p
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}

define void @nested(ptr %context, i64 %lo, i64 %hi) nounwind {
entry:
  %run_place = getelementptr i64, ptr %context, i64 0
  %run = load ptr, ptr %run_place
  br label %head
head:
  %i = phi i64 [ %lo, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %hi
  br i1 %more, label %body, label %done
body:
  %offset = mul i64 %i, 50
  %shifted = add i64 %offset, 1
  %p = getelementptr i64, ptr %context, i64 %shifted
  call void %run(ptr @count, ptr %p, i64 50, i64 1)
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}

declare i64 @pthread_self()

define void @who(ptr %context, i64 %lo, i64 %hi) nounwind {
entry:
  %me = call i64 @pthread_self()
  br label %head
head:
  %i = phi i64 [ %lo, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %hi
  br i1 %more, label %wait, label %done
wait:
  %k = phi i64 [ 0, %head ], [ %k1, %wait ]
  %k1 = add i64 %k, 1
  %p = getelementptr i64, ptr %context, i64 %i
  store volatile i64 %me, ptr %p
  %ready = icmp sge i64 %k1, 20000
  br i1 %ready, label %body, label %wait
body:
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}
"""


@pytest.fixture(scope="module")
def tasks():
    code = machine.code(TASKS, ("count", "nested", "who"))
    yield code.addresses
    assert code.keep  # while this lives, so does the code


@pytest.fixture(autouse=True)
def _keep_number():
    before = threads.get_num_threads()
    yield
    threads.set_num_threads(before)


def parallel_for(task: int, context: np.ndarray, n: int, grain: int) -> None:
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    kind(threads.address())(task, context.ctypes.data, n, grain)


@pytest.mark.parametrize("number", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 17, 1000, 100_003])
@pytest.mark.parametrize("grain", [1, 16, 10**6])
def test_each_round_once(tasks, number, n, grain):
    threads.set_num_threads(number)
    counts = np.zeros(n + 1, np.int64)
    for _ in range(20):
        parallel_for(tasks["count"], counts, n, grain)
    assert (counts[:n] == 20).all()
    assert counts[n] == 0


def test_several_threads_take_part(tasks):
    threads.set_num_threads(3)
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
    assert threads.pool().workers() >= 2


def test_fewer_threads_after_more(tasks):
    for number in (5, 2, 1):
        threads.set_num_threads(number)
        owners = np.zeros(1000, np.int64)
        for _ in range(20):
            parallel_for(tasks["who"], owners, 1000, 1)
            assert len(set(owners.tolist())) <= number


def test_small_loops_stay_with_the_caller(tasks):
    threads.set_num_threads(4)
    owners = np.zeros(100, np.int64)
    parallel_for(tasks["who"], owners, 100, 100)
    assert set(owners.tolist()) == {threading.get_ident()}


def test_short_loops_in_succession_wake_a_thread(tasks):
    threads.set_num_threads(2)
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
    threads.set_num_threads(3)
    context = np.zeros(1 + 40 * 50, np.int64)
    context[0] = threads.address()
    for _ in range(50):
        parallel_for(tasks["nested"], context, 40, 1)
    assert (context[1:] == 50).all()


def test_many_callers_at_once(tasks):
    threads.set_num_threads(3)
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
from test_threads import TASKS, parallel_for
from fnx.lowering.runtime import machine, threads
code = machine.code(TASKS, ("count", "nested", "who"))
tasks = code.addresses
threads.set_num_threads(3)

def work():
    counts = np.zeros(30000, np.int64)
    for _ in range(50):
        parallel_for(tasks["count"], counts, 30000, 10)
    assert (counts == 50).all()
    assert threads.pool().workers() == 2, threads.pool().workers()

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
    script = _FORK.format(tests=str(repository / "tests"))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "good\n", done.stderr


def test_workers_leave_signals_to_python(tasks):
    threads.set_num_threads(3)
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
    before = threads.get_num_threads()
    with pytest.raises(InvalidValue, match="number of threads"):
        threads.set_num_threads(n)
    assert threads.get_num_threads() == before


def test_number_from_the_environment(monkeypatch):
    monkeypatch.setenv("FNX_NUM_THREADS", "3")
    assert threads.default_threads() == 3
    for bad in ("0", "many", "-2", "1e3"):
        monkeypatch.setenv("FNX_NUM_THREADS", bad)
        with pytest.raises(InvalidValue, match="FNX_NUM_THREADS"):
            threads.default_threads()
    monkeypatch.delenv("FNX_NUM_THREADS")
    assert 1 <= threads.default_threads() <= len(os.sched_getaffinity(0))


def test_affinity():
    all_cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(all_cpus)})
    try:
        assert threads.available_cpus() == 1
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
    assert threads.quota(root, own) == (cpus or threads._MOST)
    own.write_text("3:cpu,cpuacct:/job\n2:memory:/job\n")
    (root / "cpu" / "job").mkdir(parents=True)
    quota, period = text.split() if text else ("-1", "100000")
    (root / "cpu" / "job" / "cpu.cfs_quota_us").write_text(quota.replace("max", "-1"))
    (root / "cpu" / "job" / "cpu.cfs_period_us").write_text(period)
    assert threads.quota(root, own) == (cpus or threads._MOST)
    assert threads.quota(root, tmp_path / "absent") == threads._MOST
