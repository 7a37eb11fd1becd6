"""Branches that update large arrays: what they write leaves the branch, the arrays do not."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import policy
from fnx.core.jaxpr import Jaxpr, subjaxprs
from fnx.interpreters.passes.simplify import simplify

N = 12
RNG = np.random.default_rng(4)
A = jnp.asarray(RNG.normal(size=(N, N)) / N + 2 * np.eye(N))
V = jnp.asarray(RNG.normal(size=N))
K = np.arange(N)


def results_of_conds(jaxpr: Jaxpr) -> list[int]:
    """The sizes of what branches return, at any depth."""
    found = []
    for e in jaxpr.eqns:
        if e.prim.name == "cond":
            found += [v.aval.size for v in e.outs]
        for j in subjaxprs(e.prim):
            found += results_of_conds(j)
    return found


# two functions of (k, a, v) each: with a branch, and without
CASES = {
    "element": (
        lambda k, a, v: lax.cond(k > 3, lambda a: a.at[k, 2].set(v[k]), lambda a: a, a),
        lambda k, a, v: jnp.where(k > 3, a.at[k, 2].set(v[k]), a),
    ),
    "row, the other way round": (
        lambda k, a, v: lax.cond(k > 3, lambda a: a, lambda a: a.at[k].set(jnp.sin(v * a[k])), a),
        lambda k, a, v: jnp.where(k > 3, a, a.at[k].set(jnp.sin(v * a[k]))),
    ),
    "both write at one place": (
        lambda k, a, v: lax.cond(
            k == 5, lambda a: a.at[k, k].set(a[0, 1]), lambda a: a.at[k, k].set(a[k, 0] * 2), a
        ),
        lambda k, a, v: a.at[k, k].set(jnp.where(k == 5, a[0, 1], a[k, 0] * 2)),
    ),
    "both write elsewhere": (
        lambda k, a, v: lax.cond(
            k == 5, lambda a: a.at[k, 0].set(a[0, 1]), lambda a: a.at[2, k].set(a[k, 0] * 2), a
        ),
        lambda k, a, v: jnp.where(k == 5, a.at[k, 0].set(a[0, 1]), a.at[2, k].set(a[k, 0] * 2)),
    ),
    "sums of different kinds": (
        lambda k, a, v: lax.cond(
            k == 5, lambda a: a.at[k].add(v).at[:, 1].add(v), lambda a: a.at[0, 1].add(v[k]), a
        ),
        lambda k, a, v: jnp.where(k == 5, a.at[k].add(v).at[:, 1].add(v), a.at[0, 1].add(v[k])),
    ),
    "two in a row": (
        lambda k, a, v: lax.cond(
            k > 5, lambda a: a.at[k].add(-v * a[0]).at[k, 0].set(a[k, 0] / a[0, 0]), lambda a: a, a
        ),
        lambda k, a, v: jnp.where(k > 5, a.at[k].add(-v * a[0]).at[k, 0].set(a[k, 0] / a[0, 0]), a),
    ),
    "a slice that does not move": (
        lambda k, a, v: lax.cond(k > 5, lambda a: a.at[2:4, 1:3].set(a[0, 0]), lambda a: a, a),
        lambda k, a, v: jnp.where(k > 5, a.at[2:4, 1:3].set(a[0, 0]), a),
    ),
    "out of bounds": (
        lambda k, a, v: lax.cond(k > 5, lambda a: a.at[k + 4, 1].set(7.0), lambda a: a, a),
        lambda k, a, v: jnp.where(k > 5, a.at[k + 4, 1].set(7.0), a),
    ),
    "a place that is a number of the branch": (
        lambda k, a, v: lax.cond(k > 5, lambda a: a.at[jnp.argmax(a[k])].set(v), lambda a: a, a),
        lambda k, a, v: jnp.where(k > 5, a.at[jnp.argmax(a[k])].set(v), a),
    ),
    "a switch": (
        lambda k, a, v: lax.switch(
            k // 4,
            [lambda a: a, lambda a: a.at[k].set(v * a[k - 1]), lambda a: a.at[k].set(a[k] ** 2)],
            a,
        ),
        lambda k, a, v: a.at[k].set(
            jnp.where(k // 4 == 0, a[k], jnp.where(k // 4 == 1, v * a[k - 1], a[k] ** 2))
        ),
    ),
    "two arrays and a number": (
        lambda k, a, v: _first(
            lax.cond(
                k > 5,
                lambda a, b: (a.at[k].set(b[0]), b.at[0, k].add(a[1, 1]), a[k, 0]),
                lambda a, b: (a, b.at[0, 0].add(1.0), 0.5),
                a,
                a.T,
            )
        ),
        lambda k, a, v: _first(
            (
                jnp.where(k > 5, a.at[k].set(a.T[0]), a),
                jnp.where(k > 5, a.T.at[0, k].add(a[1, 1]), a.T.at[0, 0].add(1.0)),
                jnp.where(k > 5, a[k, 0], 0.5),
            )
        ),
    ),
}


def _first(results):
    a, b, x = results
    return a + 0.1 * b * x


def looped(f):
    return lambda a, v: lax.fori_loop(0, N, lambda k, a: f(k, a, v), a)


def loss(f):
    weights = jnp.cos(jnp.arange(N * N)).reshape(N, N)
    return lambda a, v: jnp.sum(jnp.sin(looped(f)(a, v)) * weights)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives(name):
    branching, plain = CASES[name]
    assert N * N > policy.SELECTED_ELEMENTS
    want = fnx.jit(looped(plain))(A, V)
    np.testing.assert_allclose(fnx.jit(looped(branching))(A, V), want, rtol=1e-13, atol=1e-14)
    d = jnp.asarray(np.random.default_rng(8).normal(size=A.shape))

    def derivatives(f):
        gradient = fnx.grad(loss(f), (0, 1))
        hessian = fnx.grad(lambda a: jnp.vdot(gradient(a, V)[0], d))
        forward = lambda a: fnx.jvp(lambda a: gradient(a, V)[0], (a,), (d,))[1]
        lanes = fnx.vmap(fnx.grad(loss(f)), (0, None))
        return [
            *fnx.jit(gradient)(A, V),
            fnx.jit(hessian)(A),
            fnx.jit(forward)(A),
            fnx.jit(lanes)(jnp.stack([A, 1.1 * A]), V),
        ]

    for x, y in zip(derivatives(branching), derivatives(plain), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_branches_return_no_large_array(name):
    jaxpr = fnx.make_jaxpr(looped(CASES[name][0]))(A, V).jaxpr
    sizes = results_of_conds(simplify(jaxpr))
    assert sizes or name == "both write at one place"
    assert max(sizes, default=0) <= policy.SELECTED_ELEMENTS


def test_the_gradient_of_reads_in_a_branch_is_added_in_place():
    """The cotangent of a matrix of which a branch reads an element costs an element."""
    n = 40

    def solve(lower, b):
        def row(i, x):
            def term(j, s):
                return lax.cond(j < i, lambda s: s + lower[i, j] * x[j], lambda s: s, s)

            s = lax.fori_loop(0, n, term, 0.0)
            return x.at[i].set((b[i] - s) / lower[i, i])

        return jnp.sum(lax.fori_loop(0, n, row, jnp.zeros(n)) ** 2)

    lower = jnp.tril(jnp.asarray(RNG.normal(size=(n, n)))) / n + jnp.eye(n)
    gradient = fnx.jit(fnx.grad(solve, (0, 1)))
    sizes = results_of_conds(simplify(fnx.make_jaxpr(gradient)(lower, jnp.ones(n)).jaxpr))
    assert sizes
    assert max(sizes) <= policy.SELECTED_ELEMENTS
    memory = gradient.lower(lower, jnp.ones(n)).compile().memory_analysis()
    assert memory.temp_size_in_bytes < lower.nbytes / 4
    slopes = gradient(lower, jnp.ones(n))
    h = 1e-6
    for at in ((5, 3), (7, 7)):
        d = jnp.zeros((n, n)).at[at].set(h)
        want = (solve(lower + d, jnp.ones(n)) - solve(lower - d, jnp.ones(n))) / (2 * h)
        np.testing.assert_allclose(slopes[0][at], want, rtol=1e-7)


def test_zeros_keep_their_signs():
    """A branch that adds nothing leaves -0.0 as it is."""
    x = -jnp.zeros((N, N))

    def f(x, k):
        step = lambda k, x: lax.cond(k > N, lambda x: x.at[k].add(1.0), lambda x: x, x)
        return lax.fori_loop(0, N, step, x)

    assert np.all(np.signbit(fnx.jit(f)(x, 0)))


def test_a_version_that_is_read_again_stays_inside():
    """What a branch reads of the changed array is what it changed."""

    def f(k, a, v):
        def change(a):
            a = a.at[k].set(v)
            return a.at[k, 0].set(jnp.sum(a[k]))

        return lax.cond(k > 3, change, lambda a: a, a)

    def plain(k, a, v):
        return jnp.where(k > 3, a.at[k].set(v).at[k, 0].set(jnp.sum(v)), a)

    np.testing.assert_allclose(fnx.jit(looped(f))(A, V), fnx.jit(looped(plain))(A, V))
    for x, y in zip(*[fnx.grad(loss(g), (0, 1))(A, V) for g in (f, plain)]):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-10)
