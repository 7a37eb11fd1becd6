"""The transport between threads: what each method gives, and that no member waits for ever."""

import threading
import time

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.transport import TransportError, in_force
from fnx.interpreters.spmd import spmd
from fnx.lowering.transport.local import Local

SIZES = pytest.mark.parametrize("n", [1, 2, 3])


def run(n, fn, timeout=20.0):
    """`fn(transport, rank)` of each member."""

    def member(rank):
        return fn(in_force("i", "test"), rank)

    return Local(n, timeout).run("i", member, range(n))


@SIZES
@pytest.mark.parametrize("dtype", ["float64", "int8", "complex64", "bool"])
@pytest.mark.parametrize("shape", [(), (2, 3), (0,)])
def test_methods(n, dtype, shape):
    rng = np.random.default_rng(1)
    x = (rng.normal(size=(n, n, *shape)) * 3).astype(dtype)

    def all_of(t, k):
        assert (t.rank, t.size) == (k, n)
        t.barrier()
        return [
            t.all_reduce(x[k], "max"),
            t.all_reduce(x[k], "sum"),
            t.all_gather(x[k]),
            t.reduce_scatter(x[k], "min"),
            t.all_to_all(x[k]),
            t.permute(x[k], ((0, n - 1),)),
            t.broadcast(x[k], n - 1),
        ]

    for k, found in enumerate(run(n, all_of)):
        total = x[0]
        for row in x[1:]:
            total = total + row
        expected = [
            np.maximum.reduce(x),
            total,
            x,
            np.minimum.reduce(x)[k],
            x[:, k],
            x[0] if k == n - 1 else np.zeros_like(x[k]),
            x[n - 1],
        ]
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype
            assert a.flags.writeable
            np.testing.assert_array_equal(a, b)
            assert not np.shares_memory(a, x)


def test_split():
    groups = ((2, 0), (1, 3))

    def fn(t, k):
        mine = t.split(groups)
        return mine.rank, mine.all_gather(np.asarray(k)).tolist()

    assert run(4, fn) == [(1, [2, 0]), (0, [1, 3]), (0, [2, 0]), (1, [1, 3])]


def test_many_exchanges_do_not_overtake_each_other():
    def fn(t, k):
        return [int(t.all_reduce(np.asarray(k + j), "sum")) for j in range(200)]

    for found in run(3, fn):
        assert found == [3 + 3 * j for j in range(200)]


@pytest.mark.parametrize("jit", [False, True])
def test_a_member_that_fails_ends_the_others(jit):
    seen = []
    f = spmd(lambda x: lax.psum(x, "i"), {"i": 3})
    f = fnx.jit(f) if jit else f

    def member(k):
        if k == 1:
            raise KeyError("mine")
        try:
            f(jnp.ones(2))
        except TransportError as error:
            seen.append(str(error))
            raise

    began = time.monotonic()
    with pytest.raises(KeyError, match="mine"):
        Local(3, 60.0).run("i", member, range(3))
    assert time.monotonic() - began < 30
    assert len(seen) == 2
    assert all("another member failed: KeyError" in s for s in seen)


def test_a_member_of_a_group_that_fails_ends_the_other_groups():
    def fn(t, k):
        mine = t.split(((0, 1), (2, 3)))
        if k == 3:
            raise ValueError("mine")
        mine.barrier()
        return t.all_reduce(np.ones(1), "sum")

    with pytest.raises(ValueError, match="mine"):
        run(4, fn, timeout=60.0)


@pytest.mark.slow
def test_a_member_that_does_not_come():
    with pytest.raises(TransportError, match=r"did not come within 0\.2 s"):
        run(2, lambda t, k: t.barrier() if k else time.sleep(1), timeout=0.2)


def test_a_member_that_has_ended_is_not_waited_for():
    began = time.monotonic()
    with pytest.raises(TransportError, match="member 0 has ended its program without coming"):
        run(3, lambda t, k: t.barrier() if k else None, timeout=60.0)
    assert time.monotonic() - began < 30


def test_a_branch_that_differs_between_members_is_an_error():
    def f(x):
        chosen = lax.cond(x > 0, lambda v: lax.psum(v, "i"), lambda v: v, x)
        return chosen + 1

    g = fnx.jit(spmd(f, {"i": 2}))
    with pytest.raises(TransportError, match=r"has ended.*\n  at .*test_local\.py:\d+"):
        Local(2, 60.0).run("i", g, jnp.arange(2.0))


def test_members_of_other_groups_may_end_first():
    def fn(t, k):
        mine = t.split(((0, 1), (2, 3)))
        if k > 1:
            time.sleep(0.2)
        return int(mine.all_reduce(np.asarray(k), "sum"))

    assert run(4, fn) == [1, 1, 5, 5]


def test_members_that_disagree():
    with pytest.raises(TransportError, match="disagree"):
        run(2, lambda t, k: t.all_reduce(np.ones(k + 1), "sum"))
    with pytest.raises(TransportError, match="disagree"):
        run(2, lambda t, k: t.broadcast(np.ones(1), k))


def test_no_thread_is_left():
    before = threading.active_count()
    run(3, lambda t, k: t.barrier())
    assert threading.active_count() == before
