"""Gradients of simulations on grids, however their stencils are written, against the plain interpreter."""

import os
import re
from functools import partial

import numpy as np
import pytest
from kernels import program

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.backend import Memory
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.ir import traversal
from fnx.lowering.ir.kernel import Copy, Loop, Nest
from fnx.transforms.traced_program import NamedBackend

FUZZ, START = (int(os.environ.get(k, 0)) for k in ("FNX_FUZZ", "FNX_FUZZ_FROM"))

pytestmark = pytest.mark.usefixtures("checked")

SHAPES = [(60,), (19, 24), (33, 20), (1, 40), (2, 30), (40, 2), (18, 1), (17, 18, 20), (3, 20, 18)]
BLOCKED = 50  # steps from which on checkpoints are kept, and blocks run again


def cut(x, axis, low, high):
    return lax.slice_in_dim(x, low, high, axis=axis)


def rolled(x, s, axis):
    return jnp.roll(x, s, axis)


def joined(x, s, axis):
    n = x.shape[axis]
    s = -s % n
    return jnp.concatenate([cut(x, axis, s, n), cut(x, axis, 0, s)], axis)


def padded(mode):
    def shifted(x, s, axis):
        if mode in ("reflect", "symmetric") and x.shape[axis] < 2:
            return x
        widths = [(0, 0)] * x.ndim
        widths[axis] = (1, 1)
        return cut(jnp.pad(x, widths, mode=mode), axis, 1 - s, 1 - s + x.shape[axis])

    return shifted


def set_inside(x, s, axis):
    """Zero at an end."""
    n = x.shape[axis]
    at = [slice(None)] * x.ndim
    at[axis] = slice(1, None) if s > 0 else slice(None, n - 1)
    rest = cut(x, axis, 0, n - 1) if s > 0 else cut(x, axis, 1, n)
    return jnp.zeros_like(x).at[tuple(at)].set(rest)


def held(x, s, axis):
    """Itself at an end."""
    n = x.shape[axis]
    at = [slice(None)] * x.ndim
    at[axis] = slice(1, None) if s > 0 else slice(None, n - 1)
    rest = cut(x, axis, 0, n - 1) if s > 0 else cut(x, axis, 1, n)
    return (0.5 * x).at[tuple(at)].add(rest)


def masked(x, s, axis):
    where = lax.broadcasted_iota(np.int64, x.shape, axis)
    return jnp.where(where == (0 if s > 0 else x.shape[axis] - 1), 0.0, jnp.roll(x, s, axis))


MODES = ["edge", "wrap", "reflect", "symmetric", "constant"]
SHIFTS = [rolled, joined, set_inside, held, masked, *map(padded, MODES)]


class Simulation:
    """Random steps of a few fields, each driven by products of neighbours."""

    def __init__(self, seed):
        self.rng = rng = np.random.default_rng(seed)
        self.shape = SHAPES[rng.integers(len(SHAPES))]
        self.dtype = rng.choice(["float64", "float64", "float32"])
        self.steps = int(rng.choice([1, 4, BLOCKED]))
        self.fields = int(rng.integers(1, 4))
        few = rng.choice(len(SHIFTS), 2)
        self.terms = [self._term(few) for _ in range(self.fields * int(rng.integers(1, 4)))]
        self.inside = rng.integers(3) == 0
        self.arguments = [
            rng.uniform(-1, 1, self.shape).astype(self.dtype) for _ in range(self.fields + 1)
        ]

    def _term(self, few):
        k, a, b = self.rng.integers(self.fields, size=3)
        shift = SHIFTS[few[self.rng.integers(2)]]
        axis, kind = self.rng.integers(len(self.shape)), self.rng.integers(5)
        return k, a, b, shift, int(axis), kind

    def step(self, state, c):
        change = [-0.1 * f for f in state]
        for k, a, b, shift, axis, kind in self.terms:
            f, g = state[a], state[b]
            ahead, behind = shift(f, -1, axis), shift(f, 1, axis)
            match kind:
                case 0:
                    term = c * (ahead + behind - 2 * f)
                case 1:
                    term = g * (ahead - behind)
                case 2:
                    flux = g * (ahead + f)
                    term = flux - shift(flux, 1, axis)
                case 3:
                    term = jnp.where(g > 0, g * (f - behind), g * (ahead - f))
                case _:
                    term = jnp.sin(ahead) * jnp.cos(behind)
            change[k] = change[k] + term
        new = [0.9 * f + 0.04 * d for f, d in zip(state, change, strict=True)]
        if self.inside and all(n > 2 for n in self.shape):
            inner = (slice(1, -1),) * len(self.shape)
            new = [f.at[inner].set(n[inner]) for f, n in zip(state, new, strict=True)]
        return new

    def loss(self, *arguments):
        *state, c = arguments
        step = lambda s, _: (self.step(s, c), None)
        last, _ = lax.scan(step, state, None, length=self.steps)
        return sum(jnp.sum(f * f + f) for f in last)


def agree(g, arguments, dtype):
    """What is compiled is what the interpreter finds."""
    found = fnx.jit(g)(*arguments)
    wanted = fnx.jit(g, backend="reference")(*arguments)
    tolerance = {"float64": 1e-9, "float32": 2e-3}[str(dtype)]
    for a, b in zip(*map(fnx.tree.leaves, (found, wanted)), strict=True):
        scale = float(np.max(np.abs(b), initial=1.0))
        np.testing.assert_allclose(np.asarray(a) / scale, np.asarray(b) / scale, atol=tolerance)


