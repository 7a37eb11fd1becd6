"""Strips: sweeps over many lanes are made strip by strip, where lanes never meet."""

import os
import re
from dataclasses import replace

import numpy as np
import pytest
from kernels import workspace

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import policy
from fnx.lowering.cpu.processor import thresholds

LEVELS, LANES = 60, 6000
FUZZ, START = (int(os.environ.get(k, 0)) for k in ("FNX_FUZZ", "FNX_FUZZ_FROM"))

pytestmark = pytest.mark.usefixtures("checked")


def is_in_strips(fn, *args):
    return "_strips:" in fnx.jit(fn).lower(*args).as_text("kernel")


def there_and_back(x):
    """Averages down the levels, and of these back up; both by NumPy as well."""

    def step(c, x):
        c = 0.9 * c + x
        return c, c

    zero = jnp.zeros(x.shape[1:])
    _, down = lax.scan(step, zero, x)
    return lax.scan(step, zero, jnp.sin(down), reverse=True)[1]


def there_and_back_numpy(x):
    c, down, up = np.zeros(x.shape[1:]), np.zeros(x.shape), np.zeros(x.shape)
    for k in range(len(x)):
        down[k] = c = 0.9 * c + x[k]
    c = np.zeros(x.shape[1:])
    for k in reversed(range(len(x))):
        up[k] = c = 0.9 * c + np.sin(down[k])
    return up


@pytest.mark.own_code
@pytest.mark.parametrize("lanes", [(6000,), (6007,), (75, 80), (61, 101), (3, 2000), (2, 50, 60)])
def test_two_sweeps(lanes):
    """Also where a remainder of lanes is no whole strip, and lanes have several axes."""
    x = np.random.default_rng(0).normal(size=(LEVELS, *lanes))
    assert is_in_strips(there_and_back, x)
    assert "strips of" in fnx.compile_report(there_and_back, x)
    assert workspace(there_and_back, x) < x.nbytes / 10  # no array of all lanes and levels
    found = fnx.jit(there_and_back)(x)
    np.testing.assert_allclose(found, there_and_back_numpy(x), rtol=1e-13, atol=1e-13)


@pytest.mark.own_code
@pytest.mark.parametrize(
    ("bits", "lanes", "widths"),
    [(512, 1000, ["32", "8"]), (256, 1000, ["20"]), (512, 100, ["20"]), (512, 160, ["32"])],
)
def test_strips_are_of_whole_vectors(monkeypatch, bits, lanes, widths):
    """Up to 35 lanes stay near; 20 of them divide all. Beside few strips one more would count."""
    monkeypatch.setattr(thresholds.features, "vector_bits", lambda: bits)
    monkeypatch.setattr(thresholds, "CPU", replace(thresholds.CPU, streamed_bytes=1 << 17))
    x = np.random.default_rng(0).normal(size=(350, lanes))
    assert re.findall(r"strips of (\d+) columns", fnx.compile_report(there_and_back, x)) == widths
    found = fnx.jit(there_and_back)(x)
    np.testing.assert_allclose(found, there_and_back_numpy(x), rtol=1e-13, atol=1e-13)


@pytest.mark.own_code
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_columns_along_any_axis(axis):
    x = np.random.default_rng(1).normal(size=(40, 70, 50))

    def fn(x):
        return jnp.moveaxis(there_and_back(jnp.moveaxis(x, axis, 0)), 0, axis)

    assert is_in_strips(fn, x)
    wanted = np.moveaxis(there_and_back_numpy(np.moveaxis(x, axis, 0)), 0, axis)
    np.testing.assert_allclose(fnx.jit(fn)(x), wanted, rtol=1e-13, atol=1e-13)


def test_gradients_of_sweeps():
    x = np.random.default_rng(2).normal(size=(LEVELS, LANES))
    loss = lambda x: (there_and_back(x) ** 2).sum()
    found = fnx.jit(fnx.grad(loss))(x)
    up, down = 2 * there_and_back_numpy(x), np.zeros(x.shape)
    c, state = np.zeros(LANES), np.zeros(LANES)
    for k in range(LEVELS):
        c = up[k] + 0.9 * c
        down[k] = c
    states = []
    for k in range(LEVELS):
        state = 0.9 * state + x[k]
        states.append(state)
    wanted, c = np.zeros(x.shape), np.zeros(LANES)
    for k in reversed(range(LEVELS)):
        wanted[k] = c = 0.9 * c + down[k] * np.cos(states[k])
    np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-11)


