"""jit: keys of programs, closures, nesting, threads, stages."""

import copy
import functools
import gc
import inspect
import sys
import threading
import time
import weakref

import numpy as np
import pytest
from traced import traced_times

import fnx
import fnx.numpy as jnp
from fnx import lax


def equal(a, b):
    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


# --- keys --------------------------------------------------------------------------------------


def test_one_program_for_each_signature():
    f, times = traced_times(lambda x: x * 2)
    g = fnx.jit(f)
    for x in (jnp.ones(3), jnp.zeros(3), np.ones(3)):
        equal(g(x), 2 * np.asarray(x))
    assert len(times) == 1
    for k, x in enumerate(
        [jnp.ones(4), jnp.ones(3, "float32"), jnp.ones((3, 1)), 1.0, 1, True, [1.0]]
    ):
        g(x) if k < 6 else None
        assert len(times) == min(2 + k, 7)
    for x in (jnp.ones(3), jnp.ones(4), jnp.ones(3, "float32"), 1.0, 1, True):
        assert g(x).dtype == (jnp.asarray(x) * 2).dtype
    assert len(times) == 7


def test_python_numbers_are_arguments_with_weak_types():
    f, times = traced_times(lambda x, a: x * a)
    g = fnx.jit(f)
    x = jnp.ones(2, "float32")
    assert g(x, 2.0).dtype == np.float32
    equal(g(x, 3.0), [3, 3])  # not the 2.0 of before
    assert g(x, np.float64(2.0)).dtype == np.float64
    assert g(x, jnp.asarray(2.0)).dtype == np.float64 or jnp.asarray(2.0).weak_type
    assert len(times) <= 3
    out = fnx.jit(lambda a: a * 2.0)(3.0)
    assert out.weak_type
    assert (out * x).dtype == np.float32


def test_structures_and_keywords():
    f, times = traced_times(lambda tree, *, scale: {"out": (tree["a"] * scale, None, [tree["b"]])})
    g = fnx.jit(f)
    for _ in range(3):
        out = g({"b": 1.0, "a": jnp.ones(2)}, scale=2.0)
    equal(out["out"][0], [2, 2])
    assert out["out"][1] is None
    assert len(times) == 1
    g({"a": jnp.ones(2), "b": 1.0}, scale=2.0)  # the order of keys is no structure
    assert len(times) == 1
    with pytest.raises(KeyError):
        g({"a": jnp.ones(2), "c": 1.0}, scale=2.0)


def test_calls_that_alternate_between_programs():
    g = fnx.jit(jnp.sum)
    rows = [jnp.arange(float(n)) for n in range(1, 8)]
    for _ in range(3):
        for x in rows:
            assert float(g(x)) == float(np.arange(float(x.size)).sum())


def test_settings_are_part_of_the_key():
    f = fnx.jit(lambda x: x + jnp.arange(3))
    wide = f(1.0)
    with fnx.enable_x64(False):
        narrow = f(1.0)
    again = f(1.0)
    assert (wide.dtype, narrow.dtype, again.dtype) == (np.float64, np.float32, np.float64)


def test_disable_jit_runs_python_though_a_program_is_there():
    seen = []

    @fnx.jit
    def f(x):
        seen.append(type(x).__name__)
        return x + 1.0

    f(1.0), f(1.0)
    assert len(seen) == 1
    with fnx.disable_jit():
        f(1.0)
    assert len(seen) == 2
    assert seen[1] != seen[0]
    f(1.0)
    assert len(seen) == 2


def test_clear_caches_traces_again():
    f, times = traced_times(lambda x: x + 1)
    g = fnx.jit(f)
    g(1.0)
    fnx.clear_caches()
    g(1.0)
    assert len(times) == 2


# --- closures ----------------------------------------------------------------------------------


