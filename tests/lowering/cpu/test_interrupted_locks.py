"""Interrupts at each moment of taking and giving back what threads share while they compile."""

import gc
import importlib
import random
import re
import subprocess
import sys
import threading

import interrupted
import pytest

from fnx.lowering.cpu.jit import compile_threads, compiler, llvm_options, session

TEXT = "define i64 @entry() {\n  ret i64 7\n}\n"


def compiles() -> None:
    """A session with a helper, in which both make code."""
    with session.session(helpers=True) as crew:
        task = crew.start(compiler.compile_text, TEXT)
        compiler.compile_text(TEXT)
        with llvm_options.making_code():
            pass
        crew.work()
        task.result()


def goes_on() -> bool:
    """Whether this thread and another compile as if nothing had been, each way of making code."""
    done = []

    def work():
        compiles()
        with llvm_options.making_code([llvm_options.IN_ORDER]):
            pass
        done.append(compiler.compile_text(TEXT))

    work()
    other = threading.Thread(target=work, daemon=True)
    other.start()
    other.join(20)
    return len(done) == 2 and done[0] == done[1] and compile_threads.current() is None


@pytest.fixture(scope="module", autouse=True)
def two_threads():
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(compile_threads, "size", lambda: 2)
    importlib.import_module("numba")  # whose lock a session takes
    compiles()  # which imports LLVM
    yield
    monkeypatch.undo()


def moments_of(call) -> list[tuple]:
    """The moments of a call in what compiles, and below, the first and the last time each comes."""
    jit = [
        (moment, times)
        for moment, times in interrupted.count(call).items()
        if not re.search(r"/(fnx|interpreters)/|/processor/", moment[0].co_filename)
    ]
    return [(moment, k) for moment, times in jit for k in sorted({1, times})]


# What interrupts a finalizer is reported, and goes no further.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_any_moment_leaves_no_lock_taken():
    """A sample of them; `python -m tests.stress moments` goes on through all of this and of much else."""
    moments = random.Random(0).sample(moments_of(compiles), 60)
    came = 0
    for moment, times in moments:
        came += interrupted.interrupted(compiles, moment, times)
        gc.collect()
        assert goes_on(), f"after an interrupt at {interrupted.told(moment)}"
        assert not llvm_options._makers
    assert came > 30  # or the interrupts were none


def test_a_task_whose_thread_is_interrupted_is_waited_for_by_nobody():
    """Whoever asks for its value gets that, or the interrupt, or makes the call: none waits for ever."""
    for moment, times in moments_of(compile_threads.Task(lambda: 7, ()).run):
        task, found = compile_threads.Task(lambda: 7, ()), []
        came = interrupted.interrupted(task.run, moment, times)

        def ask(task=task, found=found):
            try:
                found.append(task.result())
            except interrupted.Interrupt as error:
                found.append(type(error))

        others = [threading.Thread(target=ask, daemon=True) for _ in range(2)]
        for other in others:
            other.start()
        for other in others:
            other.join(20)
        where = interrupted.told(moment)
        assert found in ([7, 7], [interrupted.Interrupt] * 2), where
        assert came, where


def test_an_interrupt_of_a_task_that_nobody_asks_for_ends_the_leaders_work():
    def stop():
        raise interrupted.Interrupt

    crew = compile_threads.Crew(1)
    crew.start(stop)
    with pytest.raises(interrupted.Interrupt):
        crew.work()


def test_what_a_traceback_kept_of_a_compile_may_be_collected_in_any_order():
    """Of a module and its context, which frees it, the collector finalises either first."""
    program = """
import gc
import importlib
from fnx.lowering.cpu.jit import compiler, session
class Kept: pass
for k in range(8):
    with session.session(), compiler.target_machine() as machine:
        module = compiler.parse(TEXT, machine)
    first, last = Kept(), Kept()
    first.kept, last.kept = (module, module._context)[:: 1 if k % 2 else -1]
    first.other, last.other = last, first
    del module, first, last
    gc.collect()
"""
    program = program.replace("TEXT", repr(TEXT))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_compiling_again_and_again_takes_no_more_memory():
    program = """
from fnx.lowering.cpu.jit import compiler, session
def resident():
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * 4096
for k in range(600):
    if k == 100:
        before = resident()
    compiler.compile_text(TEXT)
grown = resident() - before
assert grown < 500 * 8000, grown  # bytes; with pass managers 22 million
"""
    program = program.replace("TEXT", repr(TEXT))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
