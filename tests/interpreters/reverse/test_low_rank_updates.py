"""Matrices that loops change by outer products: gradients without storing them, or slopes would tell."""

from functools import cache

import numpy as np
import pytest
from loop_checks import python_loop

import fnx
import fnx.numpy as jnp
from fnx import lax

N, M = 14, 9
RNG = np.random.default_rng(12)
A = jnp.asarray(RNG.normal(size=(N, M)))
SQUARE = jnp.asarray(RNG.normal(size=(N, N)))


def orthogonal(loop, a):
    """Modified Gram-Schmidt."""
    m = a.shape[1]
    index = jnp.arange(m)

    def direction(k, state):
        a, r = state
        unit = a[:, k] / jnp.sqrt(jnp.sum(a[:, k] ** 2))
        share = jnp.where(index > k, unit @ a, 0.0)
        return a - unit[:, None] * share[None, :], r.at[k].set(share)

    return loop(0, m, direction, (a, jnp.zeros((m, m))))[1]


def orthogonal_in_place(loop, a):
    """The same; each direction takes the place of its column."""
    m = a.shape[1]
    index = jnp.arange(m)

    def direction(k, a):
        unit = a[:, k] / jnp.sqrt(jnp.sum(a[:, k] ** 2))
        a = a.at[:, k].set(unit)
        return a - jnp.outer(unit, jnp.where(index > k, unit @ a, 0.0))

    return loop(0, m, direction, a)


def rows_replaced(loop, a):
    """A row is replaced, one from the end or none, before a product and after it."""

    def step(k, a):
        v = jnp.tanh(a @ a[k])
        a = lax.dynamic_update_slice(a, 0.5 * jnp.sin(a[k])[None], (k, 0))
        a = a + 0.1 * jnp.outer(v, v @ a)
        return a.at[a.shape[0] + 1 - k].set(0.3 * a[0]).at[-1 - k].set(v)

    return loop(0, a.shape[0] - 2, step, a)


def reflected(loop, a):
    """Householder's reflections, in a matrix and what they are put together to."""
    index = jnp.arange(a.shape[0])

    def step(k, state):
        a, q = state
        x = jnp.where(index >= k, a[:, k], 0.0)
        v = x.at[k].add(jnp.sqrt(jnp.sum(x * x)))
        beta = 2.0 / jnp.sum(v * v)
        return a - beta * jnp.outer(v, v @ a), q - beta * jnp.outer(q @ v, v)

    return sum(loop(0, a.shape[1], step, (a, jnp.eye(a.shape[0])))[k][:, :3] for k in (0, 1))


def both_sides(loop, a):
    """Two products in an iteration, of which the second reads what the first made."""

    def step(k, a):
        v = jnp.tanh(a[:, k])
        a = a - 0.3 * jnp.outer(v, v @ a)
        return 0.1 * jnp.outer(a @ v, v) + a

    return loop(0, a.shape[0] - 2, step, a)


def symmetric(loop, a):
    def step(k, a):
        v = jnp.sin(a[k])
        w = a @ v
        return a - jnp.outer(v, w) / 20.0 * 2.0 - jnp.outer(0.1 * w, v)

    return loop(0, a.shape[0], step, a)


def with_matrices(loop, a):
    """Products with matrices, from both sides."""
    b = jnp.cos(a)

    def step(k, a):
        v, w = jnp.sum(jnp.tanh(a @ b.T), 1), jnp.sum(jnp.tanh(b.T @ a), 0)
        return a + 0.01 * v[:, None] * w[None, :]

    return loop(0, 12, step, a)


def also_elementwise(loop, a):
    """Read in other ways too."""

    def step(k, a):
        v = jnp.tanh(a[:, k])
        return a - 0.1 * jnp.outer(v, v @ a) + 0.0 * jnp.sum(jnp.sin(a))

    return loop(0, a.shape[1], step, a)


def fixed_factor(loop, a):
    """One of the vectors is a constant of the loop."""
    u = jnp.arange(1.0, a.shape[0] + 1) / 10.0
    step = lambda k, a: a - jnp.outer(u, jnp.tanh(u @ a) * k) / 9.0
    return loop(0, a.shape[1], step, a)


PROGRAMS = [
    (orthogonal, A), (orthogonal_in_place, A), (rows_replaced, SQUARE[:6, :6]),
    (reflected, SQUARE), (both_sides, SQUARE), (symmetric, SQUARE),
    (with_matrices, A), (also_elementwise, A), (fixed_factor, A),
]  # fmt: skip


