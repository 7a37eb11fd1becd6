"""Cotangents of matrices that iterations multiply with vectors: one product after the loop, no carry."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import policy

RNG = np.random.default_rng(5)
N, M, T = 12, 20, 9
W, U, B = RNG.normal(size=(N, M)) / 4, RNG.normal(size=(M, M)) / 5, RNG.normal(size=M)
XS = RNG.normal(size=(T, N))


def cell(w, u, b, h, x):
    return jnp.tanh(x @ w + h @ u + b)


def layer(w, u, b, xs, reverse=False):
    step = lambda h, x: (cell(w, u, b, h, x), jnp.sum(h * h))
    h, squares = lax.scan(step, jnp.zeros(M), xs, reverse=reverse)
    return jnp.sum(h) + jnp.sum(squares)


def twice(w, u, b, xs):
    """A matrix in two products an iteration, one of them from the other side."""

    def step(h, x):
        h = cell(w, u, b, h, x)
        return jnp.tanh(u @ h), None

    return jnp.sum(lax.scan(step, jnp.zeros(M), xs)[0])


def otherwise(w, u, b, xs):
    """A matrix that is read element by element, too: its sum stays in the loop."""
    step = lambda h, x: (cell(w, u, b, h, x) + jnp.sum(u * u, axis=0), None)
    return jnp.sum(lax.scan(step, jnp.zeros(M), xs)[0])


def fixed(w, u, b, xs):
    """One of the vectors is the same in all iterations."""
    step = lambda h, x: (jnp.tanh(h * (b[:N] @ w)) + x @ w, None)
    return jnp.sum(lax.scan(step, jnp.ones(M), xs)[0])


def counted(w, u, b, xs):
    """How many iterations there are is known at run time alone."""
    many = jnp.argmax(b) % T + 1
    step = lambda k, h: cell(w, u, b, h, xs[k])
    return jnp.sum(lax.fori_loop(0, many, step, jnp.zeros(M)))


PROGRAMS = {
    "layer": layer,
    "from the other end": lambda *a: layer(*a, reverse=True),
    "twice": twice,
    "otherwise": otherwise,
    "fixed": fixed,
    "counted": counted,
}


def derivative(f, how):
    slope = fnx.grad(f, argnums=(0, 1, 2, 3))
    if how == "grad":
        return slope
    if how == "eager":
        return slope
    if how == "hessian-vector":
        return lambda *a: fnx.grad(lambda u: jnp.vdot(slope(a[0], u, *a[2:])[1], u))(a[1])
    if how == "forward of grad":
        return lambda *a: fnx.jvp(lambda u: slope(a[0], u, *a[2:]), (a[1],), (a[1],))[1]
    return fnx.vmap(slope, (None, 0, None, None))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("how", ["grad", "eager", "hessian-vector", "forward of grad", "lanes"])
def test_derivatives_are_those_of_sums_in_the_loop(name, how, monkeypatch):
    args = (W, np.stack([U, -U]) if how == "lanes" else U, B, XS)
    maybe_jit = (lambda f: f) if how == "eager" else fnx.jit

    def found():
        return maybe_jit(derivative(PROGRAMS[name], how))(*args)

    got = found()
    monkeypatch.setattr(policy, "RANK_K_ITERATIONS", 10**9)
    fnx.clear_caches()
    for a, b in zip(fnx.tree_util.tree_leaves(got), fnx.tree_util.tree_leaves(found())):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def carries(f, *args):
    """The shapes of what the loop of the gradient carries."""
    made = fnx.make_jaxpr(fnx.grad(f, argnums=(0, 1, 2)))(*args).jaxpr
    loop = [e for e in made.eqns if e.prim.name == "scan"][-1]
    return [v.aval.shape for v in loop.outs[: loop.prim.carry]]


def test_no_matrix_is_carried_where_it_is_read_in_products_alone():
    assert carries(layer, W, U, B, XS) == [(M,), (M,)]
    assert carries(twice, W, U, B, XS) == [(M,), (M,)]
    assert (M, M) in carries(otherwise, W, U, B, XS)


def test_small_matrices_and_few_iterations_stay_in_the_loop():
    small = (W[:3, :3], U[:3, :3], B[:3])

    def f(w, u, b, xs):
        return jnp.sum(lax.scan(lambda h, x: (cell(w, u, b, h, x), None), jnp.zeros(3), xs)[0])

    assert carries(f, *small, XS[:, :3]).count((3, 3)) == 2
    assert (M, M) in carries(layer, W, U, B, XS[:3])


def test_stacks_are_not_much_larger_than_what_the_loop_keeps_anyway():
    """An iteration that keeps a number or two for its derivative does not keep two long vectors instead."""
    n, iterations = 64, 4000

    def f(u, v):
        step = lambda s, k: (s + jnp.sin(s) * (jnp.arange(n) * k) @ u @ v, None)
        return lax.scan(step, 0.1, jnp.arange(float(iterations)))[0]

    made = fnx.make_jaxpr(fnx.grad(f))(jnp.ones((n, n)), jnp.ones(n)).jaxpr
    assert not any(v.aval.size >= n * iterations for e in made.eqns for v in e.outs)
