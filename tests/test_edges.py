"""Arrays made of a large piece and thin ones (rolled, padded) are read by stencils as they are."""

import os

import numpy as np
import pytest
from kernels import workspace

import fnx
import fnx.numpy as jnp
from fnx import lax

FUZZ, START = (int(os.environ.get(k, 0)) for k in ("FNX_FUZZ", "FNX_FUZZ_FROM"))

pytestmark = pytest.mark.usefixtures("checked")


def laplacian(np_, u, axes):
    return sum(np_.roll(u, s, a) for a in axes for s in (1, -1)) - 2 * len(axes) * u


@pytest.mark.parametrize("shape", [(300,), (40, 50), (17, 20), (20, 24, 28), (100, 3, 40)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_periodic_stencils(shape, dtype):
    u = np.random.default_rng(0).normal(size=shape).astype(dtype)
    axes = [k for k, n in enumerate(shape) if n > 3]
    fn = lambda np_, u: u + np_.asarray(0.1, dtype) * laplacian(np_, u, axes)
    step = lambda u: fn(jnp, u)
    assert workspace(step, u) < u.nbytes  # no shifted copy
    tolerance = {"float64": 1e-13, "float32": 2e-6}[dtype]
    np.testing.assert_allclose(fnx.jit(step)(u), fn(np, u), rtol=tolerance, atol=tolerance)
    loop = lambda u: lax.fori_loop(0, 5, lambda _, u: step(u), u)
    wanted = u
    for _ in range(5):
        wanted = fn(np, wanted)
    np.testing.assert_allclose(fnx.jit(loop)(u), wanted, rtol=tolerance * 9, atol=tolerance * 9)


@pytest.mark.parametrize("mode", ["edge", "wrap", "reflect", "symmetric", "constant"])
def test_padded_stencils_and_their_gradients(mode):
    u = np.random.default_rng(1).normal(size=(30, 41))

    def step(np_, u):
        p = np_.pad(u, ((1, 1), (2, 1)), mode=mode)
        return u + 0.1 * (p[2:, 2:-1] * p[:-2, 2:-1] - p[1:-1, :-3] + p[1:-1, 3:] * u)

    np.testing.assert_allclose(fnx.jit(lambda u: step(jnp, u))(u), step(np, u), rtol=1e-13)
    loss = lambda u: (step(jnp, step(jnp, u)) ** 2).sum()
    gradient = fnx.jit(fnx.grad(loss))(u)
    d = np.random.default_rng(2).normal(size=u.shape)
    ends = [(step(np, step(np, u + h * d)) ** 2).sum() for h in (1e-6, -1e-6)]
    np.testing.assert_allclose(np.vdot(gradient, d), (ends[0] - ends[1]) / 2e-6, rtol=1e-7)


def test_inside_no_choice_is_left():
    """The loop over the inside reads its neighbours, and nothing decides which."""
    u = jnp.ones((200, 300))
    text = fnx.jit(lambda u: u + 0.1 * laplacian(jnp, u, (0, 1))).lower(u).as_text("kernel")
    assert "select" not in text
    assert "< 198:" in text
    assert "< 298:" in text


def test_what_sums_or_multiplies_a_rolled_array_stores_it():
    """Loops of reductions and libraries are not cut."""
    rng = np.random.default_rng(3)
    u, m = rng.normal(size=(64, 80)), rng.normal(size=(80, 50))
    cases = [
        lambda np_, u: np_.roll(u, 1, 1) @ m,
        lambda np_, u: (np_.roll(u, 1, 0) * u).sum(axis=0),
        lambda np_, u: np_.cumsum(np_.roll(u, 3, 1), axis=1),
        lambda np_, u: np_.sort(np_.roll(u, 3, 0), axis=0),
        lambda np_, u: np_.roll(u, 1, 0).T + np_.roll(u.T, 1, 0),
        lambda np_, u: np_.roll(u, 1, 0)[::2, 3:] + 1,
        lambda np_, u: np_.roll(u, 1, 0).reshape(-1)[5:],
        lambda np_, u: np_.roll(u, 1, 0).max() + np_.roll(u, 1, 1).min(),
    ]
    for fn in cases:
        found = fnx.jit(lambda u, fn=fn: fn(jnp, u))(u)
        np.testing.assert_allclose(found, fn(np, u), rtol=1e-12, atol=1e-12)


def test_a_donated_field_is_not_read_after_it_was_written():
    u = np.random.default_rng(4).normal(size=(70, 60))
    step = lambda np_, u: 0.5 * np_.roll(u, 1, 0) - 0.3 * np_.roll(u, -2, 1) + u
    found = fnx.jit(lambda u: step(jnp, u), donate_argnums=0)(jnp.array(u))
    np.testing.assert_allclose(found, step(np, u), rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("n", [0, 2])
def test_boxes_without_elements(n):
    """A chain of updates, one of which may change nothing, in the place of what dies there."""
    u, a = np.random.default_rng(5).normal(size=(2, 2, 64))

    def f(u, a):
        u = jnp.sin(u) @ jnp.ones((64, 64))
        u = u.at[:, :63].add(a[:, 1:]).at[:1].add(a[1:])
        return 0.5 * u.at[:, :n].add(0.5 * a[:, 64 - n :])

    wanted = np.sin(u) @ np.ones((64, 64))
    wanted[:, :63] += a[:, 1:]
    wanted[:1] += a[1:]
    wanted[:, :n] += 0.5 * a[:, 64 - n :]
    np.testing.assert_allclose(fnx.jit(f)(u, a), 0.5 * wanted, rtol=1e-12, atol=1e-12)


class Fields:
    """A random program of shifts, pads, slices, joins and arithmetic on a field; NumPy does the same."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        shapes = [(20,), (90,), (24, 17), (16, 40), (3, 30, 20), (18, 16, 20), (2, 64)]
        self.shape = shapes[self.rng.integers(len(shapes))]

    def move(self):
        rng, axis = self.rng, int(self.rng.integers(len(self.shape)))
        n, by = self.shape[axis], int(rng.integers(-4, 5))
        mode = ["edge", "wrap", "reflect", "symmetric", "constant"][rng.integers(5)]
        width = [(0, 0)] * len(self.shape)
        width[axis] = lo, hi = tuple(int(k) for k in rng.integers(0, 3, 2)) if n > 3 else (0, 0)
        start = int(rng.integers(0, lo + hi + 1))
        cut = (*[slice(None)] * axis, slice(start, start + n))

        def joined(np_, x):
            k = min(abs(by), n - 1)
            parts = [x[(*cut[:-1], slice(k, n))], 0.5 * x[(*cut[:-1], slice(0, k))]]
            return np_.concatenate(parts, axis)

        return [
            lambda np_, x: np_.roll(x, by, axis),
            lambda np_, x: np_.pad(x, width, mode=mode)[cut],
            lambda np_, x: np_.roll(np_.roll(x, 1, axis), by, -1),
            joined,
        ][rng.integers(4)]

    def statement(self):
        f, g = self.move(), self.move()
        return [
            lambda np_, x, y: f(np_, x) + 0.5 * y,
            lambda np_, x, y: f(np_, x) * g(np_, y) - x,
            lambda np_, x, y: np_.where(x > 0, f(np_, x), g(np_, x)),
            lambda np_, x, y: np_.sin(f(np_, x)) + g(np_, np_.cos(y)),
            lambda np_, x, y: f(np_, x) - np_.mean(g(np_, x) * y),
            lambda np_, x, y: f(np_, x - y) + g(np_, x - y),
        ][self.rng.integers(6)]

    def program(self):
        body = [(self.statement(), *self.rng.integers(0, 3, 2)) for _ in range(5)]

        def run(np_, x, y):
            known = [x, y, 0.5 * x]
            for fn, a, b in body:
                known = [known[1], known[2], fn(np_, known[a], known[b])]
            return known

        return run, self.rng.uniform(-1, 1, (2, *self.shape))


@pytest.mark.parametrize("seed", [*range(START, START + (FUZZ or 25)), 993063])  # an empty box
def test_random_fields(seed):
    f, args = Fields(seed).program()
    for a, b in zip(fnx.jit(lambda *xs: f(jnp, *xs))(*args), f(np, *args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)

    def steps(*xs):
        return lax.fori_loop(0, 2, lambda _, s: tuple(jnp.tanh(z) for z in f(jnp, *s)[1:]), xs)

    loss = lambda *xs: sum(jnp.sum(jnp.cos(z)) for z in steps(*xs))
    d = np.random.default_rng(seed).normal(size=(2, *args[0].shape))
    slope = sum(np.vdot(g, v) for g, v in zip(fnx.jit(fnx.grad(loss, (0, 1)))(*args), d))
    with fnx.disable_jit():
        wanted = fnx.jvp(loss, tuple(map(jnp.asarray, args)), tuple(map(jnp.asarray, d)))[1]
    np.testing.assert_allclose(slope, float(wanted), rtol=1e-8, atol=1e-8)
