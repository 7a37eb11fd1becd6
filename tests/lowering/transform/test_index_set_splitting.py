"""Loops whose indices run against a bound are cut in two there."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

N = 80
X = np.random.default_rng(2).normal(size=N)
I = np.arange(N)

PLACES = {
    "mirrored": lambda k, i: k - i,
    "mirrored before": lambda k, i: k - 1 - i,
    "shifted down": lambda k, i: i - k,
    "shifted up": lambda k, i: i + k,
    "beyond": lambda k, i: N + 3 * k - i,
    "out at both ends": lambda k, i: 2 * i - k,
}
MASKS = {"all": lambda k, i: i >= 0, "before": lambda k, i: i < k, "after": lambda k, i: i > k}


def rounds(step):
    return lambda x: lax.fori_loop(1, N - 1, step, x)


def reading(place, mask, mode):
    def step(k, x):
        y = jnp.where(mask(k, I), jnp.take(x, place(k, I), mode=mode), 0.25)
        return 0.5 * x + 0.1 * jnp.sin(y) + 0.01 * jnp.sum(y * x)

    return rounds(step)


def adding(place, mask, mode):
    def step(k, x):
        value = jnp.where(mask(k, I), 0.1 * jnp.sin(x), 0.0)
        return 0.5 * x.at[place(k, I)].add(value, mode=mode)

    return rounds(step)


def agree(f, x):
    with fnx.disable_jit():
        expected = np.asarray(f(jnp.asarray(x)))
    with fnx.core.config.check():
        found = np.asarray(fnx.jit(f)(x))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", [reading, adding], ids=lambda f: f.__name__)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("place", PLACES)
def test_values(place, mask, kind):
    agree(kind(PLACES[place], MASKS[mask], "clip"), X)


@pytest.mark.parametrize("mode", ["fill", "wrap"])
@pytest.mark.parametrize("place", ["mirrored", "shifted up"])
def test_other_modes(place, mode):
    agree(reading(PLACES[place], MASKS["before"], mode), X)
    if mode == "fill":
        agree(adding(PLACES[place], MASKS["before"], "drop"), X)


@pytest.mark.parametrize("place", PLACES)
def test_gradients(place):
    f = reading(PLACES[place], MASKS["before"], "clip")
    agree(fnx.grad(lambda x: jnp.sum(jnp.cos(f(x)))), X)


def kernels(f):
    return fnx.jit(f).lower(X).as_text("kernel")


def test_a_mirror_is_read_straight_on():
    text = kernels(reading(PLACES["mirrored before"], MASKS["before"], "clip"))
    assert "min(max(" not in text
    assert "select(" not in text, "the mask ends where the mirror does"


def test_a_mirror_is_added_to_straight_on():
    f = reading(PLACES["mirrored before"], MASKS["before"], "clip")
    text = kernels(fnx.grad(lambda x: jnp.sum(jnp.cos(f(x)))))
    assert "private s" not in text, "no positions are computed beforehand"


def test_indices_that_run_in_steps_are_left():
    assert "min(max(" in kernels(reading(PLACES["out at both ends"], MASKS["all"], "clip"))
