"""Threads load all that they need before they work on it, of several elements where there are many."""

import numpy as np
import pytest
from launched import same, shapes

import fnx
import fnx.numpy as jnp

RNG = np.random.default_rng(0)


def order(compiled):
    """The loads and stores of a program's only kernel, in their order."""
    (printed,) = compiled.printed.values()
    lines = [line.strip() for line in printed.source.splitlines()]
    return "".join(
        "s" if x.startswith("out") else "l" for x in lines if "in0[" in x or "out0[" in x
    )


@pytest.mark.parametrize(("size", "times"), [(40, 1), (70, 2), (101, 4), (96, 4)])
def test_loads_come_first(gpu, size, times):
    gpu.watches = True
    x = RNG.normal(size=size)
    f = lambda x: jnp.exp(x) * 2
    kinds, compiled = shapes(f, x)
    assert kinds == ["flat"]
    assert order(compiled) == ("s" if times == 1 else "l" * times + "s" * times)
    same(f, x)
    assert not gpu.races


def test_rows_and_columns(gpu):
    gpu.watches = True
    x, v = RNG.normal(size=(31, 9)), RNG.normal(size=9)
    kinds, _ = shapes(lambda x, v: x * v - v, x, v)
    assert kinds == ["tile"]
    same(lambda x, v: (x * v - v, jnp.where(x > 0, x, v), x.astype("f4") + 1), x, v)
    assert not gpu.races


def test_places_and_values_that_are_loaded(gpu):
    x, at = RNG.normal(size=200), RNG.permutation(200)
    same(lambda x, i: x[i] * 2 + x, x, at)
    same(lambda x, i: jnp.zeros(200).at[i].set(x, unique_indices=True), x, at)


def test_in_place(gpu):
    x = RNG.normal(size=150)
    given = fnx.jit(lambda x: x + 1, backend="cuda")(x)
    f = fnx.jit(lambda x: jnp.sin(x) * x, backend="cuda", donate_argnums=0)
    np.testing.assert_allclose(f(given), np.sin(x + 1) * (x + 1), rtol=1e-12)
