"""Stencils along an axis hand on few layers: loops over layers are one, for strips of the other axes."""

import os
from dataclasses import replace

import numpy as np
import pytest
from kernels import workspace

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import policy
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.transform import sliding_window

FUZZ, START = (int(os.environ.get(k, 0)) for k in ("FNX_FUZZ", "FNX_FUZZ_FROM"))

pytestmark = pytest.mark.usefixtures("checked")


def kernels(fn, *args):
    return fnx.jit(fn).lower(*args).as_text("kernel")


def shifted(axis, ndim):
    """What lies ahead along an axis, and behind."""
    ahead, behind = [slice(None)] * ndim, [slice(None)] * ndim
    ahead[axis], behind[axis] = slice(1, None), slice(None, -1)
    return tuple(ahead), tuple(behind)


def limited(x, y, axis):
    """A field changed by fluxes that are read twice, and a sum of squares of slopes."""
    xp = jnp if isinstance(x, fnx.Array) else np
    ahead, behind = shifted(axis, x.ndim)
    slope = (x[ahead] - x[behind]) / (1.0 + y[ahead] * y[behind])
    share = 0.5 * (1.0 + xp.tanh(abs(slope) - 0.3))
    if xp is np:
        new, squares = x.copy(), np.zeros_like(x)
        new[behind] += share * slope
        new[ahead] -= share * slope
        squares[behind] += share * slope * slope
        squares[ahead] += share * slope * slope
        return new, squares
    new = x.at[behind].add(share * slope).at[ahead].add(-share * slope)
    squares = jnp.zeros_like(x).at[behind].add(share * slope * slope)
    return new, squares.at[ahead].add(share * slope * slope)


@pytest.mark.own_code
@pytest.mark.parametrize("shape", [(40, 42, 44), (33, 50, 47), (70, 12, 100), (41, 40, 40)])
@pytest.mark.parametrize("axis", [0, 1])
def test_fluxes_along_an_axis(shape, axis):
    """Faces too, where a neighbour is missing; lanes that make no whole strips."""
    if axis == 1:
        shape = (shape[1], 2 * shape[0], shape[2])
    x, y = np.random.default_rng(0).uniform(size=(2, *shape))
    fn = lambda x, y: limited(x, y, axis)
    assert "windows, " in kernels(fn, x, y)
    assert "windows, " in fnx.compile_report(fn, x, y)
    assert workspace(fn, x, y) < x.nbytes / 4
    for found, wanted in zip(fnx.jit(fn)(x, y), limited(x, y, axis), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=1e-13)


@pytest.mark.own_code
def test_steps_of_a_simulation():
    """What one step leaves, the next one finds; along the other axis columns meet."""
    x, y = np.random.default_rng(2).uniform(size=(2, 36, 48, 60))

    def step(x, y, roll):
        new, squares = limited(x, 0.1 * y, 0)
        return 0.8 * new + 0.1 * roll(new, 1, 1) - 0.01 * squares

    fn = lambda x, y: lax.fori_loop(0, 4, lambda _, x: step(x, y, jnp.roll), x)
    assert "windows, " in kernels(fn, x, y)
    wanted = x
    for _ in range(4):
        wanted = step(wanted, y, np.roll)
    np.testing.assert_allclose(fnx.jit(fn)(x, y), wanted, rtol=1e-12, atol=1e-12)


def test_lanes_of_vectors_are_not_cut():
    """Along the first axis of two, strips would cut long rows into short ones."""
    x, y = np.random.default_rng(3).uniform(size=(2, 500, 600))
    assert "windows, " not in kernels(lambda x, y: limited(x, y, 0), x, y)


# --- random stencils ---------------------------------------------------------------------------


