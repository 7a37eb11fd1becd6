"""Large loops of the Numba backend are shared out to threads, with the same results to the bit."""

import ast
from dataclasses import replace

import numpy as np
import pytest
from numba_programs import INTS, PROGRAMS, V, X, check

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.cpu.runtime import thread_pool
from fnx.lowering.numba import sharing
from fnx.lowering.numba.target import ThreadedTarget

SOURCE = """
def f(x, out, calls):
    row = np.empty(3, np.float64)
    a = x[0] * 2
    for k in range(2):
        b = a + k
        for i in shared(calls[2], 7, 4):
            c = b * i
            for j in range(3):
                row[j] = c + j
            if c > 3:
                d = row[2]
            else:
                d = row[0]
            out[i] = out[i] + d
    return 0
"""


@pytest.fixture
def threads():
    """The number of threads is what a test makes it."""
    before = thread_pool.get_num_threads()
    yield thread_pool.set_num_threads
    thread_pool.set_num_threads(before)


@pytest.fixture
def everything_is_shared(monkeypatch, no_code):
    least = {"nest_work": 1, "parallel_work": 1, "parallel_reduction": 1, "parts": 3}
    monkeypatch.setattr(ThreadedTarget, "machine", replace(ThreadedTarget.machine, **least))
    monkeypatch.setattr(thresholds, "GRAIN_WORK", 1)


@pytest.mark.slow
def test_large_programs(threads):
    def f(x):
        y = jnp.sin(x) * 2
        edge = y.at[1:-1].set(y[:-2] - 2 * y[1:-1] + y[2:])
        return edge, x.sum(), x.max(0), x.T * x[0, 0]

    x = np.random.default_rng(0).normal(size=(1030, 1100))
    g = fnx.jit(f, backend="numba")
    assert g.lower(x).as_text("numba").count(" in shared(calls[2], ") >= 3
    found = []
    for n in (1, 2, 5):
        threads(n)
        found.append([np.asarray(a).tobytes() for a in g(x)])
    assert found[0] == found[1] == found[2]
    assert thread_pool.pool().workers() >= 1
    for ours, theirs in zip(g(x), f(x), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)
    assert "shared(" not in g.lower(x[:10]).as_text("numba")


@pytest.mark.parametrize("name", ["reductions", "float16", "complex"])
def test_small_programs_whose_loops_are_shared(name, everything_is_shared, threads):
    threads(3)
    lowered = fnx.jit(PROGRAMS[name][0], backend="numba").lower(*PROGRAMS[name][1])
    assert "in shared(" in lowered.as_text("numba")
    check(name)


@pytest.mark.slow
def test_what_a_shared_loop_reads(everything_is_shared, threads):
    def f(x, n, flag):
        u = lax.fori_loop(0, 3, lambda i, u: u * x[i, 0] + jnp.where(flag, u[::-1], i), x)
        return u.astype(jnp.float16), (n * 2 + flag).astype("int8")

    threads(3)
    found, wanted = (fnx.jit(f, backend=b)(X, INTS, True) for b in ("numba", "reference"))
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_tasks_do_what_the_loop_does():
    tree = ast.parse(SOURCE)
    (task,) = map(ast.fix_missing_locations, sharing.tasks(tree))
    assert [a.arg for a in task.args.args] == ["f_task1_first", "f_task1_end", "b", "out"]
    assert "np.empty" in ast.unparse(task)  # each thread has a row of its own
    assert "for i" not in ast.unparse(tree)

    def share(run, task, count, least, values):
        for first in range(0, count, least):
            task(first, min(first + least, count), *values)

    given = {"np": np, "share": share, "shared": lambda run, count, least: range(count)}
    results = []
    for text in (SOURCE, ast.unparse(ast.Module([*tree.body, task], []))):
        space, out = dict(given), np.zeros(7)
        exec(text, space)
        space["f"]([1.5], out, [0] * 3)
        results.append(out)
    np.testing.assert_array_equal(*results)


def test_as_plain_python(everything_is_shared):
    f = lambda v: jnp.exp(v) + v[::-1]
    printed = fnx.jit(f, backend="numba").lower(V).program.compiled().printed
    assert "in shared(" in printed.source
    out = np.empty_like(V)
    printed([V, out])
    np.testing.assert_allclose(out, f(V), rtol=1e-14)
