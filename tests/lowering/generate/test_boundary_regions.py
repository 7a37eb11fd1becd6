"""Arrays made of a large piece and thin ones (rolled, padded) are read by stencils as they are."""

import os
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from kernels import workspace

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.lowering.generate import nests, values

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


@pytest.mark.slow
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


def upwind(np_, u, axes):
    """Rusanov's flux of u^2/2, differenced, along some axes."""
    for k in axes:
        v = np_.roll(u, -1, k)
        speed = np_.maximum(abs(u), abs(v))
        flux = 0.25 * (u * u + v * v) - 0.5 * speed * (v - u)
        u = u - 0.1 * (flux - np_.roll(flux, 1, k))
    return u


@pytest.mark.parametrize("shape", [(300,), (40, 50), (17, 20)])
def test_the_adjoint_of_a_rolled_field_is_a_stencil(shape):
    """What comes back from rolled fields is added where the cotangent is made, in whole arrays."""
    rng = np.random.default_rng(5)
    u, d, w = (rng.normal(size=shape) for _ in range(3))
    for axes in [(0,), (len(shape) - 1,), range(len(shape))]:
        back = lambda u, w, axes=axes: fnx.vjp(lambda u: upwind(jnp, u, axes), u)[1](w)[0]
        text = fnx.jit(back).lower(u, w).as_text("kernel")
        assert "slice_add" not in text
        ends = [(upwind(np, u + h * d, axes) * w).sum() for h in (1e-6, -1e-6)]
        found = fnx.jit(back)(u, w)
        np.testing.assert_allclose(np.vdot(found, d), (ends[0] - ends[1]) / 2e-6, rtol=1e-7)
        np.testing.assert_allclose(found, back(u, w), rtol=1e-12, atol=1e-14)


def test_cheap_values_are_computed_again_for_each_neighbour_rather_than_stored():
    """Quotients by a number are products."""
    along = lambda f, k: (jnp.roll(f, -1, k) - jnp.roll(f, 1, k)) / 0.2

    def step(h, u):
        return h - 0.1 * along(h * u, 0), u - 0.1 * (u * along(u, 1) + along(h, 0))

    loss = lambda *c: (lax.fori_loop(0, 5, lambda _, c: step(*c), c)[0] ** 2).sum()
    h, u = 1 + 0.1 * np.random.default_rng(7).normal(size=(2, 40, 50))
    gradient = fnx.jit(fnx.grad(loss, (0, 1)))
    assert "_div" not in gradient.lower(h, u).as_text("kernel")
    np.testing.assert_allclose(gradient(h, u), fnx.grad(loss, (0, 1))(h, u), rtol=1e-11)


def test_of_a_group_no_more_is_stored_than_what_its_readers_make_of_it():
    """Fluxes to both sides and what stays: three arrays, not all that they are made of."""
    u = np.random.default_rng(6).normal(size=5000)
    flux = lambda a, b: 0.25 * (a * a + b * b) - 0.5 * jnp.maximum(abs(a), abs(b)) * (b - a)
    step = lambda u: u - 0.1 * (flux(u, jnp.roll(u, -1)) - flux(jnp.roll(u, 1), u))
    back = lambda u, w: fnx.vjp(step, u)[1](w)[0]
    assert workspace(back, u, u) <= 3 * u.nbytes


@pytest.mark.parametrize("cuts", [(5,), (40,), (2, 60), (1, 30, 33), (20, 40), (1, 2, 3, 60)])
def test_additions_to_boxes_that_fill_an_array(cuts):
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(2, 6, 64))
    ends = [0, *cuts, 64]

    def fn(x, y):
        out = x
        for k in rng.permutation(len(ends) - 1):
            low, high = ends[k], ends[k + 1]
            out = out.at[:, low:high].add(y[:, low:high] * (k + 1.0))
        for low, high in pairwise(ends):
            out = out.at[:, low:high].add(jnp.sin(y[:, 64 - high : 64 - low]))
        return out.at[2:4].add(1.0).at[:, ::2].add(2.0)

    wanted = x + y * np.repeat(np.arange(1.0, len(ends)), np.diff(ends))
    for low, high in pairwise(ends):
        wanted[:, low:high] += np.sin(y[:, 64 - high : 64 - low])
    wanted[2:4] += 1
    wanted[:, ::2] += 2
    np.testing.assert_allclose(fnx.jit(fn)(x, y), wanted, rtol=1e-13, atol=1e-13)