def test_closed_over_arrays_are_not_part_of_the_code():
    before = fnx.compile_stats()["kernels_compiled"]
    tables = [jnp.arange(40.0) + k for k in range(4)]
    outs = [fnx.jit(lambda x, c=c: x * c + 2.5)(jnp.ones(40)) for c in tables]
    equal(outs[3], np.arange(40.0) + 5.5)
    table = jnp.arange(1000.0)
    f = fnx.jit(lambda x: x + table)
    for _ in range(3):
        equal(f(1.0), np.arange(1000.0) + 1)
    assert fnx.compile_stats()["kernels_compiled"] - before <= 2


@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit], ids=["eager", "jit"])
def test_closed_over_tracers_under_every_transformation(wrap):
    def f(w):
        inner = fnx.jit(lambda x: jnp.sum(jnp.sin(w * x)))
        return inner(jnp.arange(3.0)) + inner(jnp.ones(2)) + inner(jnp.arange(3.0) + 1)

    def plain(w):
        inner = lambda x: jnp.sum(jnp.sin(w * x))
        return inner(jnp.arange(3.0)) + inner(jnp.ones(2)) + inner(jnp.arange(3.0) + 1)

    with fnx.disable_jit():
        slope, second = fnx.grad(plain)(0.7), fnx.grad(fnx.grad(plain))(0.7)
        lanes = fnx.vmap(plain)(jnp.arange(4.0))
    assert float(wrap(fnx.grad(f))(0.7)) == pytest.approx(float(slope))
    assert float(wrap(fnx.grad(fnx.grad(f)))(0.7)) == pytest.approx(float(second))
    np.testing.assert_allclose(np.asarray(wrap(fnx.vmap(f))(jnp.arange(4.0))), np.asarray(lanes))
    _, ys = wrap(lambda xs: lax.scan(lambda c, w: (c, f(w)), 0.0, xs))(jnp.arange(4.0))
    np.testing.assert_allclose(np.asarray(ys), np.asarray(lanes))


def test_one_jitted_function_that_sees_another_tracer_at_each_call():
    box = {}

    @fnx.jit
    def inner(x):
        return x * box["w"]

    def outer(w):
        box["w"] = w
        return inner(2.0)

    for w in (3.0, 4.0):
        assert float(fnx.grad(outer)(w)) == 2.0
        assert float(fnx.jit(outer)(w)) == 2.0 * w
    out = fnx.vmap(outer)(jnp.arange(3.0))
    equal(out, [0.0, 2.0, 4.0])
    box["w"] = jnp.asarray(5.0)
    fnx.clear_caches()
    assert float(inner(2.0)) == 10.0


def test_the_argument_itself_closed_over_by_the_inner_function():
    f = fnx.jit(lambda x: fnx.jit(lambda y: y + x)(x) * fnx.jit(lambda: x)())
    assert float(f(3.0)) == 18.0
    assert float(fnx.grad(f)(3.0)) == 12.0


# --- nesting and recursion ---------------------------------------------------------------------


def test_nested_and_recursive():
    @functools.partial(fnx.jit, static_argnums=1)
    def tower(x, n):
        return x if n == 0 else jnp.sin(tower(x, n - 1))

    expected = 0.5
    for _ in range(5):
        expected = np.sin(expected)
    assert float(tower(0.5, 5)) == pytest.approx(expected)
    assert "jit" in str(fnx.make_jaxpr(lambda x: tower(x, 2))(0.5))


def test_an_inner_function_is_compiled_with_the_outer_one():
    inner = fnx.jit(lambda x: jnp.sin(x) * 3.0)
    outer = fnx.jit(lambda x: inner(inner(x)))
    report = fnx.compile_report(outer, jnp.arange(100.0))
    assert report.count("  kernel ") == 1
    assert "host call" not in report


def test_results_that_are_arguments_constants_and_twins():
    c = jnp.arange(3.0)
    f = fnx.jit(lambda x, y: (x, x, 2.0, c, y["a"], None, jnp.zeros(2)))
    for _ in range(2):
        out = f(jnp.ones(2), {"a": 1})
        equal(out[0], out[1])
        equal(out[3], [0, 1, 2])
        assert (float(out[2]), int(out[4]), out[5]) == (2.0, 1, None)