def backwards(low, high, body, state):
    """The same iterations, in a scan from the other end."""
    rows = low + high - 1 - jnp.arange(low, high)
    return lax.scan(lambda s, i: (body(i, s), None), state, rows, reverse=True)[0]


def in_parts(low, high, body, state):
    """Loops one after the other: the second begins with what depends on the first."""
    half = (low + high) // 2
    return lax.fori_loop(half, high, body, lax.fori_loop(low, half, body, state))


@pytest.fixture(params=["always", "large"])
def from_which_on(request, monkeypatch):
    if request.param == "always":
        monkeypatch.setattr("fnx.core.policy.LOW_RANK_BYTES", 0)
        monkeypatch.setattr("fnx.core.policy.LOW_RANK_STACKS", 100)


def loss_of(program, loop):
    def loss(a):
        out = program(loop, a)
        return jnp.sum(jnp.sin(out) * jnp.arange(1.0, out.size + 1).reshape(out.shape)) / out.size

    return loss


@cache
def by_python_loops(program):
    """The gradient where the program is tried."""
    return fnx.grad(loss_of(program, python_loop))(dict(PROGRAMS)[program])


@pytest.mark.slow
@pytest.mark.parametrize("loop", [lax.fori_loop, backwards, in_parts])
@pytest.mark.parametrize(("program", "a"), PROGRAMS)
def test_against_python_loops(program, a, loop, from_which_on):
    loss, want = loss_of(program, loop), by_python_loops(program)
    scale = float(jnp.max(jnp.abs(want)))
    for f in (fnx.grad(loss), fnx.jit(fnx.grad(loss))):
        np.testing.assert_allclose(f(a), want, rtol=1e-9, atol=1e-11 * scale)
    d = jnp.cos(a * 3.0)
    slope = fnx.linearize(loss, a)[1](d)
    np.testing.assert_allclose(slope, jnp.vdot(want, d), rtol=1e-9)
    np.testing.assert_allclose(fnx.jvp(loss, (a,), (d,))[1], slope, rtol=1e-9)


@pytest.mark.parametrize("program", [orthogonal, both_sides])
def test_lanes_and_second_derivatives(program, from_which_on):
    a = SQUARE[:6, :6]
    loss = loss_of(program, lax.fori_loop)
    lanes = fnx.jit(fnx.vmap(fnx.grad(loss)))(jnp.stack([a, a * 0.9]))
    np.testing.assert_allclose(lanes[1], fnx.grad(loss)(a * 0.9), rtol=1e-8, atol=1e-10)
    d = jnp.sin(a)
    curve = lambda loss: fnx.grad(lambda x: jnp.vdot(fnx.grad(loss)(x), d))(a)
    want = curve(loss_of(program, python_loop))
    scale = float(jnp.max(jnp.abs(want)))
    np.testing.assert_allclose(curve(loss), want, rtol=1e-7, atol=1e-9 * scale)


@pytest.mark.parametrize(("program", "shape", "most"), [
    (orthogonal, (120, 80), 6), (orthogonal_in_place, (120, 80), 7),
    (reflected, (80, 80), 14), (both_sides, (100, 100), 9),
])  # fmt: skip
def test_no_matrix_is_kept_for_each_iteration(program, shape, most):
    """A few matrices, whose number does not grow with that of the iterations."""
    a = jnp.asarray(RNG.normal(size=shape))
    gradient = fnx.jit(fnx.grad(loss_of(program, lax.fori_loop)))
    used = gradient.lower(a).compile().memory_analysis().temp_size_in_bytes
    assert used <= most * a.nbytes


def test_columns_that_are_replaced_alone_are_restored():
    """Left-looking Cholesky: what is overwritten is kept, which is less than the columns' stacks."""
    n = 120
    a = jnp.asarray(RNG.normal(size=(n, n))) / n
    a = a @ a.T + jnp.eye(n)

    def cholesky(a):
        def column(j, factor):
            v = a[:, j] - factor @ factor[j]
            return factor.at[:, j].set(jnp.where(jnp.arange(n) >= j, v / jnp.sqrt(v[j]), 0.0))

        return jnp.sum(lax.fori_loop(0, n, column, jnp.zeros((n, n))) ** 2)

    compiled = fnx.jit(fnx.grad(cholesky)).lower(a).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 4.5 * a.nbytes
