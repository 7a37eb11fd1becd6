"""Random programs: native code against equation-by-equation evaluation, gradients against differences.

FNX_FUZZ=5000 tries that many programs, from the seed FNX_FUZZ_FROM on, instead of the few that each
run tries.
"""

import os

import numpy as np
import pytest
from programs import Random
from programs_wide import Wide

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config

FUZZ = int(os.environ.get("FNX_FUZZ", "0"))
START = int(os.environ.get("FNX_FUZZ_FROM", "0"))


def seeds(few: int, share: float) -> range:
    return range(START, START + (int(FUZZ * share) if FUZZ else few))


def program(seed: int, dtype: str = "float64", kinds: type[Random] = Random, **options):
    f, args = kinds(seed, dtype).program(**options)
    return (lambda *xs: f(jnp, lax, *xs)), [jnp.asarray(a) for a in args]


def agree(found, expected, tolerance: float) -> None:
    for a, b in zip(found, expected, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        scale = 1.0 + np.abs(b[np.isfinite(b)]).max(initial=0.0)
        np.testing.assert_allclose(a / scale, b / scale, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(120, 0.6))
def test_native_code_computes_what_evaluation_does(seed):
    f, args = program(seed, length=8)
    with fnx.disable_jit():
        expected = f(*args)
    with config.check():
        agree(fnx.jit(f)(*args), expected, 1e-9)


@pytest.mark.parametrize("seed", seeds(20, 0.1))
def test_native_code_in_single_precision(seed):
    with fnx.enable_x64(False), config.check():
        f, args = program(10_000 + seed, "float32", length=6)
        with fnx.disable_jit():
            expected = f(*args)
        agree(fnx.jit(f)(*args), expected, 2e-4)
        assert all(y.dtype == np.float32 for y in expected)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(20, 0.1))
def test_donated_arguments_change_no_results(seed):
    f, args = program(40_000 + seed, length=7)

    def g(*xs):
        outs = f(*xs)
        late = jnp.mean(outs[-1])
        return *outs, *[x * 0.5 + late for x in xs], *[jnp.sin(x) for x in xs[:1]], xs[-1]

    with fnx.disable_jit():
        expected = g(*args)
    with config.check():
        given = [a + 0.0 for a in args]
        agree(fnx.jit(g, donate_argnums=tuple(range(len(args))))(*given), expected, 1e-9)
        agree(fnx.jit(g, donate_argnums=0)(args[0] + 0.0, *args[1:]), expected, 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(20, 0.1))
def test_lanes_are_what_single_calls_give(seed):
    f, args = program(20_000 + seed, length=6)
    rows = [jnp.stack([a * (1.0 - 0.3 * k) for k in range(5)]) for a in args]
    with fnx.disable_jit():
        lanes = [f(*[r[k] for r in rows]) for k in range(5)]
    expected = [np.stack([np.asarray(x) for x in column]) for column in zip(*lanes, strict=True)]
    with config.check():
        agree(fnx.jit(fnx.vmap(f))(*rows), expected, 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(40, 0.2))
