"""One member's program with collectives that stay equations, run by threads: against vmap."""

import numpy as np
import pytest
from agreement import close
from teams import in_control_flow

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.transport import MissingTransport
from fnx.errors import InvalidValue
from fnx.interpreters.spmd import spmd
from fnx.lowering.transport.local import Local

RNG = np.random.default_rng(3)
TIMEOUT = 20.0


def members(f, n, *args):
    """`f` of each member in its own thread: the results, stacked."""
    # A NumPy array is the same in all members: what differs between them is fnx's.
    args = [[jnp.asarray(row) for row in x] for x in args]
    outs = Local(n, TIMEOUT).run("i", spmd(f, {"i": n}), *args)
    return fnx.tree.map(lambda *xs: np.stack([np.asarray(x) for x in xs]), *outs)


def both(f, n, *args):
    """Eager and compiled, the members' results are those of all members at once."""
    expected = fnx.vmap(f, axis_name="i")(*map(jnp.asarray, args))
    for g in (f, fnx.jit(f)):
        found = members(g, n, *args)
        for a, b in zip(fnx.tree.leaves(found), fnx.tree.leaves(expected), strict=True):
            assert a.shape == b.shape
            assert a.dtype == b.dtype
            close(a, b)


def ring(n):
    return [(k, (k + 1) % n) for k in range(n)]


def some(n):
    return [(k, k + 1) for k in range(n - 1)]


# Of an operand of shape (n, 2 n).
CASES = {
    "psum": lambda x, n: lax.psum(x, "i"),
    "pmean": lambda x, n: lax.pmean(x, "i"),
    "pmax": lambda x, n: lax.pmax(x, "i"),
    "pmin": lambda x, n: lax.pmin(x, "i"),
    "ppermute": lambda x, n: lax.ppermute(x, "i", ring(n)),
    "ppermute some": lambda x, n: lax.ppermute(x, "i", some(n)),
    "pshuffle": lambda x, n: lax.pshuffle(x, "i", [*range(n)][::-1]),
    "pbroadcast": lambda x, n: lax.pbroadcast(x, "i", n - 1),
    "all_gather": lambda x, n: lax.all_gather(x, "i"),
    "all_gather 1": lambda x, n: lax.all_gather(x, "i", axis=1),
    "all_gather tiled": lambda x, n: lax.all_gather(x, "i", axis=1, tiled=True),
    "psum_scatter": lambda x, n: lax.psum_scatter(x, "i"),
    "psum_scatter tiled": lambda x, n: lax.psum_scatter(x, "i", scatter_dimension=1, tiled=True),
    "all_to_all": lambda x, n: lax.all_to_all(x, "i", 0, 1),
    "all_to_all tiled": lambda x, n: lax.all_to_all(x, "i", 1, 0, tiled=True),
    "axis_index": lambda x, n: x * (1 + lax.axis_index("i").astype(x.dtype)),
    "axis_size": lambda x, n: x * lax.axis_size("i"),
}
SIZES = pytest.mark.parametrize("n", [1, 2, 3])
ALL = pytest.mark.parametrize("name", CASES)


def operand(n, dtype="float64"):
    x = RNG.normal(size=(n, n, 2 * n)) * 4
    return x.astype(dtype)


@SIZES
@ALL
def test_values_and_derivatives(name, n):
    f = lambda x: CASES[name](x, n)
    loss = lambda x: jnp.sum(jnp.sin(f(x * x)))
    x, t = operand(n), operand(n)
    both(f, n, x)
    both(lambda x, t: fnx.jvp(lambda x: f(x * x), (x,), (t,)), n, x, t)
    both(fnx.grad(loss), n, x)


@SIZES
@ALL
def test_inside_vmap(name, n):
    f = fnx.vmap(lambda x: CASES[name](x, n), in_axes=1, out_axes=1)
    both(f, n, RNG.normal(size=(n, n, 2, 2 * n)))


@ALL
def test_vmap_of_the_member_and_its_gradient(name):
    n = 2
    f = lambda x: jnp.sum(CASES[name](x, n) ** 2)
    x = RNG.normal(size=(n, 3, n, 2 * n))
    expected = fnx.vmap(fnx.vmap(fnx.grad(f)), axis_name="i")(x)
    one = fnx.vmap(fnx.grad(spmd(f, {"i": n})))
    for g in (one, fnx.jit(one)):
        close(np.stack(Local(n, TIMEOUT).run("i", g, jnp.asarray(x))), expected)


