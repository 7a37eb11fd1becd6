"""Long loops whose arrays change as a whole: their derivative keeps them block by block."""

import re

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import policy
from fnx.core.backend import Memory
from fnx.interpreters.reverse import checkpoint_blocks
from fnx.transforms.traced_program import NamedBackend

RNG = np.random.default_rng(9)
M, N = 6, 5
A = jnp.asarray(RNG.normal(size=(M, N)))
K = np.arange(N)


def gram_schmidt(a, length=N):
    """Modified Gram-Schmidt: one array changes as a whole, two in places."""

    def direction(k, state):
        a, q, r = state
        norm = jnp.sqrt(jnp.sum(a[:, k] ** 2))
        unit = a[:, k] / norm
        share = jnp.where(k < K, unit @ a, 0.0)
        q = q.at[:, k].set(unit * (1.0 + k))
        return a - unit[:, None] * share[None, :], q, r.at[k].set(share).at[k, k].set(norm)

    start = (a, jnp.zeros((M, N)), jnp.zeros((N, N)))
    _, q, r = lax.fori_loop(0, length, direction, start)
    return jnp.sum(jnp.sin(q)) + jnp.sum(r**2)


def rows(reverse, length):
    """Rows in and out, a counter, and a number of each iteration that has no slope."""

    def f(a):
        def step(state, x):
            i, a = state
            a = jnp.sin(a) * (1 + 0.1 * x) + 0.01 * i
            return (i + 1, a), (jnp.sum(a * x), i * 2, a[0])

        xs = jnp.outer(jnp.arange(1.0, length + 1), a[0, :1])[:, :, None]
        (i, last), (sums, _numbers, firsts) = lax.scan(step, (0, a), xs, reverse=reverse)
        return jnp.sum(last) + jnp.sum(sums**2) + jnp.vdot(firsts, jnp.cos(firsts)) + 0.0 * i

    return f


def mixed(a):
    """A row whose slope reaches it only from the first iterations of the loop."""

    def step(state, x):
        a, b = state
        return (jnp.cos(a) * x, jnp.tanh(b + a)), (a * 2, b)

    (a, b), (ys, zs) = lax.scan(step, (a, jnp.zeros_like(a)), np.linspace(0.5, 1, 11))
    return jnp.sum(a * b) + jnp.sum(ys[3] * zs[-1])


PROGRAMS = {
    "gram_schmidt": lambda: gram_schmidt,
    "rows": lambda: rows(False, 11),
    "rows, from the other end": lambda: rows(True, 11),
    "whole blocks alone": lambda: rows(False, 12),
    "mixed": lambda: mixed,
}


@pytest.fixture
def small(monkeypatch):
    """Blocks for small arrays and few iterations."""
    for name in ("BLOCKED_ITERATIONS", "BLOCKED_STATE"):
        monkeypatch.setattr(policy, name, 4)
    monkeypatch.setattr(NamedBackend, "memory", Memory(near=4, near_row=0, stacks=0))
    used = []
    original = checkpoint_blocks.in_blocks

    def counting(scan, size, counts):
        used.append(size)
        return original(scan, size, counts)

    monkeypatch.setattr(checkpoint_blocks, "in_blocks", counting)
    return used


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("how", ["grad", "hessian-vector", "forward of grad", "lanes", "linear"])
def test_derivatives_are_those_of_the_plain_loop(name, how, monkeypatch, small):
    v = jnp.asarray(np.random.default_rng(3).normal(size=A.shape))

    def derivative():
        f = PROGRAMS[name]()
        if how == "grad":
            return fnx.jit(fnx.grad(f))(A)
        if how == "hessian-vector":
            return fnx.jit(fnx.grad(lambda a: jnp.vdot(fnx.grad(f)(a), v)))(A)
        if how == "forward of grad":
            return fnx.jvp(fnx.grad(f), (A,), (v,))[1]
        if how == "lanes":
            return fnx.vmap(fnx.jit(fnx.grad(f)))(jnp.stack([A, A + 0.1]))
        return fnx.linearize(f, A)[1](v)

    found = derivative()
    assert small
    monkeypatch.setattr(policy, "BLOCKED_ITERATIONS", 10**9)
    small.clear()
    want = derivative()
    assert not small
    np.testing.assert_allclose(found, want, rtol=1e-11, atol=1e-12)