def lorenz(y):
    return jnp.stack([10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])


@pytest.mark.own_code
@pytest.mark.parametrize("members", [40_000, 40_003])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_members_of_an_ensemble(members, dtype):
    """The state has two halves, old and new, in memory of a strip's size; rows of 3 a member."""

    def step(y, _):
        return y + jnp.asarray(0.005, dtype) * lorenz(y).astype(dtype), None

    fn = fnx.vmap(lambda y: lax.scan(step, y, None, length=25)[0])
    y = np.random.default_rng(3).normal(size=(members, 3)).astype(dtype)
    assert is_in_strips(fn, y)
    assert workspace(fn, y) < 1000
    close = {"rtol": 1e-5, "atol": 1e-4} if dtype == "float32" else {"rtol": 1e-12, "atol": 1e-12}
    found, wanted = fnx.jit(fn)(y), y.T
    for _ in range(25):
        a, b, c = wanted
        slope = [10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c]
        wanted = wanted + np.asarray(0.005, dtype) * np.stack(slope).astype(dtype)
    np.testing.assert_allclose(found, wanted.T, **close)


@pytest.mark.own_code
def test_what_all_lanes_share_is_carried_along():
    """Time is the same number for all lanes; its last value is asked for, or is not."""

    def run(x, v, both):
        def step(carry, _):
            x, v, t = carry
            v = v - 0.01 * x + 0.1 * jnp.cos(t)
            return (x + 0.01 * v, v, t + 0.01), None

        x, v, t = lax.scan(step, (x, v, 0.0), None, length=40)[0]
        return (x, t) if both else x

    x, v = np.random.default_rng(4).normal(size=(2, 60_000))
    t, a, b = 0.0, x, v
    for _ in range(40):
        b = b - 0.01 * a + 0.1 * np.cos(t)
        a, t = a + 0.01 * b, t + 0.01
    assert is_in_strips(lambda x, v: run(x, v, False), x, v)
    np.testing.assert_allclose(
        fnx.jit(lambda x, v: run(x, v, False))(x, v), a, rtol=1e-12, atol=1e-14
    )
    found = fnx.jit(lambda x, v: run(x, v, True))(x, v)
    np.testing.assert_allclose(found[0], a, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found[1], t, rtol=1e-12)


def test_lanes_that_meet_are_no_lanes():
    """Each step reads the neighbours' values of the step before."""
    x = np.random.default_rng(5).normal(size=(200_000,))

    def fn(x):
        body = lambda _, x: x.at[1:-1].add(0.1 * (x[2:] - 2 * x[1:-1] + x[:-2]))
        return lax.fori_loop(0, 12, body, x)

    assert not is_in_strips(fn, x)
    found, wanted = fnx.jit(fn)(x), x.copy()
    for _ in range(12):
        wanted[1:-1] += 0.1 * (wanted[2:] - 2 * wanted[1:-1] + wanted[:-2])
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)


def test_sums_over_lanes_are_no_lanes():
    """Each step needs the mean over all lanes."""
    x = np.random.default_rng(6).normal(size=(100_000,))
    fn = lambda x: lax.fori_loop(0, 12, lambda _, x: x + 0.1 * (x.mean() - x), x)
    assert not is_in_strips(fn, x)
    wanted = x.mean() + (x - x.mean()) * 0.9**12
    np.testing.assert_allclose(fnx.jit(fn)(x), wanted, rtol=1e-9, atol=1e-12)


