"""Devices that run at once, a thread each: against the same programs for all devices in turn."""

import threading

import numpy as np
import pytest
from agreement import close
from teams import WAITING, both, in_control_flow, mapped, mesh, ring

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.transport import TransportError
from fnx.lowering.cpu.runtime import host_callbacks
from fnx.sharding import PartitionSpec as P

RNG = np.random.default_rng(5)
pytestmark = WAITING


GROUPS = [[0, 3], [2, 1]]
# Of an operand of shape (4, 8), of each of 4 members.
CASES = {
    "psum": lambda x: lax.psum(x, "i"),
    "pmean": lambda x: lax.pmean(x, "i"),
    "pmax": lambda x: lax.pmax(x, "i"),
    "pmin": lambda x: lax.pmin(x, "i"),
    "psum groups": lambda x: lax.psum(x, "i", axis_index_groups=GROUPS),
    "pmax groups": lambda x: lax.pmax(x, "i", axis_index_groups=GROUPS),
    "ppermute": lambda x: lax.ppermute(x, "i", ring(4)),
    "ppermute some": lambda x: lax.ppermute(x, "i", [(0, 2), (3, 0)]),
    "pshuffle": lambda x: lax.pshuffle(x, "i", [3, 1, 0, 2]),
    "pbroadcast": lambda x: lax.pbroadcast(x, "i", 2),
    "all_gather": lambda x: lax.all_gather(x, "i"),
    "all_gather 1": lambda x: lax.all_gather(x, "i", axis=1),
    "all_gather tiled": lambda x: lax.all_gather(x, "i", axis=1, tiled=True),
    "all_gather groups": lambda x: lax.all_gather(x, "i", axis_index_groups=GROUPS),
    "psum_scatter": lambda x: lax.psum_scatter(x, "i"),
    "psum_scatter tiled": lambda x: lax.psum_scatter(x, "i", scatter_dimension=1, tiled=True),
    "psum_scatter groups": lambda x: lax.psum_scatter(
        x, "i", scatter_dimension=1, tiled=True, axis_index_groups=GROUPS
    ),
    "all_to_all": lambda x: lax.all_to_all(x, "i", 0, 1),
    "all_to_all tiled": lambda x: lax.all_to_all(x, "i", 1, 0, tiled=True),
    "all_to_all tiled back": lambda x: lax.all_to_all(x, "i", 0, 1, tiled=True),
    "all_to_all groups": lambda x: lax.all_to_all(
        x, "i", 1, 0, tiled=True, axis_index_groups=GROUPS
    ),
    "axis_index": lambda x: x * (1 + lax.axis_index("i").astype(x.dtype)),
    "axis_size": lambda x: x * lax.axis_size("i"),
}
ALL = pytest.mark.parametrize("name", CASES)


@ALL
def test_values_are_the_same_bits(name, runs):
    both(mapped(CASES[name]), RNG.normal(size=(4, 4, 8)), runs=runs, exact="psum" not in name)


@ALL
def test_large_arrays(name, runs):
    f = fnx.vmap(CASES[name], in_axes=2, out_axes=-1)
    both(mapped(f), RNG.normal(size=(4, 4, 8, 33)), runs=runs)


@pytest.mark.slow
@ALL
def test_derivatives(name, runs):
    f = lambda x: jnp.sin(CASES[name](x * x))
    x = RNG.normal(size=(4, 4, 8))
    both(mapped(fnx.grad(lambda x: jnp.sum(f(x)))), x, runs=runs)
    both(fnx.grad(lambda x: jnp.sum(jnp.cos(mapped(f)(x)))), x, runs=runs)
    both(lambda x: fnx.jvp(mapped(f), (x,), (jnp.cos(x),)), x, runs=runs)
    both(fnx.vmap(mapped(f), in_axes=1), RNG.normal(size=(4, 2, 4, 8)), runs=runs)


