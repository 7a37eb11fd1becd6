"""Threads that compile side by side: tasks, values computed once, modules in parts."""

import re
import threading

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config
from fnx.lowering.cpu.jit import (
    code_cache,
    compile_threads,
    compiler,
    llvm_options,
    partition,
    session,
)
from fnx.lowering.cpu.llvm import ir_vectors, module_printer
from fnx.lowering.cpu.loader import symbols
from fnx.lowering.cpu.processor import thresholds


def test_each_task_is_done_once():
    done = []
    with compile_threads.gathered() as made:
        tasks = [made.start(lambda k=k: done.append(k) or k * k) for k in range(50)]
        made.work()
        assert [t.result() for t in tasks] == [k * k for k in range(50)]
    assert sorted(done) == list(range(50))
    assert compile_threads.current() is None


@pytest.mark.slow
def test_a_task_may_start_others_and_its_error_is_raised_where_it_is_asked_for():
    seen = threading.Event()

    def outer():
        assert compile_threads.current() is made
        compile_threads.soon(seen.set)
        raise ValueError("no")

    with compile_threads.gathered() as made:
        task = made.start(outer)
        with pytest.raises(ValueError, match="no"):
            task.result()
        made.work()
        assert seen.wait(10) or compile_threads.size() == 1


def test_helpers_end_with_the_work():
    before = threading.active_count()
    made = None

    def broken():
        nonlocal made
        with compile_threads.gathered() as made:
            made.start(int)
            raise KeyError

    with pytest.raises(KeyError):
        broken()
    assert threading.active_count() == before
    late = made.start(int)  # nobody takes it, but it can be asked for
    assert late.result() == 0