TOTALS = {
    "sum": lambda np_, u, v: ((np_.roll(u, 1, 0) - u) ** 2).sum(),
    "largest": lambda np_, u, v: abs(u - np_.roll(v, -2, 0)).max() + np_.roll(u, 1, 0).min(),
    "with what is stored": lambda np_, u, v: (
        np_.roll(u, 1, 0) * v - u,
        (np_.roll(u, 1, 0) * v).sum(),
        (v - np_.roll(v, 1, 0)).max(),
    ),
    "read by the rest": lambda np_, u, v: u - np_.roll(v, 1, 0) * (u * np_.roll(v, 1, 0)).sum(),
    "all axes and one": lambda np_, u, v: (
        (np_.roll(u, 1, 0) * v).sum(),
        (np_.roll(u, 1, 0) * v).sum(axis=0),
        (np_.roll(u, 1, 0) * v).sum(axis=-1),
    ),
    "integers": lambda np_, u, v: (np_.floor(np_.roll(u, 5, 0)) > v).astype("int64").sum(),
    "padded": lambda np_, u, v: (np_.pad(u, [(2, 2)] * u.ndim, mode="edge") ** 2).sum(),
}


@pytest.mark.parametrize("name", TOTALS)
@pytest.mark.parametrize("shape", [(300,), (40, 50), (17, 20), (800, 900), (3, 40, 24), (40, 1)])
def test_totals_of_rolled_fields(name, shape):
    rng = np.random.default_rng(8)
    u, v = rng.normal(size=(2, *shape))
    fn = TOTALS[name]
    found = fnx.jit(lambda u, v: fn(jnp, u, v))(u, v)
    for a, b in zip(*map(fnx.tree_util.tree_leaves, (found, fn(np, u, v))), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-10)


