"""Loops and branches of the host: rounds in graphs, launches that are asked for before they are known to be
wanted, and what other threads do meanwhile."""

import threading
from math import isqrt

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

X = np.random.default_rng(0).normal(size=50)


def on_gpu(f):
    return fnx.jit(f, backend="cuda")


def step(i, v):
    return v + 0.1 * (jnp.roll(v, 1) - v) / jnp.max(v)


def halved(limit):
    return lambda x: lax.while_loop(lambda v: v.max() > limit, lambda v: v / 2 + 0 * v.sum(), x)


def plan_of(f, *args):
    from fnx.lowering.cuda.kernels import plan

    return plan, fnx.jit(f, backend="cuda").lower(*args).program.compiled().plan


# --- graphs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [4, 9, 40, 90])
def test_graphs_hold_the_root_of_all_rounds(gpu, count):
    f = lambda u: lax.fori_loop(0, count, step, u)
    plan, planned = plan_of(f, X)
    (loop,) = [s for s in planned.steps if isinstance(s, plan.For)]
    a_round = len(loop.body)
    together = max(isqrt((count - 1) // a_round), 1)  # the first one loads the kernels
    np.testing.assert_allclose(on_gpu(f)(X), f(X), rtol=1e-12)
    assert gpu.made("graph") == [(together * a_round,)]
    assert len(gpu.made("launch graph")) == (count - 1) // together
    recorded, rest = together * a_round, (1 + (count - 1) % together) * a_round
    assert len(gpu.made("launch")) == recorded + rest + len(planned.steps) - 1


@pytest.mark.slow
def test_loops_of_a_hundred_kernels_are_one_graph(gpu):
    def f(u):
        def body(i, v):
            for _ in range(25):
                v = step(i, v)
            return v

        return lax.fori_loop(0, 6, body, u)

    found = on_gpu(f)(X)
    ((nodes,),) = gpu.made("graph")
    assert nodes >= 50
    assert len(gpu.made("launch graph")) == 5
    np.testing.assert_allclose(found, f(X), rtol=1e-11)


# --- loops whose end the device knows ---------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [0, 1, 2, 3, 6, 7, 8, 11, 30])
def test_rounds_are_asked_for_ahead(gpu, rounds):
    x = np.abs(X) * 0 + 1.0
    f = halved(0.75 * 2.0**-rounds)
    wanted = x * 2.0 ** -(rounds + 1)
    np.testing.assert_array_equal(on_gpu(f)(x), wanted)
    asked = [n for n, _ in gpu.made("copy") if n == 1]
    # After 1, 2, 4, 8 more rounds, and then after each 8 (16 where no thread is Python's).
    assert len(asked) <= 5 + rounds // 8


def test_what_is_not_wanted_does_nothing(gpu):
    count = lambda x: lax.while_loop(lambda c: c[0].max() > 0.1, lambda c: (c[0] / 2, c[1] + 1), x)
    found = on_gpu(count)((X, 0))
    wanted = count((X, 0))
    np.testing.assert_array_equal(found[0], wanted[0])
    assert int(found[1]) == int(wanted[1])


def test_loops_with_calls_of_the_host_ask_each_round(gpu):
    seen = []
    shape = fnx.ShapeDtypeStruct((50,), "float64")

    def body(v):
        return fnx.pure_callback(lambda a: seen.append(1) or np.asarray(a) / 2, shape, v)

    found = on_gpu(lambda x: lax.while_loop(lambda v: v.max() > 0.1, body, x))(X)
    rounds = len(seen)
    np.testing.assert_array_equal(found, X * 0.5**rounds)
    assert found.max() <= 0.1 < 2 * found.max()


@pytest.mark.slow
def test_loops_in_loops(gpu):
    def f(x):
        inner = lambda v: lax.while_loop(lambda w: w.max() > 1.0, lambda w: w / 2 + w.min() * 0, v)
        return lax.while_loop(lambda c: c[1] < 5, lambda c: (inner(c[0] * 7), c[1] + 1), (x, 0))

    for a, b in zip(on_gpu(f)(X), f(X), strict=True):
        np.testing.assert_array_equal(a, b)


# --- branches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [X, -X])
def test_small_branches_are_both_asked_for(gpu, x):
    f = lambda x: lax.cond(x.sum() > 0, lambda v: v * 2 / v.max(), lambda v: v - v.min(), x)
    np.testing.assert_allclose(on_gpu(f)(x), f(x), rtol=1e-12)
    assert not [n for n, _ in gpu.made("copy") if n == 1]


def test_branches_in_loops_are_in_the_graph(gpu):
    body = lambda i, v: lax.cond(v.sum() > 0, lambda w: -w / w.max(), lambda w: w - w.min(), v)
    f = lambda x: lax.fori_loop(0, 8, body, x)
    np.testing.assert_allclose(on_gpu(f)(X), f(X), rtol=1e-12)
    assert len(gpu.made("graph")) == 1
    assert not [n for n, _ in gpu.made("copy") if n == 1]


def test_long_branches_are_chosen_by_the_host(gpu):
    def long(v):
        for k in range(8):
            v = v + v.max() * k
        return v

    f = lambda x: lax.cond(x.sum() > 0, long, lambda v: v / v.max(), x)
    np.testing.assert_allclose(on_gpu(f)(X), f(X), rtol=1e-12)
    assert len([n for n, _ in gpu.made("copy") if n == 1]) == 1


# --- threads --------------------------------------------------------------------------------------


def in_threads(count, run):
    errors = []

    def guarded(k):
        try:
            run(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


def test_each_thread_has_the_context(gpu):
    f = on_gpu(lambda x: x * 2 + 1)
    f(X)
    results = {}
    in_threads(3, lambda k: results.update({k: np.asarray(f(X + k))}))
    for k, found in results.items():
        np.testing.assert_array_equal(found, (X + k) * 2 + 1)
    assert len(gpu.made("set_current")) == 4


def test_memory_goes_back_in_a_thread_that_never_called(gpu):
    x = np.ones(gpu.limit >> 12)  # too much to be kept
    y = [on_gpu(lambda x: x * 2)(x)]
    y[0].block_until_ready()
    before = len(gpu.made("free"))
    in_threads(1, lambda k: y.clear())
    assert len(gpu.made("free")) == before + 1


def test_what_other_threads_ask_for_is_not_recorded(gpu):
    from fnx.lowering.cuda.backend import driver

    f, out, launched = on_gpu(lambda x: x + 1), [], []
    f(X).block_until_ready()
    garbage = [on_gpu(lambda x: x * 3)(X)]

    def launches():
        in_threads(1, lambda k: out.append(f(X)))
        garbage.clear()  # its memory goes back on the stream, not in the graph
        launched.append(len(gpu.made("launch")))

    graph = driver().record(launches)
    assert gpu.made("graph") == [(0,)]
    np.testing.assert_array_equal(out[0], X + 1)
    graph()
    np.testing.assert_array_equal(f(X), X + 1)


def test_a_recording_that_fails_leaves_the_stream_as_it_was(gpu):
    from fnx.lowering.cuda.backend import driver

    f = on_gpu(lambda x: x + 1)
    f(X)

    def launches():
        raise ValueError("in between")

    with pytest.raises(ValueError, match="in between"):
        driver().record(launches)
    np.testing.assert_array_equal(f(X), X + 1)