@pytest.mark.parametrize(
    "dtype",
    ["float32", "int8", "uint16", "int32", "uint64", "complex64", "complex128", "bool", "float16"],
)
@ALL
def test_dtypes(name, dtype, runs):
    if dtype.startswith("complex") and ("pmax" in name or "pmin" in name):
        pytest.skip("complex numbers have no order")
    if dtype == "bool" and "psum_scatter" in name:
        pytest.skip("truth values are not summed")
    x = np.abs(RNG.normal(size=(4, 4, 8)) * 4).astype(dtype)
    both(mapped(CASES[name]), x, runs=runs)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_rank_0_and_empty(shape, runs):
    x = RNG.normal(size=(3, *shape))
    for f in (
        lambda x: lax.psum(x, "i"),
        lambda x: lax.all_gather(x, "i"),
        lambda x: lax.ppermute(x, "i", ring(3)),
        lambda x: lax.pmax(x, "i") + lax.axis_index("i"),
    ):
        both(mapped(f), x, runs=runs)


def test_nan_and_signed_zeros_in_extrema(runs):
    x = np.array([[1.0, np.nan, -0.0, np.inf], [np.nan, 2.0, 0.0, -np.inf]])
    both(mapped(lambda x: (lax.pmax(x, "i"), lax.pmin(x, "i"))), x, runs=runs)


@pytest.mark.slow
@ALL
def test_in_loops_and_branches(name, runs):
    f = CASES[name]

    scanned, looped, chosen = in_control_flow(f)
    x = np.random.default_rng(7).normal(size=(4, 4, 8))  # errors of rounding grow in these loops
    for g in (scanned, looped, chosen):
        both(mapped(g), x, runs=runs)
        if g is not looped:
            loss = lambda x, g=g: sum(jnp.sum(jnp.sin(y)) for y in fnx.tree.leaves(g(x)))
            both(mapped(fnx.grad(loss)), x, runs=runs)


# --- shard_map ---------------------------------------------------------------------------------


def test_two_axes(runs):
    def f(a, b):
        c = lax.psum(a, ("x", "y")) + lax.all_gather(b, "y")[1]
        return c * lax.axis_index("x"), lax.pmax(b, "x"), lax.psum(jnp.sum(a), ("y", "x"))

    g = fnx.shard_map(
        f, mesh=mesh(), in_specs=(P("x", "y"), P("y")), out_specs=(P("x"), P("y"), P()), check_vma=False
    )  # fmt: skip
    both(g, RNG.normal(size=(4, 6)), RNG.normal(size=6), runs=runs)


def test_cuts_along_other_axes_and_several_names(runs):
    x = RNG.normal(size=(3, 8, 4))
    for spec in (P(None, "x", "y"), P(None, ("y", "x")), P(None, None, "y"), P()):
        f = fnx.shard_map(
            lambda a: jnp.sin(a) + lax.axis_index("x") * 0.5,
            mesh=mesh(), in_specs=spec, out_specs=spec, check_vma=False,
        )  # fmt: skip
        both(f, x, runs=runs)
        both(fnx.grad(lambda x, f=f: jnp.sum(jnp.sin(f(x)))), x, runs=runs)


def test_gradients_of_what_all_devices_share(runs):
    w, x = RNG.normal(size=5), RNG.normal(size=(8, 5))

    def loss(w, x):
        return lax.pmean(jnp.mean(jnp.sin(x @ w)), ("x", "y"))

    f = fnx.shard_map(loss, mesh=mesh(), in_specs=(P(), P(("x", "y"))), out_specs=P())
    both(fnx.grad(f, (0, 1)), w, x, runs=runs)
    whole = fnx.grad(lambda w, x: jnp.mean(jnp.sin(x @ w)), (0, 1))(jnp.asarray(w), x)
    for a, b in zip(fnx.jit(fnx.grad(f, (0, 1)))(w, x), whole, strict=True):
        close(a, b)
    hessian = fnx.jit(fnx.hessian(f))(w, x)
    close(hessian, fnx.hessian(lambda w: jnp.mean(jnp.sin(x @ w)))(jnp.asarray(w)))


def test_around_and_between(runs):
    """What stands before, between and after programs of devices is computed once."""
    f = fnx.shard_map(
        lambda a: a * lax.psum(a, "x"), mesh=mesh(), in_specs=P("x"), out_specs=P("x")
    )

    def g(x):
        y = f(jnp.sin(x))
        return f(y + 1) + x, jnp.sum(y), x

    both(g, RNG.normal(size=(4, 3)), runs=runs)
    both(fnx.grad(lambda x: jnp.sum(g(x)[0])), RNG.normal(size=(4, 3)), runs=runs)
    both(lambda x: fnx.jit(f)(fnx.jit(f)(x)), RNG.normal(size=(4, 3)), runs=runs)