def test_unused_arguments_and_no_arguments():
    assert float(fnx.jit(lambda x, y: y)(jnp.ones(9), 2.0)) == 2.0
    assert float(fnx.jit(lambda: 3.0)()) == 3.0
    assert fnx.jit(lambda x: ())(1.0) == ()
    assert fnx.jit(lambda x: None)(1.0) is None
    assert fnx.jit(lambda x: jnp.zeros((0, 3)) + x)(1.0).shape == (0, 3)


# --- threads -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_threads_that_trace_and_call_at_once():
    @fnx.jit
    def shared(x):
        return jnp.sum(jnp.sin(x) * x)

    errors, results = [], {}

    def work(k):
        try:
            own = fnx.jit(lambda x: jnp.tanh(x * (k + 1.5)).sum())
            for n in range(3, 7):
                x = jnp.arange(float(n + 3 * (k % 2))) * 0.1
                value = float(shared(x)) + float(own(x)) + float(fnx.grad(shared)(x)[1])
                results[k, n] = value
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert errors == []
    for (k, n), value in results.items():
        x = np.arange(float(n + 3 * (k % 2))) * 0.1
        expected = (
            np.sum(np.sin(x) * x)
            + np.tanh(x * (k + 1.5)).sum()
            + np.sin(x[1])
            + x[1] * np.cos(x[1])
        )
        assert value == pytest.approx(expected)


# --- stages ------------------------------------------------------------------------------------


@fnx.jit
def rotate(x, angle):
    turned = jnp.stack([jnp.cos(angle) * x[0] - jnp.sin(angle) * x[1], x[1]])
    return {"point": turned, "norm": jnp.sqrt(jnp.sum(turned**2))}


def test_stages_ahead_of_time():
    # The dialects are the cpu backend's.
    own = fnx.jit(rotate.__wrapped__, backend="cpu")
    traced = own.trace(fnx.ShapeDtypeStruct((2,), float), 0.5)
    assert traced.out_info["point"] == fnx.ShapeDtypeStruct((2,), float)
    assert len(traced.jaxpr.in_avals) == 2
    lowered = traced.lower()
    marks = {"jaxpr": "lambda", "kernel": "in0", "numba": "def ", "llvm": "define", "asm": ".text"}
    for dialect, mark in marks.items():
        assert mark in lowered.as_text(dialect), dialect
    compiled = lowered.compile()
    out = compiled(jnp.array([3.0, 4.0]), 0.0)
    assert float(out["norm"]) == 5.0
    assert compiled.memory_analysis().output_size_in_bytes == 24
    assert compiled.cost_analysis()["transcendentals"] == 3.0
    assert compiled.cost_analysis()["flops"] > 4
    assert {"trace", "build", "emit", "load"} <= set(compiled.seconds)
    assert "program rotate" in compiled.report()


def test_cost_analysis_counts_products_and_loops():
    f = fnx.jit(lambda a, b: lax.fori_loop(0, 10, lambda i, c: c @ b, a))
    cost = f.lower(jnp.ones((4, 5)), jnp.ones((5, 5))).cost_analysis()
    assert cost["flops"] == 10 * 2 * 4 * 5 * 5
    assert cost["bytes accessed"] == 8 * (20 + 25 + 20)


def test_the_numba_text_runs():
    f = fnx.jit(lambda x: jnp.sum(x * 2.0), backend="cpu")  # another printer's text
    text = f.lower(jnp.ones(50)).as_text("numba")
    compile(text, "<numba>", "exec")
    assert "@" in text


def test_one_kernel_serves_all_sizes():
    f = fnx.jit(lambda x: jnp.cumsum(jnp.sin(x) * 1.25) + jnp.max(x))
    f(jnp.ones(101))
    before = fnx.compile_stats()["kernels_compiled"]
    for n in (100, 333, 4000):
        np.testing.assert_allclose(
            np.asarray(f(jnp.ones(n))), np.cumsum(np.full(n, np.sin(1.0) * 1.25)) + 1.0
        )
    assert fnx.compile_stats()["kernels_compiled"] == before


