"""Choices at one index of a loop's array are updates: the same values, derivatives, little memory."""

import numpy as np
import pytest
from loop_checks import python_loop

import fnx
import fnx.numpy as jnp
from fnx import lax

N = 12
RNG = np.random.default_rng(8)
A = jnp.asarray(RNG.normal(size=(N, N)) / N + np.eye(N))
ROWS = np.arange(N)


def element(loop, idx):
    """Of a vector, that needs another one of it."""
    return lambda a: loop(1, N, lambda i, x: jnp.where(idx == i, a[i] @ x + x[i - 1] ** 2, x), a[0])


def elementwise(loop, idx):
    """New values for all of it, of which one is taken."""

    def step(i, x):
        return jnp.where(idx == i, a_of(x) * jnp.sin(jnp.roll(x, 1)), x)

    def a_of(x):
        return jnp.cos(x) + idx

    return lambda a: loop(0, N, step, a[1])


def row(loop, idx):
    def step(i, x):
        return jnp.where(idx[:, None] == i, jnp.tanh(x @ x[i])[None, :] * x, x)

    return lambda a: loop(0, N, step, a)


def column(loop, idx):
    def step(i, x):
        new = jnp.where(idx >= i, x[:, i] / jnp.sqrt(1.0 + x[i, i] ** 2), 0.0)
        return jnp.where(i == idx[None, :], new[:, None], x)

    return lambda a: loop(0, N, step, a)


def one_of_a_matrix(loop, idx):
    def line(i, x):
        def cell(j, x):
            here = (idx[:, None] == i) & (idx[None, :] == j)
            return jnp.where(here, x[i - 1, j] * jnp.sin(x[i, j - 1]) + x[i, j], x)

        return loop(1, N, cell, x)

    return lambda a: loop(1, N, line, a)


def unlike(loop, idx):
    """The choice the other way round."""
    return lambda a: loop(0, N, lambda i, x: jnp.where(idx != i, x, x[i] * x[i - 1]), a[0])


def beyond(loop, idx):
    """Indices that there are not."""
    return lambda a: loop(-3, N + 3, lambda i, x: jnp.where(idx == i, 2.0 * x * x, x), a[2])


def twice(loop, idx):
    """Two places in an iteration, one of them written as an update."""

    def step(i, x):
        x = jnp.where(idx == i, x[i] * x[0], x).at[i // 2].add(x[i])
        return jnp.where(idx == N - 1 - i, x * x, x)

    return lambda a: loop(0, N, step, a[0])


def indices_from_data(loop, idx):
    def step(i, x):
        k = jnp.argmax(jnp.where(idx >= i, jnp.abs(x), -1.0))
        return jnp.where(idx == k, x[i], x) * 1.0

    return lambda a: loop(0, N, step, a[0])


PROGRAMS = [element, elementwise, row, column, one_of_a_matrix, unlike, beyond, twice]
PROGRAMS += [indices_from_data]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr("fnx.core.policy.SELECTED_ELEMENTS", 4)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("made", ["outside", "inside"])
def test_against_python_loops(program, made):
    def f(a, loop):
        return program(loop, ROWS if made == "outside" else jnp.arange(N))(a)

    weights = jnp.cos(jnp.arange(float(N)))
    loss = lambda a, loop: jnp.sum(f(a, loop) * weights)
    value = fnx.jit(lambda a: f(a, lax.fori_loop))(A)
    np.testing.assert_allclose(value, f(A, python_loop), rtol=1e-13, atol=1e-13)
    want = fnx.grad(loss)(A, python_loop)
    for gradient in (fnx.grad(loss), fnx.jit(fnx.grad(loss), static_argnums=1)):
        np.testing.assert_allclose(gradient(A, lax.fori_loop), want, rtol=1e-12, atol=1e-12)
    slope = fnx.jvp(lambda a: loss(a, lax.fori_loop), (A,), (jnp.sin(A),))[1]
    np.testing.assert_allclose(slope, jnp.vdot(want, jnp.sin(A)), rtol=1e-11)
    lanes = fnx.vmap(fnx.grad(lambda a: loss(a, lax.fori_loop)))(jnp.stack([A, 2.0 * A]))
    np.testing.assert_allclose(lanes[0], want, rtol=1e-12, atol=1e-12)


def _workspace(f, *args):
    return fnx.jit(f).lower(*args).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("n", [100, 200])
def test_a_masked_recurrence_keeps_what_it_overwrites(n):
    """A few vectors, not one for each iteration."""
    idx = jnp.arange(n)

    def loss(a):
        step = lambda i, x: jnp.where(idx == i, a * jnp.sin(jnp.roll(x, 1)), x)
        return jnp.sum(lax.fori_loop(1, n, step, a) ** 2)

    assert _workspace(fnx.grad(loss), jnp.ones(n)) <= 6 * 8 * n


@pytest.mark.parametrize("n", [40, 80])
def test_columns_by_a_mask_keep_a_matrix_or_two(n):
    idx = np.arange(n)

    def loss(a):
        def column(j, x):
            v = a[:, j] - x @ x[j]
            new = jnp.where(idx >= j, v / jnp.sqrt(v[j]), 0.0)
            return jnp.where(idx[None, :] == j, new[:, None], x)

        return jnp.sum(lax.fori_loop(0, n, column, jnp.zeros((n, n))) ** 2)

    a = jnp.eye(n) * n + 1.0
    assert _workspace(fnx.grad(loss), a) <= 4.2 * 8 * n * n


def test_the_iterations_of_a_masked_loop_touch_one_element():
    idx = np.arange(500)
    loop = lambda x: lax.fori_loop(0, 500, lambda i, x: jnp.where(idx == i, x[i] + 1.0, x), x)
    assert fnx.jit(loop).lower(jnp.ones(500)).as_text("kernel").count("for ") == 1