class Stencils:
    """A program of some stencils, one after the other, of fields of one shape."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        ndim = self.pick(2, 3, 3, 3)
        self.shape = tuple(
            int(n) for n in self.rng.integers((9, 11, 17)[-ndim:], (14, 25, 26)[-ndim:])
        )
        self.axis = int(self.rng.integers(ndim - 1))
        self.dtype = self.pick("float64", "float64", "float32")
        self.steps = [self.step(k + 2) for k in range(self.rng.integers(1, 5))]
        self.loop = self.pick(0, 0, 0, 3)

    def pick(self, *options):
        return options[self.rng.integers(len(options))]

    def step(self, known):
        """Reads two of the fields known so far, returns two more."""
        a, b = (int(self.rng.integers(known)) for _ in range(2))
        axis = self.axis if self.rng.random() < 0.8 else int(self.rng.integers(len(self.shape)))
        ahead, behind = shifted(axis, len(self.shape))
        kind = self.pick("flux", "flux", "roll", "far", "faces", "update")
        n, k = self.shape[axis], int(self.rng.integers(1, 4))
        layer = int(self.rng.integers(n))
        at = (*(slice(None),) * axis, layer)
        inner = (*(slice(None),) * axis, slice(k, n - k))

        def run(fields):
            x, y = fields[a], fields[b]
            if kind == "flux":
                return limited(x, y, axis)
            if kind == "roll":
                z = jnp.tanh(jnp.roll(x, k, axis) * y)
                return z - jnp.roll(z, 1 - k, axis), z * jnp.roll(z, -1, axis) * 0.5
            if kind == "far":
                z = jnp.tanh(x * y + 0.5)
                low = (*(slice(None),) * axis, slice(None, n - 2 * k))
                high = (*(slice(None),) * axis, slice(2 * k, None))
                new = x.at[inner].add(0.3 * (z[high] - z[low]) * z[inner])
                return new, z.at[inner].set(z[low] * z[high])
            if kind == "faces":
                z = jnp.tanh(x - y)
                first = z[at] * 0.5
                return x.at[at].set(first), z.at[behind].add(0.1 * z[ahead] * z[behind])
            z = jnp.sin(x) * jnp.cos(y)
            new = x.at[inner].set(z[inner] * 0.7)
            return new.at[ahead].multiply(z[behind]), z

        return run

    def __call__(self, x, y):
        def once(x, y):
            fields = [x, y]
            for step in self.steps:
                fields += step(fields)
            return fields[-2:]

        if not self.loop:
            return tuple(once(x, y))
        body = lambda _, s: tuple(jnp.tanh(z) for z in once(*s))
        return lax.fori_loop(0, self.loop, body, (x, y))

    def inputs(self):
        x, y = self.rng.uniform(size=(2, *self.shape)).astype(self.dtype)
        return jnp.asarray(x), jnp.asarray(y)


@pytest.fixture
def eager_windows(monkeypatch):
    """Windows, and strips, wherever they are right."""
    small = replace(thresholds.CPU, streamed_bytes=0, window_gain=0)
    monkeypatch.setattr(thresholds, "CPU", small)
    monkeypatch.setattr(policy, "STENCIL_STRIPS", 3)
    monkeypatch.setattr(policy, "WINDOW_LAYER", 2)
    monkeypatch.setattr(policy, "WINDOW_SCALAR_PART", 1)
    monkeypatch.setattr(sliding_window._Layers, "is_worth", lambda self, gain, total: True)


@pytest.mark.parametrize("seed", range(START, START + 25 + FUZZ))
def test_random_stencils(seed, eager_windows, monkeypatch):
    """As without windows, and as NumPy has it: single precision may lose many digits there.

    Which products are fused with sums may differ between the two codes, so last digits of differences do.
    """
    program = Stencils(seed)
    x, y = program.inputs()
    found = fnx.jit(program)(x, y)
    if program.dtype == "float64":
        for a, b in zip(found, program(x, y), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11)
    monkeypatch.setattr(sliding_window, "roll_nest", lambda *args: False)
    plain = fnx.jit(Stencils(seed))(x, y)
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6 if program.dtype == "float32" else 1e-12)


@pytest.mark.slow
@pytest.mark.own_code
def test_random_stencils_have_windows(eager_windows):
    made = 0
    for seed in range(25):
        program = Stencils(seed)
        made += "windows, " in kernels(program, *program.inputs())
    assert made >= 8