def test_gradients(seed):
    f, args = program(seed, length=7, smooth=True)

    def loss(*xs):
        return sum(jnp.sum(jnp.tanh(y) * y) for y in f(*xs))

    gradient = fnx.grad(loss, argnums=tuple(range(len(args))))
    with fnx.disable_jit():
        expected = gradient(*args)
    with config.check():
        agree(gradient(*args), expected, 1e-8)  # eager, with compiled loops
        agree(fnx.jit(gradient)(*args), expected, 1e-8)
    along = by_differences(loss, args)
    if along is None:
        return
    found = sum(float(np.sum(np.asarray(g) * d)) for g, d in zip(expected, directions(args)))
    # Branches and loops may jump between the two points: then differences say nothing.
    assert found == pytest.approx(along, rel=2e-3, abs=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("word", ["lanes of gradients", "forward over reverse", "checkpoint"])
@pytest.mark.parametrize("seed", seeds(8, 0.05))
def test_products_of_transformations(seed, word):
    f, args = program(30_000 + seed, length=6, smooth=True)

    def loss(*xs):
        return sum(jnp.sum(jnp.tanh(y) * y) for y in f(*xs))

    numbers = tuple(range(len(args)))
    rows = [jnp.stack([a, 0.5 * a]) for a in args]
    moved = tuple(jnp.asarray(d) for d in directions(args))

    def transformed(*xs):
        if word == "lanes of gradients":
            return fnx.vmap(fnx.grad(loss, numbers))(*rows)
        if word == "forward over reverse":
            return fnx.jvp(fnx.grad(loss, numbers), xs, moved)[1]
        return fnx.grad(fnx.checkpoint(loss), numbers)(*xs)

    with fnx.disable_jit():
        expected = transformed(*args)
    with config.check():
        agree(fnx.jit(transformed)(*args), expected, 1e-7)


@pytest.mark.parametrize("seed", seeds(12, 0.2))
def test_more_kinds_of_steps(seed):
    f, args = program(50_000 + seed, kinds=Wide, length=7)
    with fnx.disable_jit():
        expected = f(*args)
    with config.check():
        agree(fnx.jit(f)(*args), expected, 1e-9)


@pytest.mark.parametrize("seed", seeds(5, 0.1))
def test_lanes_of_more_kinds_of_steps(seed):
    f, args = program(60_000 + seed, kinds=Wide, length=6)
    rows = [jnp.stack([a * (1.0 - 0.3 * k) for k in range(3)]) for a in args]
    with fnx.disable_jit():
        lanes = [f(*[r[k] for r in rows]) for k in range(3)]
    expected = [np.stack([np.asarray(x) for x in column]) for column in zip(*lanes, strict=True)]
    agree(fnx.vmap(f)(*rows), expected, 1e-9)
    with config.check():
        agree(fnx.jit(fnx.vmap(f))(*rows), expected, 1e-9)


@pytest.mark.parametrize("seed", seeds(5, 0.1))
def test_gradients_of_more_kinds_of_steps(seed):
    f, args = program(70_000 + seed, kinds=Wide, length=6, smooth=True)

    def loss(*xs):
        return sum(jnp.sum(jnp.tanh(y) * y) for y in f(*xs))

    gradient = fnx.grad(loss, argnums=tuple(range(len(args))))
    with fnx.disable_jit():
        expected = gradient(*args)
    with config.check():
        agree(fnx.jit(gradient)(*args), expected, 1e-8)
    moved = tuple(jnp.asarray(d) for d in directions(args))
    along = float(fnx.jvp(loss, tuple(args), moved)[1])
    found = sum(float(np.sum(np.asarray(g) * d)) for g, d in zip(expected, moved))
    assert found == pytest.approx(along, rel=1e-8, abs=1e-8)


def directions(args):
    rng = np.random.default_rng(0)
    return [rng.normal(size=a.shape) for a in args]


def by_differences(loss, args) -> float | None:
    """The derivative along the directions, or None where two step sizes disagree about it."""

    def at(step: float) -> float:
        moved = [jnp.asarray(np.asarray(a) + step * d) for a, d in zip(args, directions(args))]
        with fnx.disable_jit():
            return float(loss(*moved))

    coarse, fine = ((at(h) - at(-h)) / (2 * h) for h in (1e-5, 1e-6))
    if not np.isfinite(coarse) or abs(coarse - fine) > 1e-3 * (1.0 + abs(fine)):
        return None
    return fine


def test_a_value_that_joins_a_nest_after_its_reader():
    def f(a, b, c, d):
        e = b + c
        changed = lax.dynamic_update_slice(e, d, (0, 0))
        return jnp.floor(changed), e[a]

    rng = np.random.default_rng(0)
    rows, part = jnp.array([0, 2, 4, 1, 1]), jnp.asarray(rng.normal(size=(4, 6)))
    args = rows, jnp.asarray(rng.normal(size=(5, 6))), jnp.asarray(0.3), part
    with config.check():
        agree(fnx.jit(f)(*args), f(*args), 0.0)
