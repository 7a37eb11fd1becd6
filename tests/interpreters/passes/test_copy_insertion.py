"""Carries that are handed on to others, and those that take over memory: loops without copies."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

pytestmark = pytest.mark.usefixtures("checked")

RNG = np.random.default_rng(5)


def laplacian(np_, u):
    return np_.roll(u, 1, 0) + np_.roll(u, -1, 0) + np_.roll(u, 1, 1) + np_.roll(u, -1, 1) - 4 * u


def leapfrog(np_, c, now, before):
    return 2 * now - before + 0.1 * c * laplacian(np_, now), now


def three_steps(np_, c, a, b, d):
    """Each is handed on twice before it is gone."""
    return a + 0.1 * (2 * laplacian(np_, a) - b * c + np_.roll(d, 2, 1)), a, b


def handed_on_unread(np_, c, a, b):
    """What is replaced is not read."""
    return a + 0.1 * c * laplacian(np_, a), a


def exchanged(np_, c, a, b):
    return b, a


def exchanged_and_changed(np_, c, a, b):
    return b, a + 0.1 * c * laplacian(np_, b)


def in_place(np_, c, a, b):
    """What is handed on is overwritten element by element."""
    return a * c + b, a


STEPS = {
    f.__name__: (f, count)
    for f, count in (
        (leapfrog, 2), (three_steps, 3), (handed_on_unread, 2), (exchanged, 2),
        (exchanged_and_changed, 2), (in_place, 2),
    )
}  # fmt: skip


def for_loop(f, state):
    return lax.fori_loop(0, 5, lambda _, s: f(s), state)


def scan(f, state):
    """The last of the carries is stacked, too."""
    last, rows = lax.scan(lambda s, _: (f(s), s[-1]), state, None, length=5)
    return (*last, rows)


def while_loop(f, state):
    _, *last = lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, *f(s[1:])), (0, *state))
    return tuple(last)


def copies_in_loops(*args, fn):
    """The lines of the Kernel IR inside loops of steps that copy an array."""
    lines = fnx.jit(fn).lower(*args).as_text("kernel").splitlines()
    return [line for line in lines if line.startswith("  ") and line.lstrip().startswith("copy ")]


@pytest.mark.slow
@pytest.mark.parametrize("loop", [for_loop, scan, while_loop])
@pytest.mark.parametrize("name", STEPS)
def test_carries_that_are_handed_on(name, loop):
    step, count = STEPS[name]
    c, *state = RNG.normal(size=(1 + count, 7, 20))
    run = lambda c, *state: loop(lambda s: step(jnp, c, *s), state)
    wanted, rows = tuple(state), []
    for _ in range(5):
        rows.append(wanted[-1])
        wanted = step(np, c, *wanted)
    wanted = (*wanted, np.stack(rows)) if loop is scan else wanted
    for found, right in zip(fnx.jit(run)(c, *state), wanted, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12)
    loss = lambda *a: sum((x**2).sum() for x in run(*a))
    by = tuple(range(1 + count))
    for found, right in zip(fnx.jit(fnx.grad(loss, by))(c, *state), fnx.grad(loss, by)(c, *state)):
        np.testing.assert_allclose(found, right, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("loop", [for_loop, while_loop])
@pytest.mark.parametrize("name", ["leapfrog", "three_steps", "handed_on_unread"])
def test_what_is_handed_on_is_stored_by_the_loops_of_the_step(name, loop):
    step, count = STEPS[name]
    c, *state = RNG.normal(size=(1 + count, 40, 50))
    run = lambda c, *state: loop(lambda s: step(jnp, c, *s), state)
    assert not copies_in_loops(c, *state, fn=run)


@pytest.mark.slow
def test_the_adjoint_of_a_wave_copies_nothing_in_its_steps():
    """A sum over all steps takes over its memory; so no copy of the cotangents, to which a row is added."""

    def misfit(c, source):
        def step(state, s):
            new, now = leapfrog(jnp, c, *state)
            return (new.at[20, 25].add(s), now), new[10]

        start = (jnp.zeros((40, 50)), jnp.zeros((40, 50)))
        return (lax.scan(step, start, source)[1] ** 2).sum()

    c, source = 1 + 0.1 * RNG.uniform(size=(40, 50)), np.sin(np.arange(30) / 4)
    gradient = fnx.grad(misfit)
    text = fnx.jit(gradient).lower(c, source).as_text("kernel")
    back = text[text.index("# reverse") :].splitlines()
    assert not [line for line in back if line.startswith("  copy ")]
    np.testing.assert_allclose(
        fnx.jit(gradient)(c, source), gradient(c, source), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("outer", ["scan", "while"])
@pytest.mark.parametrize("changed", [True, False])
def test_an_inner_loop_hands_on_an_array_of_the_outer_one(outer, changed):
    """Its carry lives in one half of a buffer, and what it hands on in the other."""

    def f(a, n, iterations):
        def step(i, s):
            inner = lax.fori_loop(0, n, lambda k, t: s, a)
            inner = inner.at[2:, 3 - i].add(1.0) if changed else inner
            return inner.T.reshape(a.shape) * 2.0

        return lax.fori_loop(0, 2 if outer == "scan" else iterations, step, a)

    a = np.arange(30.0).reshape(5, 6)
    for n in (0, 1, 3):
        with fnx.disable_jit():
            wanted = f(jnp.asarray(a), n, 2)
        np.testing.assert_array_equal(fnx.jit(f)(a, n, 2), wanted)

    def g(a, n):
        def step(i, s):
            return lax.fori_loop(0, n, lambda k, t: s, a).at[2:, 3 - i].add(1.0)

        return lax.fori_loop(0, 2, step, a)

    wanted = a.copy()
    wanted[2:, 2:4] += 1.0
    np.testing.assert_array_equal(fnx.jit(g)(a, 3), wanted)