def test_gathers_along_levels_stay_within_lanes_and_others_do_not():
    rng = np.random.default_rng(7)
    x = rng.normal(size=(LEVELS, LANES))
    order = rng.permutation(LEVELS)

    def levels(x, order):
        return lax.scan(lambda c, k: (c * 0.5 + x[k], None), jnp.zeros(LANES), order)[0]

    def lanes(x, other):
        def step(x, _):
            return 0.5 * x + 0.5 * x[other], None

        return lax.scan(step, x, None, length=9)[0]

    wanted = np.zeros(LANES)
    for k in order:
        wanted = wanted * 0.5 + x[k]
    np.testing.assert_allclose(fnx.jit(levels)(x, order), wanted, rtol=1e-12, atol=1e-14)
    other = rng.permutation(200_000)
    y = rng.normal(size=200_000)
    assert not is_in_strips(lanes, y, other)
    wanted = y
    for _ in range(9):
        wanted = 0.5 * wanted + 0.5 * wanted[other]
    np.testing.assert_allclose(fnx.jit(lanes)(y, other), wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.own_code
def test_sweeps_inside_an_outer_loop():
    """What one outer round leaves, the next one finds."""
    x = np.random.default_rng(8).normal(size=(LEVELS, LANES))

    def fn(x):
        return lax.fori_loop(0, 3, lambda _, x: 0.1 * there_and_back(x), x)

    wanted = x
    for _ in range(3):
        wanted = 0.1 * there_and_back_numpy(wanted)
    assert is_in_strips(fn, x)
    np.testing.assert_allclose(fnx.jit(fn)(x), wanted, rtol=1e-12, atol=1e-13)


def test_donated_states_are_updated_strip_by_strip():
    x = np.random.default_rng(9).normal(size=(120_000,))
    fn = fnx.jit(lambda x: lax.fori_loop(0, 7, lambda k, x: x * 0.9 + k, x), donate_argnums=0)
    wanted = x
    for k in range(7):
        wanted = wanted * 0.9 + k
    np.testing.assert_allclose(fn(jnp.array(x)), wanted, rtol=1e-13)


@pytest.mark.own_code
def test_long_work_asks_in_between_whether_to_stop():
    """Strips are made in pieces of about a second, and no strip takes longer."""
    x = jnp.zeros((100_000,))

    def fn(x):
        step = lambda x, _: (jnp.sin(jnp.cos(x)) * 0.5 + jnp.exp(-x * x), None)
        return lax.scan(step, x, None, length=3000)[0]

    text = fnx.jit(fn).lower(x).as_text("kernel")
    assert "_strips:" in text
    assert "# polled" in text


def test_a_loop_with_steps_of_few_lanes_stays():
    """All of it is in cache anyway."""
    x = np.random.default_rng(10).normal(size=(50, 300))
    assert not is_in_strips(there_and_back, x)


# --- random sweeps over few lanes, as if caches were small -----------------------------------------


class Sweeps:
    """A random program over arrays of levels and lanes: sweeps, what is between, and what breaks lanes."""

    def __init__(self, seed):
        self.rng = rng = np.random.default_rng(seed)
        self.levels = int(rng.integers(1, 7))
        self.lanes = [(48,), (61,), (6, 16), (4, 17), (2, 5, 8), (96,)][rng.integers(6)]

    def pick(self, *what):
        return what[self.rng.integers(len(what))]

    def statement(self):
        """A function of two arrays that gives one."""
        make = self.pick(
            self.sweep, self.sweep, self.sweep, self.pointwise, self.levels_moved, self.steps,
            self.lanes_moved, self.axes_moved, self.columns, self.some_levels,
        )  # fmt: skip
        return make()

    def sweep(self):
        reverse, both = bool(self.rng.integers(2)), bool(self.rng.integers(2))
        decay, stacked = self.rng.uniform(0.2, 0.8), self.pick(0, 1, 2)

        def run(x, y):
            def step(carry, xs):
                c, d, t = carry
                x, y = xs
                new = decay * c + x + jnp.sin(t)
                d = d * 0.5 + new if both else d
                return (new, d, t + 0.1), (new, c * y, d)[stacked]

            zero = 0.0 * x[0]
            last, out = lax.scan(step, (zero, y[0], 0.0), (x, y), reverse=reverse)
            return out + last[1] if both else out

        return run

    def pointwise(self):
        return self.pick(
            lambda x, y: x * 0.5 + y,
            lambda x, y: jnp.tanh(x - y),
            lambda x, y: jnp.where(x > 0, x, 0.3 * y),
            lambda x, y: x * jnp.mean(y, axis=0),
            lambda x, y: x - 0.1 * jnp.max(x, axis=0, keepdims=True),
        )

    def levels_moved(self):
        return self.pick(
            lambda x, y: jnp.concatenate([y[:1], x[:-1]]),
            lambda x, y: x[::-1] + y,
            lambda x, y: jnp.roll(x, 1, axis=0) - 0.2 * y,
            lambda x, y: jnp.cumsum(x, axis=0) * 0.2,
        )

    def lanes_moved(self):
        return self.pick(
            lambda x, y: jnp.roll(x, 1, axis=-1) * 0.5 + y,
            lambda x, y: x.at[..., 1:].add(0.2 * y[..., :-1]),
            lambda x, y: x + 0.1 * jnp.mean(y, axis=-1, keepdims=True),
            lambda x, y: jnp.flip(x, -1) + y,
        )

    def axes_moved(self):
        """The same as columns along the last axis."""

        def run(x, y):
            x, y = jnp.moveaxis(x, 0, -1), jnp.moveaxis(y, 0, -1)
            step = lambda k, z: z.at[..., k].set(0.6 * z[..., k - 1] + y[..., k])
            return jnp.moveaxis(lax.fori_loop(1, self.levels, step, x), -1, 0)

        return run

    def columns(self):
        """Each lane under vmap, with a state of its own."""

        def column(x, y):
            step = lambda c, t: (c * 0.7 + jnp.stack([t, c[0], c[1]]), c.sum())
            last, out = lax.scan(step, jnp.stack([y[0], x[0], y[-1]]), x)
            return out + last[2]

        for _ in self.lanes:
            column = fnx.vmap(column, in_axes=-1, out_axes=-1)
        return column

    def steps(self):
        """A state that is made anew some times."""
        n = int(self.rng.integers(1, 5))
        return self.pick(
            lambda x, y: lax.fori_loop(0, n, lambda k, z: 0.5 * z + 0.1 * jnp.sin(z) * k + y, x),
            lambda x, y: lax.scan(lambda z, _: (z[::-1] * 0.9 + y, None), x, None, length=n)[0],
            lambda x, y: lax.fori_loop(0, n, lambda k, z: jnp.roll(z, 1, 0) - 0.3 * z, x) + y,
        )

    def some_levels(self):
        order = jnp.asarray(self.rng.integers(0, self.levels, self.levels))
        return self.pick(
            lambda x, y: x[order] + y,
            lambda x, y: lax.scan(lambda c, k: (0.5 * c + x[k], c), y[0], order)[1],
            lambda x, y: y.at[order[0]].add(x[order[-1]]),
        )

    def program(self):
        body = [(self.statement(), *self.rng.integers(0, 3, 2)) for _ in range(6)]

        def run(x, y):
            known = [x, y, 0.5 * x]
            for fn, a, b in body:
                known = [known[1], known[2], fn(known[a], known[b])]
            return known

        shape = (self.levels, *self.lanes)
        return run, [jnp.asarray(a) for a in self.rng.uniform(-1, 1, (2, *shape))]


@pytest.fixture
def small_caches(monkeypatch):
    small = replace(thresholds.CPU, streamed_bytes=0, near_bytes=1 << 11)
    monkeypatch.setattr(thresholds, "CPU", small)
    monkeypatch.setattr(policy, "INNERMOST_ITERATIONS", 4)


def close(found, expected):
    for a, b in zip(found, expected, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * (1 + np.abs(b).max()))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(START, START + (FUZZ or 20)))
def test_random_sweeps(seed, small_caches):
    f, args = Sweeps(seed).program()
    loss = lambda *xs: sum(jnp.sum(jnp.cos(z)) for z in f(*xs))
    with fnx.disable_jit():
        expected = f(*args)
    close(fnx.jit(f)(*args), expected)
    gradient = fnx.grad(loss, (0, 1))
    close(fnx.jit(gradient)(*args), gradient(*args))


@pytest.mark.slow
def test_random_sweeps_are_made_in_strips(small_caches):
    made = [is_in_strips(f, *args) for f, args in (Sweeps(k).program() for k in range(12))]
    assert sum(made) >= 6
