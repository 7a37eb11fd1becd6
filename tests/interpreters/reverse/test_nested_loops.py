"""Corners of loop nests under differentiation: no iterations, one, integers, aliases, complex numbers.

Each program is compared with the same one written as Python loops.
"""

import numpy as np
import pytest
from loop_checks import python_loop

import fnx
import fnx.numpy as jnp
from fnx import lax

N = 10
RNG = np.random.default_rng(6)
A = jnp.asarray(RNG.normal(size=(N, N)) / N + np.eye(N))


def python_cond(test, yes, no, *operands):
    return (yes if test else no)(*operands)


def no_iterations(loop, cond):
    def row(i, a):
        a = loop(i, i, lambda j, a: a.at[i, j].set(7.0), a)  # never
        return loop(i + 3, i, lambda j, a: a.at[j, i].add(a[i, i]), a) * 1.01

    return lambda a: loop(0, 4, row, loop(0, 0, row, a))


def one_iteration(loop, cond):
    def row(i, a):
        return loop(i, i + 1, lambda j, a: a.at[i].set(jnp.sin(a[j]) * a[0]), a)

    return lambda a: loop(2, 3, row, a)


def integers(loop, cond):
    """Counts that are carried, and choose places."""

    def row(i, state):
        a, count, places = state

        def term(j, state):
            a, count, places = state
            places = places.at[j].add(i)
            return a.at[count % N, j].add(jnp.sin(a[i, places[j] % N])), count + j, places

        return loop(0, i, term, (a, count, places))

    return lambda a: loop(0, N, row, (a, 1, jnp.arange(N)))[0]


def aliases(loop, cond):
    """Carries that begin as one array, and change places."""

    def row(i, state):
        a, b = state
        a, b = loop(0, i, lambda j, s: (s[1].at[j].add(0.1 * s[0][i]), s[0]), (a, b))
        return b, a.at[i, i].set(jnp.sum(b[i]) / N)

    return lambda a: loop(0, 5, row, (a, a))[1]


def branches(loop, cond):
    """Branches in branches, of which some update, and one divides by what may be zero."""

    def row(i, a):
        def term(j, a):
            def lower(a):
                ratio = lambda a: a.at[i, j].set(a[i, j] / (i - j))
                return cond(j % 2 == 0, ratio, lambda a: a.at[i].add(0.1 * a[j]), a)

            return cond(j < i, lower, lambda a: a, a)

        return loop(0, N, term, a)

    return lambda a: loop(0, N, row, a)


def from_above(loop, cond):
    """Downwards, by mirrored indices, between numbers of both loops around."""

    def row(i, a):
        def middle(k, a):
            j = N - 1 - k

            def inner(m, s):
                return s * 0.9 + a[m, j] * a[i, m]

            s = loop(min_(i, k), max_(i, k), inner, a[i, j])
            return a.at[i, j].set(jnp.tanh(s))

        return loop(i // 2, N - 1, middle, a)

    return lambda a: loop(0, N, row, a)


def min_(i, k):
    return jnp.minimum(i, k)


def max_(i, k):
    return jnp.maximum(i, k)


def complex_numbers(loop, cond):
    def row(i, z):
        z = loop(0, i, lambda j, z: z.at[i].add(-z[i, j] * z[j]), z)
        return cond(i % 2 == 0, lambda z: z.at[i].multiply(1 / (1 + z[i, i])), lambda z: z, z)

    def run(a):
        z = loop(0, N, row, a + 0.3j * a.T)
        return z.real + z.imag**2

    return run


PROGRAMS = [
    no_iterations, one_iteration, integers, aliases, branches, from_above, complex_numbers,
]  # fmt: skip


def loss(f):
    return lambda a: jnp.sum(jnp.sin(f(a)) * jnp.cos(jnp.arange(N)))


@pytest.mark.parametrize("program", PROGRAMS)
def test_against_python_loops(program):
    f = loss(program(lax.fori_loop, lax.cond))
    g = loss(program(python_loop, python_cond))
    v = jnp.asarray(np.random.default_rng(2).normal(size=A.shape))
    many = jnp.stack([A, 1.1 * A])

    def found(f, jit):
        gradient = fnx.grad(f)
        yield jit(f)(A)
        yield jit(gradient)(A)
        yield jit(lambda a: fnx.jvp(gradient, (a,), (v,))[1])(A)
        yield jit(fnx.grad(lambda a: jnp.vdot(gradient(a), v)))(A)
        yield jit(fnx.vmap(gradient))(many)
        yield jit(fnx.grad(lambda a: jnp.sum(fnx.vmap(f)(a))))(many)

    plain = lambda f: f
    for x, y in zip(found(f, fnx.jit), found(g, plain), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-10)
