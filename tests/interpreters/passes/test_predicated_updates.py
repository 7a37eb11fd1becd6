"""Choices between an array and its updates are updates: the same values, derivatives, little memory."""

import numpy as np
import pytest
from loop_checks import python_loop

import fnx
import fnx.numpy as jnp
from fnx import lax

N = 12
RNG = np.random.default_rng(9)
A = jnp.asarray(RNG.normal(size=(N, N)) / N + np.eye(N))


def a_row(i, x):
    return jnp.where(x[i, i] > 0.9, x.at[i].set(jnp.sin(x[i]) * x[i - 1]), x)


def the_other_way_iteration(i, x):
    return jnp.where(x[i, 0] > 0.0, x, x.at[:, i].add(x[i] ** 2))


def rotation(i, x):
    """Two rows, both from the old ones."""
    c, s = jnp.cos(x[i, i]), jnp.sin(x[i, i])
    new = x.at[i - 1].set(c * x[i - 1] + s * x[i]).at[i].set(c * x[i] - s * x[i - 1])
    return jnp.where(i % 3 > 0, new, x)


def read_between(i, x):
    """The second update reads what the first one wrote, and so does the result."""
    first = x.at[i].multiply(1.5)
    second = first.at[i - 1].add(first[i] * first[0])
    return jnp.where(x[0, i] > 0.0, second, x) + 1e-3 * first


def both_cases(i, x):
    return jnp.where(x[i, 1] > 0.0, x.at[i].add(x[0]), x.at[i, 2:5].set(-x[i, 3:6]))


def common_beginning(i, x):
    x = x.at[0].add(x[i])
    return jnp.where(x[i, i] > 1.0, x.at[i].set(2.0 * x[0]), x.at[i].divide(1.0 + x[1] ** 2))


def nested(i, x):
    inner = jnp.where(i % 2 == 0, x.at[i].set(x[i] * x[1]), x)
    return jnp.where(x[1, i] > 0.0, inner.at[2].min(x[i]), x)


def rows_of_a_mask(i, x):
    """A number for each row: elements of a column are chosen one by one."""
    return jnp.where((x[:, 0] > 0.0)[:, None], x.at[:, i].set(x[:, i - 1] * x[0]), x)


def beyond(i, x):
    return jnp.where(x[1, 1] > 0.0, x.at[i + 7].set(x[i]).at[i + 5].add(x[0]), x)


def places_twice(i, x):
    at = jnp.stack([i, i - 1, i])
    return jnp.where(i % 4 > 1, x.at[at].add(x[:3]), x)


def by_cond_in_lanes(i, x):
    change = lambda row, on: lax.cond(on, lambda r: r.at[i].set(r[i - 1]), lambda r: r, row)
    return fnx.vmap(change)(x, x[:, i] > 0.0)


STEPS = [
    a_row,
    the_other_way_iteration,
    rotation,
    read_between,
    both_cases,
    common_beginning,
    nested,
]
STEPS += [rows_of_a_mask, beyond, places_twice, by_cond_in_lanes]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr("fnx.core.policy.SELECTED_ELEMENTS", 4)
    monkeypatch.setattr("fnx.core.policy.PREDICATED_PART", 1)


def for_loop(lo, hi, step, x):
    return lax.fori_loop(lo, hi, step, x)


def while_loop(lo, hi, step, x):
    return lax.while_loop(lambda c: c[0] < hi, lambda c: (c[0] + 1, step(*c)), (lo, x))[1]


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("loop", [for_loop, while_loop])
def test_against_python_loops(step, loop):
    weights = jnp.cos(jnp.arange(float(N)))
    loss = lambda a, loop: jnp.sum(loop(1, N, step, a) @ weights)
    value = fnx.jit(lambda a: loop(1, N, step, a))(A)
    np.testing.assert_allclose(value, python_loop(1, N, step, A), rtol=1e-13, atol=1e-13)
    want = fnx.grad(loss)(A, python_loop)
    for gradient in (fnx.grad(loss), fnx.jit(fnx.grad(loss), static_argnums=1)):
        np.testing.assert_allclose(gradient(A, loop), want, rtol=1e-11, atol=1e-11)
    slope = fnx.jvp(lambda a: loss(a, loop), (A,), (jnp.sin(A),))[1]
    np.testing.assert_allclose(slope, jnp.vdot(want, jnp.sin(A)), rtol=1e-11)
    lanes = fnx.vmap(fnx.grad(lambda a: loss(a, loop)))(jnp.stack([A, 2.0 * A]))
    np.testing.assert_allclose(lanes[0], want, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "bfloat16", "float32", "complex64"])
def test_dtypes_and_signs_of_zero(dtype):
    x = jnp.asarray(RNG.integers(0, 2, size=(N, N)), dtype)
    x = -x if x.dtype.kind in "fcV" else x

    def step(i, x):
        new = x.at[i].set(x[i - 1]).at[i - 1].add(x[0])
        return jnp.where(i % 2 == 0, new, x)

    value = fnx.jit(lambda x: lax.fori_loop(1, N, step, x))(x)
    assert np.asarray(value).tobytes() == np.asarray(python_loop(1, N, step, x)).tobytes()


def _workspace(f, *args):
    return fnx.jit(f).lower(*args).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("step", [a_row, rotation, nested, common_beginning])
def test_a_gradient_keeps_the_rows_that_are_overwritten(step):
    """A few matrices, not one for each iteration."""
    n = 100
    loss = lambda a: jnp.sum(lax.fori_loop(1, n, step, a) ** 2)
    assert _workspace(fnx.grad(loss), jnp.eye(n)) <= 6 * 8 * n * n


@pytest.mark.parametrize("loop", [for_loop, while_loop])
def test_a_iteration_goes_through_a_row_alone(loop):
    text = fnx.jit(lambda x: loop(1, 64, a_row, x)).lower(jnp.eye(64)).as_text("kernel")
    whole = [line.split()[0] for line in text.splitlines() if "4096" in line]
    assert whole == ["input", "output", "copy"]


def test_constants_keep_the_signs_of_their_zeros():
    for value in (-0.0, np.float64(-0.0), complex(1, -0.0), complex(-0.0, -0.0), complex(-0.0, 2)):
        for other in (np.abs(value), value):  # one after the other, as they are equal
            want = np.full(2, other, complex)
            assert np.asarray(jnp.full(2, other, complex)).tobytes() == want.tobytes()
            compiled = fnx.jit(lambda other=other: jnp.full(2, other, complex))()
            assert np.asarray(compiled).tobytes() == want.tobytes()