@pytest.mark.parametrize("seed", range(START, START + (FUZZ or 16)))
def test_random_simulations(seed, monkeypatch):
    if seed % 2:  # blocks of iterations are run again, however little they keep
        monkeypatch.setattr(NamedBackend, "memory", Memory(near=4, near_row=0, stacks=0))
    s = Simulation(seed)
    g = fnx.grad(s.loss, tuple(range(s.fields + 1)))
    arguments = s.arguments
    if seed % 4 == 1:
        g, arguments = fnx.vmap(g), [np.stack([x, x[::-1]]) for x in arguments]
    if seed % 4 == 2 and s.steps < BLOCKED:
        first = g
        g = fnx.grad(lambda *xs: sum(jnp.sum(jnp.cos(x)) for x in first(*xs)), 0)
    agree(g, arguments, s.dtype)


@pytest.mark.parametrize("seed", range(START, START + (FUZZ or 4)))
def test_requests_for_rows_to_come_change_nothing(seed, monkeypatch, no_code):
    monkeypatch.setattr(thresholds, "PREFETCHED_BUFFER", 0)
    monkeypatch.setattr(thresholds, "PREFETCHED_ROW", (1, 256))
    s = Simulation(seed)
    g = fnx.grad(s.loss, tuple(range(s.fields + 1)))
    agree(g, s.arguments, s.dtype)


def gradient(step, fields, n, steps=BLOCKED):
    """Of a simulation on a square, by its state and a coefficient."""

    def loss(*arguments):
        *state, c = arguments
        advance = lambda s, _: (step(s, c), None)
        return sum(jnp.sum(f**2) for f in lax.scan(advance, tuple(state), None, length=steps)[0])

    g = fnx.grad(loss, tuple(range(fields + 1)))
    rng = np.random.default_rng(0)
    return g, [0.1 * rng.uniform(size=(n, n)) for _ in range(fields + 1)]


def set_wave(state, c):
    """The wave equation with fixed ends: the inner part of a field of zeros is set."""
    u, v = state
    inner = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
    v = v + c * jnp.zeros_like(u).at[1:-1, 1:-1].set(inner)
    return u + 0.1 * v, v


def padded_wave(state, c):
    """The wave equation with reflecting ends: padded by what is there."""
    u, v = state
    p = jnp.pad(u, 1, mode="edge")
    v = v + c * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u)
    return u + 0.1 * v, v


@pytest.mark.own_code
def test_what_rows_of_far_stacks_are_stored_into_is_asked_for(monkeypatch, no_code):
    g, arguments = gradient(set_wave, 2, 40)
    asks = lambda: "@llvm.prefetch" in fnx.jit(partial(g)).lower(*arguments).as_text("llvm")
    assert not asks()  # they are near
    monkeypatch.setattr(thresholds, "PREFETCHED_BUFFER", 40 * 40 * 8 * 5)
    assert asks()


@pytest.mark.own_code
def test_rows_of_far_stacks_are_asked_for_before_they_are_read(monkeypatch, no_code):
    """Those that periodic fields read at their ends first, and loops that do not write what they read."""

    def step(c, u):
        around = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)
        return c + around * c, None

    back = lambda c, us: lax.scan(step, c, us, reverse=True)[0]
    arguments = np.ones((40, 40)), np.random.default_rng(0).uniform(size=(6, 40, 40))
    text = lambda: fnx.jit(partial(back)).lower(*arguments).as_text("llvm")
    request = re.compile(r"@llvm\.prefetch\.p0\(ptr %\S+, i32 0, i32 3, i32 1\)")
    assert not request.search(text())  # they are near
    monkeypatch.setattr(thresholds, "PREFETCHED_BUFFER", 40 * 40 * 8 * 5)
    assert request.search(text())
    agree(back, arguments, "float64")


@pytest.mark.parametrize("step", [set_wave, padded_wave])
def test_no_step_of_a_simulation_copies_a_field(step, monkeypatch):
    """Carries of loops whose stacks they live in, and accumulators of cotangents, are updated in place."""
    monkeypatch.setattr(NamedBackend, "memory", Memory(stacks=0))
    g, arguments = gradient(step, 2, 96)
    made = program(g, *arguments).body
    assert 98 * 98 not in [b.size for b in traversal.buffers(made)]  # no cotangent has its padding
    loops = [s for s in traversal.statements(made) if isinstance(s, Loop)]
    steps = [s for s in loops if any(isinstance(x, Nest) for x in s.body) and not _has_loops(s)]
    assert len(steps) == 3  # forward, forward again, and back
    assert not any(isinstance(x, Copy) for s in steps for x in s.body)
    agree(g, arguments, "float64")


def test_a_cotangent_whose_ends_are_added_to_is_updated_in_place():
    """Of joined ends: what is added for them makes no copy of the field."""

    def step(u, _):
        p = jnp.concatenate([u[-1:], u, u[:1]])
        faster = jnp.maximum(jnp.abs(p[1:]), jnp.abs(p[:-1]))
        energy = 0.5 * p**2
        flux = 0.5 * (energy[1:] + energy[:-1]) - 0.5 * faster * (p[1:] - p[:-1])
        return u - 0.2 * (flux[1:] - flux[:-1]), None

    g = fnx.grad(lambda u: jnp.sum(lax.scan(step, u, None, length=5)[0] ** 2))
    u = np.sin(np.arange(300.0))
    loops = [s for s in traversal.statements(program(g, u).body) if isinstance(s, Loop)]
    assert not any(isinstance(s, Copy) for loop in loops for s in loop.body)
    agree(g, [u], "float64")


def _has_loops(loop):
    return any(isinstance(s, Loop) for s in loop.body)