def test_the_reference_backend():
    f = fnx.jit(lambda x: lax.fori_loop(0, 3, lambda i, y: y * x, 1.0))
    with fnx.core.config.backend("reference"):
        assert float(f(2.0)) == 8.0
    assert float(f(2.0)) == 8.0


def test_loops_within_traced_branches_count_without_jit():
    def f(which, x):
        halve = lambda x: lax.fori_loop(0, 3, lambda i, c: c.at[i % 2].multiply(0.5), x)
        return lax.switch(which, [halve, lambda x: x], x)

    with fnx.disable_jit():
        found = fnx.vmap(f)(jnp.array([0, 1]), jnp.ones((2, 4)))
        total = lax.fori_loop(np.int32(1), np.int32(4), lambda i, c: c + i, np.int32(0))
        halves = lax.fori_loop(0.5, 3.0, lambda i, c: c + i, 0.0)
    np.testing.assert_array_equal(found, [[0.25, 0.5, 1.0, 1.0], [1.0] * 4])
    assert (int(total), total.dtype, float(halves)) == (6, np.int32, 4.5)


def test_jitted_functions_have_the_signature_of_what_is_inside():
    f = fnx.jit(lambda x, scale=2.0: x * scale)
    for follow in (True, False):
        assert str(inspect.signature(f, follow_wrapped=follow)) == "(x, scale=2.0)"
    assert "donated" in inspect.signature(type(f)).parameters


@pytest.mark.slow
def test_caches_can_be_cleared_while_other_threads_make_functions():
    end, errors = time.monotonic() + 1.5, []

    def make():
        kept = []
        while time.monotonic() < end:
            kept = [*kept[-300:], fnx.jit(lambda x: x)]

    def clear():
        try:
            while time.monotonic() < end:
                fnx.clear_caches()
        except RuntimeError as error:
            errors.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=f) for f in (make, make, clear)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not errors


def test_what_is_pickled_or_copied_is_the_function_without_its_programs():
    f = fnx.jit(lambda x, n: x * n, static_argnums=1)
    assert f(2.0, 3) == 6.0
    assert not f.__getstate__()["_programs"]
    other = copy.copy(f)
    assert not other._programs
    assert other(2.0, 4) == 8.0
    assert f(2.0, 5) == 10.0
    for wrapped in (fnx.vmap(f), fnx.grad(f), fnx.checkpoint(f), fnx.custom_jvp(f)):
        assert "_programs" not in wrapped.__dict__


def test_what_is_jitted_of_one_function_shares_programs():
    traced = []

    def f(x, n=2):
        traced.append(n)
        return x * n

    for k in range(4):
        assert fnx.jit(f)(1.0 + k) == 2.0 * (1.0 + k)
    assert traced == [2]
    for k in range(4):
        assert fnx.jit(f, static_argnames="n")(1.0 + k, n=3) == 3.0 * (1.0 + k)
        assert fnx.jit(f, static_argnums=1)(1.0 + k, 3) == 3.0 * (1.0 + k)
    assert traced == [2, 3, 3]
    fnx.jit(f).clear_cache()
    fnx.jit(f)(1.0)
    fnx.clear_caches()
    fnx.jit(f)(1.0)
    assert traced == [2, 3, 3, 2, 2]


def test_programs_are_shared_as_long_as_free_names_stand_for_the_same():
    rate = 2.0

    def f(x):
        return x * rate

    assert fnx.jit(f)(1.0) == 2.0
    rate = 5.0
    assert fnx.jit(f)(1.0) == 5.0


def test_a_function_that_nobody_has_any_more_leaves_no_programs():
    def made(scale):
        return lambda x: x * scale

    big = jnp.ones(1000)
    life = weakref.ref(big)
    f = made(big)
    fnx.jit(f)(1.0)
    del f, big
    gc.collect()
    assert life() is None


def test_functions_with_references_share_nothing_that_holds_these():
    total = fnx.new_ref(jnp.zeros(()))

    def f(x):
        total[...] += x

    for _ in range(3):
        fnx.jit(f)(2.0)
    assert total[...] == 6.0