def test_once_is_once_among_threads():
    calls, gate = [], threading.Barrier(4)

    @session.once
    def slow(x):
        calls.append(x)
        return object()

    def ask(found):
        gate.wait()
        found.append(slow(1))

    found: list = []
    threads = [threading.Thread(target=ask, args=(found,)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert calls == [1]
    assert len(set(map(id, found))) == 1


def nests(x):
    """Several kernels, each on the results of the one before."""
    for k in range(6):
        x = jnp.cumsum(jnp.sin(x) * (k + 1.0), axis=k % 2) / jnp.max(jnp.abs(x), axis=0)
    return x


def test_parts_hold_each_function_once_and_compute_the_same(monkeypatch):
    monkeypatch.setattr(thresholds, "PART_CHARACTERS", 500)
    x = np.linspace(0.5, 1.5, 600).reshape(20, 30)
    lowered = fnx.jit(nests).lower(x)
    text = lowered.as_text("llvm")
    split = partition.split(text, 3)
    assert len(split) == 3
    roots = re.findall(r"^define internal [^@\n]*@(k\d+)\(.* noinline ", text, re.MULTILINE)
    defined = [re.findall(r"^define [^@\n]*@(k\d+|entry)\(", p, re.MULTILINE) for p in split]
    assert sorted(name for names in defined for name in names) == sorted({*roots, "entry"})
    code_cache.forget()
    np.testing.assert_allclose(lowered.compile()(x), nests(x), rtol=1e-9, atol=1e-12)


def test_parts_are_as_long_as_each_other_with_what_their_functions_call(monkeypatch):
    """The loop that threads share is a function of its own, which lies beside the one that starts it."""
    monkeypatch.setattr(thresholds, "PART_CHARACTERS", 500)
    line = "  %x = add i64 0, 0\n"

    def function(name, lines, marks="noinline ", calls=""):
        return f"define internal void @{name}() {marks}{{\n{line * lines}{calls}}}\n"

    long = function("loop", 90, marks="")
    roots = [function(f"k{k}", 20 + k) for k in range(4)] + [
        function("k4", 1, calls="  call void @loop()\n")
    ]
    split = partition.split("".join([long, *roots]), 2)
    assert [part.count("define") for part in split] == [2, 4]  # k4 and its loop; the others


def horner(x, degree=40):
    """A chain of products and sums with more numbers than there are registers."""
    value = 0.5
    for k in range(degree):
        value = value * x + (0.3 + k)
    return value


def mixed(x):
    """A kernel with many numbers, and one with few."""
    total = jnp.sum(x * x, axis=0)
    return horner(x + 1.0 / total), total


def test_kernels_with_many_numbers_are_compiled_in_order_and_apart():
    x = np.linspace(0.1, 0.9, 40_000).reshape(50, 800)
    lowered = fnx.jit(mixed).lower(x)
    text = lowered.as_text("llvm")
    found = [p for p in partition.split(text, 4) if partition.IN_ORDER in p]
    assert len(found) == 1
    assert len(partition.split(text, 4)) == 2
    assert partition.IN_ORDER not in fnx.jit(lambda x: horner(x, 5)).lower(x).as_text("llvm")
    for ours, theirs in zip(lowered.compile()(x), mixed(x), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def long_body(x):
    """A loop whose body is one block of thousands of instructions, with comparisons that many share."""

    def body(x, i):
        for j in range(60):
            above = x[(i + j) % 8] > x[j % 8]
            x = x.at[(3 * i + j) % 8].set(jnp.where(above, x * 0.3, x * 0.9 + j).sum() * 0.1)
        return x, None

    return lax.scan(body, x, jnp.arange(5))[0]


def test_operations_of_long_blocks_are_ordered_quickly():
    """By LLVM's other choice, which takes the square of a block's length where flags are in the way."""
    x = np.linspace(0.1, 0.9, 8)
    text = fnx.jit(long_body).lower(x).as_text("llvm")
    assert compiler._ways(text) == [llvm_options.LONG_BLOCKS]
    assert not compiler._ways(fnx.jit(jnp.cumsum).lower(x).as_text("llvm"))
    with config.backend("reference"):
        expected = fnx.jit(long_body)(x)
    np.testing.assert_allclose(fnx.jit(long_body)(x), expected, rtol=1e-12)


@pytest.mark.slow
def test_what_is_compiled_in_order_does_not_depend_on_what_is_compiled_meanwhile():
    x = np.linspace(0.1, 0.9, 40_000)
    texts = [fnx.jit(f).lower(x).as_text("llvm") for f in (horner, jnp.cumsum, lambda x: x + 1.0)]
    texts.append(texts[0].replace(partition.IN_ORDER, ""))
    texts.append(fnx.jit(long_body).lower(x[:8]).as_text("llvm"))
    alone = [compiler.compile_text(text) for text in texts]
    assert alone[0] != alone[3]
    with session.session(helpers=True) as made:
        tasks = [made.start(compiler.compile_text, text) for text in texts * 5]
        made.work()
        assert [task.result() for task in tasks] == alone * 5


def test_short_programs_stay_in_one_piece():
    text = fnx.jit(lambda x: x + 1.0).lower(np.ones(20)).as_text("llvm")
    assert partition.split(text, 4) == [text]


def test_where_no_thread_can_be_started_the_leader_does_all(monkeypatch):
    def refused(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(compile_threads, "start_new_thread", refused)
    monkeypatch.setattr(compile_threads, "size", lambda: 4)
    with compile_threads.gathered() as made:
        tasks = [made.start(lambda k=k: k * k) for k in range(5)]
        compile_threads.soon(int)
        made.work()
        assert [t.result() for t in tasks] == [0, 1, 4, 9, 16]
    x = np.arange(5.0)
    f = fnx.jit(lambda x: jnp.sort(x * 1.25) + jnp.cumsum(jnp.sin(x)) + (x[:, None] * x).sum(0))
    wanted = np.sort(x * 1.25) + np.cumsum(np.sin(x)) + (x[:, None] * x).sum(0)
    np.testing.assert_allclose(f(x), wanted, rtol=1e-14)


def test_routines_are_asked_for_as_soon_as_a_program_turns_out_to_call_them(monkeypatch):
    """Before its text is printed, and each once; without helpers nothing is."""
    asked, emit = [], module_printer.emit

    def emitted(program):
        asked.append(compile_threads.current().asked)
        return emit(program)

    monkeypatch.setattr(module_printer, "emit", emitted)
    for key in [key for key in symbols.resolve.values if key[0].startswith("fnx:")]:
        monkeypatch.delitem(symbols.resolve.values, key)  # as in a new process
    x = jnp.asarray(np.random.default_rng(0).normal(size=(130, 130)))
    f = lambda x: jnp.fft.fft(x @ x + (x + 1) @ x).real @ x[0]
    for threads in (2, 1):
        monkeypatch.setattr(compile_threads, "size", lambda n=threads: n)
        fnx.jit(lambda x, n=threads: f(x) * n)(x)
    names = [call[1] for call in asked[0] if len(call) > 1]
    assert {"fnx:fnx_gemm_float64", "fnx:fnx_fft"} <= set(names) or not ir_vectors.exists("float64")
    assert [n[:4] for n in names].count("fft:") == 1
    assert len(names) == len(set(names))
    assert not asked[1]


def test_what_is_asked_for_again_is_begun_once(monkeypatch):
    begun = []
    monkeypatch.setattr(compile_threads, "size", lambda: 2)
    with compile_threads.gathered() as made:
        for k in (1, 2, 1, 1):
            compile_threads.soon(begun.append, k)
        made.work()
    assert sorted(begun) == [1, 2]