def test_memory_grows_with_the_square_root():
    """A nonlinear diffusion of 400 steps keeps some fifty states."""
    n, length = 80, 400

    def loss(u):
        def step(_, u):
            flow = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 1) - 2 * u
            return u + 0.1 * (flow + u * (1 - u * u))

        return jnp.sum(lax.fori_loop(0, length, step, u))

    u = jnp.ones((n, n))
    memory = fnx.jit(fnx.grad(loss)).lower(u).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 60 * u.nbytes


@pytest.mark.parametrize(("n", "stored"), [(512, True), (8192, False)])
def test_what_stays_in_caches_is_stored(n, stored):
    """500 states of 4 kB do: to go back over them costs less than to run their iterations again."""

    def loss(u):
        step = lambda _, u: u - 0.1 * u * (jnp.roll(u, -1) - jnp.roll(u, 1))
        return jnp.sum(lax.fori_loop(0, 500, step, u) ** 2)

    u = jnp.ones(n)
    memory = fnx.jit(fnx.grad(loss)).lower(u).compile().memory_analysis()
    assert (memory.temp_size_in_bytes >= 500 * u.nbytes) == stored


def test_what_strips_of_lanes_keep_near_is_stored():
    """Pendulums are swung a few at a time: there and back."""

    def loss(angles, kicks):
        def step(state, kick):
            angle, speed = state
            speed = speed - 0.01 * (jnp.sin(angle) + 0.1 * speed) + kick[0] * kick[1]
            return (angle + 0.01 * speed, speed), None

        return jnp.sum(lax.scan(step, (angles, jnp.zeros_like(angles)), kicks)[0][0] ** 2)

    angles, kicks = RNG.normal(size=1000), 0.1 * RNG.normal(size=(500, 2, 1000))
    gradient = fnx.grad(loss)
    lowered = fnx.jit(gradient, backend="cpu").lower(angles, kicks)  # whose caches strips are for
    assert "strips of" in lowered.compile().report()
    text = lowered.as_text("kernel")
    assert re.findall(r"for t\d+ < (\d+)", text) == ["500", "500"]  # no blocks of iterations
    np.testing.assert_allclose(
        fnx.jit(gradient)(angles, kicks), gradient(angles, kicks), rtol=1e-9, atol=1e-9
    )


def test_what_costs_more_than_it_stores_is_stored():
    """Products of matrices are not computed twice, and short loops store each iteration."""
    w = jnp.asarray(RNG.normal(size=(64, 64)) / 8)

    def loss(h, length):
        return jnp.sum(lax.fori_loop(0, length, lambda _, h: jnp.tanh(w @ h), h))

    def states(f):
        h = jnp.ones((64, 32))
        memory = fnx.jit(fnx.grad(f)).lower(h).compile().memory_analysis()
        return memory.temp_size_in_bytes / h.nbytes

    assert 400 <= states(lambda h: loss(h, 400)) < 420


def test_callbacks_are_called_once_for_each_iteration(small):
    """Iterations with effects are not run again."""
    seen = []

    def loss(a):
        def step(_, a):
            fnx.debug.callback(seen.append, a[0, 0])
            return jnp.sin(a)

        return jnp.sum(lax.fori_loop(0, 12, step, a))

    fnx.jit(fnx.grad(loss))(A).block_until_ready()
    fnx.effects_barrier()
    assert len(seen) == 12
    assert not small


def test_a_vector_that_grows_is_kept_block_by_block_and_counters_are_computed(monkeypatch):
    """Durbin's recursion: of its vectors a few for each block, and no line of integers in memory."""
    monkeypatch.setattr(NamedBackend, "memory", Memory(near=1 << 20, stacks=0))
    n = 400
    index = np.arange(n)

    def durbin(r):
        def grow(k, state):
            y, alpha, beta = state
            beta = (1.0 - alpha * alpha) * beta
            mirror = jnp.where(index < k, jnp.take(y, k - 1 - index, mode="clip"), 0.0)
            past = jnp.where(index < k, jnp.take(r, k - 1 - index, mode="clip"), 0.0)
            alpha = -(r[k] + jnp.sum(past * y)) / beta
            return (y + alpha * mirror).at[k].set(alpha), alpha, beta

        start = (jnp.zeros(n).at[0].set(-r[0]), -r[0], jnp.ones(()))
        return jnp.sum(lax.fori_loop(1, n, grow, start)[0] ** 2)

    r = jnp.asarray(0.4 * RNG.uniform(-1, 1, n) / np.sqrt(n))
    lowered = fnx.jit(fnx.grad(durbin)).lower(r)
    assert lowered.compile().memory_analysis().temp_size_in_bytes < 8 * n * n / 3
    assert "global b" in lowered.as_text("kernel")
    assert "int64" not in lowered.as_text("kernel")