def test_donated_arguments_are_deleted(runs):
    f = fnx.pmap(lambda x: x + lax.psum(x, "i"), axis_name="i", donate_argnums=0)
    x = jnp.arange(4.0)
    close(f(x), np.arange(4.0) + 6)
    assert x.is_deleted()
    assert runs == [4]


def test_eager_shard_map_closes_over_arrays(runs):
    c = jnp.arange(3.0)
    f = fnx.shard_map(
        lambda a: a * c + lax.psum(a, "x"), mesh=mesh(), in_specs=P("x"), out_specs=P("x")
    )
    x = RNG.normal(size=(4, 3))
    close(f(x), x * np.arange(3.0) + np.tile(x[:2] + x[2:], (2, 1)))
    assert runs


# --- one program per member cannot differ ------------------------------------------------------


def test_branches_that_differ_between_devices_are_computed_in_turn(runs):
    def f(x):
        k = lax.axis_index("i")
        return lax.cond(k == 0, lambda v: lax.psum(v, "i"), lambda v: 2 * lax.psum(2 * v, "i"), x)

    found = fnx.pmap(f, axis_name="i")(jnp.arange(3.0))
    close(found, [3.0, 12.0, 12.0])
    assert not runs  # with threads, device 0 would wait for ever


def test_branches_that_differ_but_exchange_nothing_run_at_once(runs):
    f = lambda x: lax.psum(lax.cond(x > 1, jnp.sin, jnp.cos, x), "i")
    both(mapped(f), np.arange(4.0), runs=runs)


def test_nobody_waits_for_a_device_that_does_not_come(runs):
    """The check of exchanges while programs run: what no analysis knows to differ."""

    def f(x):
        n = fnx.pure_callback(_call_number, fnx.ShapeDtypeStruct((), np.int32), jnp.float64(0))
        return lax.cond(n == 0, lambda v: lax.psum(v, "i"), lambda v: v, x)

    _calls.clear()
    with pytest.raises(TransportError, match=r"device \d waits in psum.*test_members.py:\d+") as e:
        fnx.pmap(f, axis_name="i")(jnp.arange(2.0))
    assert "has ended its program" in str(e.value)


def test_both_lines_are_named(runs):
    def f(x):
        n = fnx.pure_callback(_call_number, fnx.ShapeDtypeStruct((), np.int32), jnp.float64(0))
        first = lambda v: lax.psum(v, "i")
        second = lambda v: lax.pmax(v, "i")
        return lax.cond(n == 0, first, second, x)

    for _ in range(3):
        _calls.clear()
        with pytest.raises(TransportError, match=r"(?s)psum of .*pmax of|pmax of .*psum of") as e:
            fnx.pmap(f, axis_name="i")(jnp.arange(2.0))
        assert str(e.value).count("test_members.py:") >= 2


def test_other_order_on_two_axes(runs):
    def f(x):
        n = fnx.pure_callback(_call_number, fnx.ShapeDtypeStruct((), np.int32), jnp.float64(0))
        one = lambda v: lax.psum(lax.pmax(v, "x"), "y")
        other = lambda v: lax.pmax(lax.psum(v, "y"), "x")
        return lax.cond(n % 2 == 0, one, other, x)

    _calls.clear()
    g = fnx.shard_map(f, mesh=mesh(), in_specs=P(("x", "y")), out_specs=P(("x", "y")))
    with pytest.raises(TransportError, match="do not make the same exchanges"):
        fnx.jit(g)(jnp.arange(4.0))


_calls = []
_lock = threading.Lock()


def _call_number(x):
    with _lock:
        _calls.append(0)
        return np.int32(len(_calls) - 1)


def test_threads_of_a_team_leave_no_context_behind(runs):
    """A thread that begins later may have the number of one that ended."""

    def with_a_callback(x):
        y = fnx.pure_callback(np.sin, fnx.ShapeDtypeStruct(x.shape, x.dtype), x)
        return lax.psum(y, "i")

    both(mapped(with_a_callback), RNG.normal(size=(4, 3)), runs=runs)
    assert host_callbacks.contexts == {}
