"""Calls of one mathematical function on values in registers are made together, as vectors."""

import re
from collections import Counter

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax


def calls(f, *args):
    """How often the text of a program calls each variant of a function, by lanes (0: one)."""
    text = fnx.jit(f).lower(*args).as_text("llvm")
    found = re.findall(r"= call .*@fnx_v_(\w+?)_float(?:32|64)(?:_w(\d+))?\(", text)
    return Counter((name, int(lanes or 0)) for name, lanes in found)


def check(f, *args):
    got, expected = fnx.jit(f)(*args), f(*args)
    for a, b in zip(fnx.tree.leaves(got), fnx.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-15)


def neurons(state, steps=7):
    """Scalars with six exponentials a step, none of which needs another."""

    def step(c, _):
        v, m, h = c
        a, b = jnp.exp(-(v + 40) / 10), jnp.exp(-(v + 65) / 18)
        g, d = jnp.exp(-(v + 65) / 20), jnp.exp(-(v + 35) / 10)
        v = v - 0.01 * (m**3 * h * (v - 50) + 0.3 * (v + 54))
        return (v, m + 0.01 * (a * (1 - m) - b * m), h + 0.01 * (g * (1 - h) - d * h)), None

    return lax.scan(step, state, None, length=steps)[0]


STATE = tuple(map(np.float64, (-50.0, 0.05, 0.6)))


def scalar_calls(found):
    return sum(n for (_, lanes), n in found.items() if lanes == 0)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_calls_on_scalars_are_one_vector(dtype):
    state = tuple(np.asarray(x, dtype) for x in STATE)
    found = calls(neurons, state)
    assert [name for name, lanes in found] == ["exp"]
    assert scalar_calls(found) == 0
    assert sum(lanes * n for (_, lanes), n in found.items()) < 2 * 8
    check(neurons, STATE)


def test_gradients_of_scalars():
    def loss(state):
        return sum(x * x for x in neurons(state))

    gradient = fnx.grad(loss)
    got, expected = fnx.jit(gradient)(STATE), gradient(STATE)
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    assert scalar_calls(calls(gradient, STATE)) == 0


def test_more_calls_than_lanes_and_levels():
    def f(x):
        def step(x, _):
            return jnp.tanh(jnp.sin(x) + jnp.roll(x, 1)) * jnp.exp(-x * x), None

        return lax.scan(step, x, None, length=5)[0]

    for n in (2, 3, 5, 8, 9, 11, 13, 16):
        x = np.linspace(-1.0, 1.0, n)
        check(f, x)
        assert scalar_calls(calls(f, x)) == 0, n


def test_functions_of_two_operands():
    def f(x, y):
        def step(c, _):
            a, b = c
            return (jnp.arctan2(a, b) + b, jnp.arctan2(b, a) - jnp.power(jnp.abs(a), b)), None

        return lax.scan(step, (x, y), None, length=4)[0]

    check(f, np.float64(0.3), np.float64(1.7))


def test_memory_that_is_written_in_between():
    def f(x):
        def step(x, i):
            x = x.at[i].set(jnp.exp(-x[i + 1]))
            y = jnp.exp(-x[i])  # of what was just written
            x = x.at[i + 2].set(y)
            return x, jnp.exp(-x[i + 2]) + jnp.exp(-x[i + 3])

        return lax.scan(step, x, jnp.arange(20))

    check(f, np.linspace(0.0, 3.0, 40))


def test_branches_and_conditions():
    def f(x, y):
        def more(c):
            return (jnp.sin(c[0]) + jnp.sin(c[1]) < 1.5) & (c[2] < 20)

        def body(c):
            a, b, k = c
            a, b = lax.cond(
                a < b,
                lambda a, b: (a + jnp.exp(-a), b + jnp.exp(-b)),
                lambda a, b: (a + jnp.cos(a), b - jnp.cos(b)),
                a,
                b,
            )
            return a, b, k + 1

        return lax.while_loop(more, body, (x, y, 0))

    check(f, 0.1, 0.7)
    check(f, 0.7, 0.1)


def test_calls_that_need_each_other():
    def f(x, y):
        def step(c, _):
            a, b = c
            p = jnp.exp(-a)
            q = jnp.exp(-p * b)
            r = jnp.exp(-b)
            return (jnp.exp(-q - r), jnp.exp(-p * q * r)), p

        return lax.scan(step, (x, y), None, length=6)

    check(f, 0.2, 0.9)


def test_short_loops_of_costly_functions_are_vectors():
    """LLVM writes loops of few rounds out before its vectoriser comes."""

    def f(x):
        def step(x, _):
            d = x[:, None] - x[None, :]
            return x + 1e-3 * (d * (d * d + 0.1) ** -2.3).sum(1), None

        return lax.scan(step, x, None, length=10)[0]

    x = np.linspace(0.0, 1.0, 8)
    asm = fnx.jit(f).lower(x).as_text("asm")
    assert re.search(r"call\w*\s+_?fnx_v_pow_float64_w\d", asm)
    assert not re.search(r"call\w*\s+_?fnx_v_pow_float64(@|\s|$)", asm)
    check(f, x)


def test_sums_of_few_long_rows_are_left_to_the_vectoriser():
    """Vectors of 5 rows' calls would keep LLVM from making vectors of 16 rounds."""
    found = calls(lambda x: jnp.tanh(x).sum(axis=1), np.linspace(-1, 1, 500).reshape(5, 100))
    assert found == {("tanh", 0): 5}
    check(lambda x: jnp.tanh(x).sum(axis=1), np.linspace(-1, 1, 500).reshape(5, 100))