def test_a_total_of_a_rolled_field_is_made_where_the_field_is():
    """Neither a copy of the field nor another pass for the total; numbers made of it can wait."""
    u = np.random.default_rng(9).normal(size=(60, 70))

    def step(u):
        flux = u - jnp.roll(u, 1, 0)
        speed = jnp.sqrt(abs(flux).max()) + 1.0
        return u + 0.1 * (jnp.roll(flux, -1, 0) - flux), speed * 2.0

    assert workspace(lambda u: ((jnp.roll(u, 1, 0) - u) ** 2).sum(), u) < u.nbytes / 2
    assert workspace(step, u) <= u.nbytes
    out, speed = fnx.jit(step)(u)
    flux = u - np.roll(u, 1, 0)
    np.testing.assert_allclose(out, u + 0.1 * (np.roll(flux, -1, 0) - flux), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(speed, 2 * np.sqrt(abs(flux).max()) + 2, rtol=1e-13)


def test_gradients_by_numbers_and_by_fields_in_one_loop():
    rng = np.random.default_rng(10)
    u, w = rng.normal(size=(2, 30, 40))

    def loss(np_, u, a, b):
        for _ in range(3):
            u = u + a * laplacian(np_, u, (0, 1)) + b * np_.roll(u, 1, 0) * u
        return (u * w).sum()

    def looped(u, a, b):
        step = lambda _, u: u + a * laplacian(jnp, u, (0, 1)) + b * jnp.roll(u, 1, 0) * u
        return (lax.fori_loop(0, 3, step, u) * w).sum()

    found = fnx.jit(fnx.grad(looped, (0, 1, 2)))(u, 0.05, 0.02)
    d = rng.normal(size=u.shape), 0.3, -0.7
    at = lambda h: loss(np, u + h * d[0], 0.05 + h * d[1], 0.02 + h * d[2])
    slope = sum(np.vdot(g, x) for g, x in zip(found, d, strict=True))
    np.testing.assert_allclose(slope, (at(1e-5) - at(-1e-5)) / 2e-5, rtol=1e-7)


ELSEWHERE = {
    "mirrored": lambda np_, w: 2 * w[::-1],
    "rolled": lambda np_, w: np_.roll(w, 1) * w,
    "made of, rolled": lambda np_, w: np_.roll(3 * w + 1, 1),
    "in two pieces": lambda np_, w: np_.concatenate([w[50:], w[:50]]) * w,
    "of its cosine": lambda np_, w: np_.roll(np_.cos(w), 1),
}


@pytest.mark.parametrize("read", ELSEWHERE)
@pytest.mark.parametrize("made", ["tanh", "sort"])
def test_an_array_updated_and_read_elsewhere_in_one_sum(read, made):
    """What reads it is saved before boxes are added where it lies."""

    def step(np_, u):
        w = getattr(np_, made)(u)
        if np_ is jnp:
            new = w.at[1:-1].add(1.0).at[2:].add(u[2:] * 0.5)
        else:
            new = w.copy()
            new[1:-1] += 1.0
            new[2:] += u[2:] * 0.5
        return 0.5 * (new + ELSEWHERE[read](np_, w))

    u = np.linspace(0.0, 1.0, 100)
    np.testing.assert_allclose(fnx.jit(lambda u: step(jnp, u))(u), step(np, u), rtol=1e-13)
    found = fnx.jit(lambda u: lax.fori_loop(0, 3, lambda _, u: step(jnp, u), u))(u)
    np.testing.assert_allclose(found, step(np, step(np, step(np, u))), rtol=1e-12)


def test_additions_to_boxes_that_overlap():
    """Of many there are more ways through than can be tried, none of which reaches the end."""
    n = 60

    def fn(x, y):
        for k in range(n - 1):
            x = x.at[k : k + 1].add(y[k]).at[k : k + 2].add(y[k + 1])
        return x

    x, y = np.random.default_rng(8).normal(size=(2, n + 1))
    wanted = x.copy()
    for k in range(n - 1):
        wanted[k] += y[k]
        wanted[k : k + 2] += y[k + 1]
    np.testing.assert_allclose(fnx.jit(fn)(x, y), wanted, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("shape", [(60,), (21, 34), (9, 20, 18)])
def test_readers_of_a_chain_of_additions_join_it(shape):
    """The sum of shifted values is not stored before it is scaled and added to a field."""
    x, y = np.random.default_rng(9).normal(size=(2, *shape))

    def fn(xp, x, y):
        new = xp.zeros_like(x)
        for axis in range(x.ndim):
            ahead, behind = [slice(None)] * x.ndim, [slice(None)] * x.ndim
            ahead[axis], behind[axis] = slice(1, None), slice(None, -1)
            flux = x[tuple(ahead)] * y[tuple(behind)]
            if xp is np:
                new[tuple(behind)] += flux
                new[tuple(ahead)] -= flux
            else:
                new = new.at[tuple(behind)].add(flux).at[tuple(ahead)].add(-flux)
        return y - 0.5 * new, 1.0 / (1.0 + new * new)

    once = lambda x, y: fn(jnp, x, y)[0]
    assert workspace(once, x, y) < x.nbytes
    np.testing.assert_allclose(fnx.jit(once)(x, y), fn(np, x, y)[0], rtol=1e-13, atol=1e-13)
    both = fnx.jit(lambda x, y: fn(jnp, x, y))(x, y)  # with two readers, it is
    for found, wanted in zip(both, fn(np, x, y), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=1e-13)


def test_readers_of_chains_between_updates_and_steps():
    """What joined a chain is the start of the next one; carries; two chains in one sum."""
    x, y = np.random.default_rng(10).normal(size=(2, 40, 30))

    def diff(xp, x):
        new = xp.zeros_like(x)
        flux = 0.1 * (x[1:] - x[:-1])
        if xp is np:
            new[:-1] += flux
            new[1:] -= flux
            return new
        return new.at[:-1].add(flux).at[1:].add(-flux)

    def step(xp, x, y):
        both = diff(xp, x) + diff(xp, y)
        if xp is np:
            both[3] += 1.0
            return x + both, y - 0.5 * diff(xp, x)
        return x + both.at[3].add(1.0), y - 0.5 * diff(xp, x)

    found = fnx.jit(lambda x, y: lax.fori_loop(0, 5, lambda _, s: step(jnp, *s), (x, y)))(x, y)
    wanted = x, y
    for _ in range(5):
        wanted = step(np, *wanted)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_what_many_read_at_a_region_is_built_once(monkeypatch):
    """However many ways lead to it; else the time to compile would grow with their number."""
    made, region = Counter(), []
    init, stores_at = values.Inlined.__init__, nests.Nests._stores_at

    def counted(self, fn, *more, **named):
        def at(*index):
            if region:
                made[(region[-1], self, *index)] += 1
            return fn(*index)

        init(self, at, *more, **named)

    def at_region(self, at):
        region.append(object())
        try:
            return stores_at(self, at)
        finally:
            region.clear()

    monkeypatch.setattr(values.Inlined, "__init__", counted)
    monkeypatch.setattr(nests.Nests, "_stores_at", at_region)

    def step(np_, u):
        behind, ahead = np_.roll(u, 1, 0), np_.roll(u, -1, 1)
        return behind * ahead + behind * behind + (behind - ahead) * ahead

    u = np.random.default_rng(2).normal(size=(41, 52))
    np.testing.assert_allclose(fnx.jit(lambda u: step(jnp, u))(u), step(np, u), rtol=1e-13)
    assert len(made) > 9
    assert set(made.values()) == {1}
    assert values.Inlined.known is None