@pytest.mark.slow
@ALL
def test_in_loops_and_branches(name):
    n = 2
    f = lambda x: CASES[name](x, n)

    scanned, looped, chosen = in_control_flow(f)
    x = operand(n)
    for g in (scanned, looped, chosen):
        both(g, n, x)
    both(fnx.grad(lambda x: sum(jnp.sum(jnp.sin(y)) for y in scanned(x))), n, x)
    both(fnx.grad(lambda x: jnp.sum(jnp.sin(chosen(x)))), n, x)
    both(fnx.grad(lambda x: jnp.sum(jnp.sin(looped(x)))), n, x)


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "complex64", "bool", "float16"])
@ALL
def test_dtypes(name, dtype):
    if dtype == "complex64" and name in ("pmax", "pmin"):
        pytest.skip("complex numbers have no order")
    both(lambda x: CASES[name](x, 2), 2, np.abs(operand(2)).astype(dtype))


@SIZES
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_rank_0_and_empty(shape, n):
    x = RNG.normal(size=(n, *shape))
    for name in ("psum", "pmax", "ppermute", "pbroadcast", "all_gather", "axis_index"):
        both(lambda x, name=name: CASES[name](x, n), n, x)


def test_groups_and_a_second_axis():
    groups = [[0, 2], [3, 1]]
    x = RNG.normal(size=(4, 2, 2))
    both(lambda x: lax.psum(x, "i", axis_index_groups=groups), 4, x)
    both(lambda x: lax.all_gather(x, "i", axis_index_groups=groups), 4, x)
    both(lambda x: lax.psum_scatter(x, "i", axis_index_groups=groups), 4, x)
    both(lambda x: lax.all_to_all(x, "i", 0, 1, axis_index_groups=groups), 4, x)
    both(fnx.vmap(lambda x: x / lax.psum(x, ("i", "j")), axis_name="j"), 4, x)


def test_equations_stay():
    f = spmd(lambda x: lax.psum(x, "i") + lax.axis_index("i"), {"i": 3})
    text = str(fnx.make_jaxpr(f)(1.0))
    assert "psum[axes=('i',)" in text
    assert "axis_index" in text
    assert "reduce_sum" not in text


def test_one_program_for_all_members():
    traced = []

    def f(x):
        traced.append(1)
        return lax.psum(x, "i")

    g = fnx.jit(spmd(f, {"i": 3}))
    for _ in range(2):
        close(np.stack(Local(3, TIMEOUT).run("i", g, jnp.arange(3.0))), [3.0] * 3)
    assert len(traced) <= 3  # threads may trace at once, but no run traces again


def test_without_a_transport():
    f = spmd(lambda x: lax.psum(x, "i"), {"i": 2})
    for g in (f, fnx.jit(f)):
        with pytest.raises(MissingTransport, match="no transport is in force"):
            g(jnp.ones(3))
    with pytest.raises(InvalidValue, match="bound already"):
        fnx.vmap(f, axis_name="i")(jnp.ones(2))


def smoothed(x, n):
    """Steps of diffusion on a ring of members; each has a row, and a cell of each neighbour (a halo)."""

    def step(u, _):
        left = lax.ppermute(u[-1:], "i", ring(n))
        right = lax.ppermute(u[:1], "i", [(b, a) for a, b in ring(n)])
        wide = jnp.concatenate([left, u, right])
        return u + 0.1 * (wide[2:] - 2 * u + wide[:-2]) - 0.01 * u**3, None

    return lax.scan(step, x, None, length=5)[0]


@SIZES
def test_halo_exchange(n):
    def whole(x):
        def step(u, _):
            around = jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1)
            return u + 0.1 * around - 0.01 * u**3, None

        return lax.scan(step, x, None, length=5)[0]

    x = RNG.normal(size=(n, 6))
    expected = fnx.grad(lambda x: jnp.sum(jnp.sin(whole(x))))(x.ravel()).reshape(x.shape)
    # Each member's loss is its part; what flows back to a member is the derivative of their sum.
    gradient = fnx.grad(lambda x: jnp.sum(jnp.sin(smoothed(x, n))))
    for g in (gradient, fnx.jit(gradient)):
        close(members(lambda x: smoothed(x, n), n, x).ravel(), whole(x.ravel()))
        close(members(g, n, x), expected)
