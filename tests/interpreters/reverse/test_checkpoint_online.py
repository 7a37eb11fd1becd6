"""Reverse mode through loops of unknown length, against forward mode and loops of known length."""

from functools import cache

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import policy
from fnx.core.errors import MissingRule


def newton(a):
    def step(v):
        x, _ = v
        return x - (x**3 - a) / (3 * x**2), jnp.abs(x**3 - a)

    return lax.while_loop(lambda v: v[1] > 1e-12, step, (1.0 + a / 3, 1.0))[0]


def orbit(a, n):
    """`n` iterations with an array, a number, an integer and a bool in the carry, and constants."""
    weights = jnp.linspace(0.1, 1.0, 5) * a

    def step(i, v):
        u, s, k, flip = v
        u = u.at[i % 5].set(jnp.sin(u[(i + 1) % 5]) * weights[k]) + 0.01 * u
        s = jnp.where(flip, s * 0.9 + u.sum(), s - a * u[0])
        return u, s, (k + 2) % 5, ~flip

    u, s, _, _ = lax.fori_loop(0, n, step, (jnp.cos(weights), a, 1, False))
    return s + (u**2).sum()


@pytest.fixture(params=[1024, 3])
def base(request, monkeypatch):
    """Short loops use one distance; with a small base, several."""
    monkeypatch.setattr(policy, "ONLINE_LARGEST_BASE", request.param)


@cache
def of_known_length(n):
    return fnx.grad(lambda a: orbit(a, n))(0.7)


@pytest.mark.parametrize("jit", [fnx.jit, lambda f: f])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 9, 10, 28, 60])
def test_against_a_loop_of_known_length(base, n, jit):
    found = jit(fnx.grad(orbit))(jnp.float64(0.7), n)
    np.testing.assert_allclose(found, of_known_length(n), rtol=1e-13)


@pytest.mark.parametrize("n", [255, 1023, 1024, 1025, 5000])
def test_more_iterations_than_states_are_kept(n):
    def f(x, n):
        return lax.fori_loop(0, n, lambda i, y: jnp.sin(y) * x + 1.2 * y / (1 + y * y), x)

    known = fnx.jit(fnx.grad(lambda x: f(x, n)))(0.9)
    np.testing.assert_allclose(fnx.jit(fnx.grad(f))(0.9, n), known, rtol=1e-12)


@pytest.mark.slow
def test_gradients_of_newtons_method():
    np.testing.assert_allclose(fnx.grad(newton)(8.0), 1 / 12, rtol=1e-12)
    np.testing.assert_allclose(fnx.hessian(newton)(8.0), -1 / 144, rtol=1e-9)
    np.testing.assert_allclose(fnx.grad(fnx.grad(newton))(8.0), -1 / 144, rtol=1e-9)
    lanes = fnx.jit(fnx.vmap(fnx.grad(newton)))(jnp.array([8.0, 27.0, 1e-3]))
    np.testing.assert_allclose(lanes, [1 / 12, 1 / 27, 100 / 3], rtol=1e-9)
    total = fnx.grad(lambda a: fnx.vmap(newton)(a).sum())(jnp.array([8.0, 27.0, 1e-3]))
    np.testing.assert_allclose(total, lanes, rtol=1e-9)


def test_loops_in_loops():
    def f(x):
        def outer(v):
            i, y = v
            inner = lax.while_loop(
                lambda w: w[0] < i, lambda w: (w[0] + 1, jnp.cos(w[1]) * x), (0, y)
            )
            return i + 1, inner[1]

        return lax.while_loop(lambda v: v[0] < 6, outer, (0, x))[1]

    expected = fnx.jacfwd(f)(0.7)
    np.testing.assert_allclose(fnx.grad(f)(0.7), expected, rtol=1e-12)
    np.testing.assert_allclose(fnx.jit(fnx.grad(f))(0.7), expected, rtol=1e-12)
    scanned = lambda x: lax.scan(lambda c, t: (f(c * 0.5 + t), c), x, jnp.arange(4.0))[0]
    np.testing.assert_allclose(
        fnx.jit(fnx.grad(scanned))(0.3), fnx.jacfwd(scanned)(0.3), rtol=1e-12
    )


def test_complex_carries():
    def f(x):
        z = lax.while_loop(
            lambda v: jnp.abs(v[1]) < 10.0, lambda v: (v[0] + 1, v[1] ** 2 * x + 1j), (0, x + 0j)
        )[1]
        return jnp.real(z * jnp.conj(z))

    x = jnp.array([0.9, 0.7, 1.3])
    np.testing.assert_allclose(
        fnx.jit(fnx.vmap(fnx.grad(f)))(x), fnx.vmap(fnx.jacfwd(f))(x), rtol=1e-11
    )


def test_a_field_of_cells_and_pytrees():
    def f(p, u):
        def step(v):
            t, u = v
            flux = p["d"] * (u[2:] - 2 * u[1:-1] + u[:-2])
            return t + p["dt"], {"u": u}["u"].at[1:-1].add(flux)

        return (lax.while_loop(lambda v: v[0] < 1.0, step, (0.0, u))[1] ** 2).sum()

    def known(p, u):
        def step(i, v):
            return v.at[1:-1].add(p["d"] * (v[2:] - 2 * v[1:-1] + v[:-2]))

        return (lax.fori_loop(0, 41, step, u) ** 2).sum()

    p, u = {"d": 0.2, "dt": 1 / 40.5}, jnp.sin(jnp.arange(50.0))
    found = fnx.jit(fnx.grad(f, argnums=(0, 1)))(p, u)
    expected = fnx.grad(known, argnums=(0, 1))(p, u)
    np.testing.assert_allclose(found[0]["d"], expected[0]["d"], rtol=1e-12)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-12, atol=1e-15)
    assert found[0]["dt"] == 0.0


def test_memory_does_not_grow_with_the_iterations():
    def f(u, n):
        return lax.fori_loop(0, n, lambda i, u: jnp.tanh(u) * 1.01, u).sum()

    compiled = fnx.jit(fnx.grad(f)).lower(jnp.ones(3), 10).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 1 << 18
    known = fnx.grad(lambda u: f(u, 3000))(jnp.full(3, 0.5))
    np.testing.assert_allclose(compiled(jnp.full(3, 0.5), 3000), known, rtol=1e-12)


def test_lanes_share_one_stack():
    """Each lane goes back over its own iterations, one after the other."""
    lanes = fnx.jit(fnx.vmap(fnx.grad(newton)))
    x = jnp.linspace(1.0, 50.0, 500)
    memory = lanes.lower(x).compile().memory_analysis().temp_size_in_bytes
    assert memory < (1 << 18) + 10 * x.nbytes
    np.testing.assert_allclose(lanes(x), x ** (-2 / 3) / 3, rtol=1e-9)


@pytest.mark.parametrize("limit", [0.0, 40.0, 700.0])
def test_arrays_that_are_updated_until_a_condition_fails(limit):
    """What a block keeps is what its iterations overwrite, not the array."""
    n = 60

    def row(i, a, s):
        new = jnp.sin(a[(i - 1) % n]) + a[i % n] * 0.5 + 0.1
        return a.at[i % n].set(new), s + jnp.sum(new**2)

    def f(a):
        step = lambda v: (v[0] + 1, *row(*v))
        k, a, s = lax.while_loop(lambda v: v[2] < limit, step, (0, a, 0.0))
        return jnp.sum(jnp.cos(a)) + s, k

    a = jnp.sin(jnp.arange(n * 20.0)).reshape(n, 20)
    iterations = int(f(a)[1])

    def known(a):
        a, s = lax.fori_loop(0, iterations, lambda i, v: row(i, *v), (a, 0.0))
        return jnp.sum(jnp.cos(a)) + s

    assert iterations > 0 or limit == 0.0
    for g in (fnx.grad(f, has_aux=True), fnx.jit(fnx.grad(f, has_aux=True))):
        np.testing.assert_allclose(g(a)[0], fnx.grad(known)(a), rtol=1e-11, atol=1e-13)
    d = jnp.cos(a)
    second = lambda f: fnx.jit(lambda a: fnx.jvp(fnx.grad(f), (a,), (d,))[1])(a)
    np.testing.assert_allclose(second(lambda a: f(a)[0]), second(known), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("jit", [False, True])
def test_effects_of_iterations_happen_once(capsys, jit):
    def shout(c):
        fnx.debug.print("{}", c[0])
        return c * jnp.array([2.0, 3.0])

    def deep(c):
        c, _ = lax.scan(lambda c, _: (shout(c), None), c, length=2)
        return lax.cond(c[0] > 0.0, shout, lambda c: c, c)

    for body, iterations in ((shout, 5), (deep, 6)):
        gradient = fnx.grad(lambda x: lax.while_loop(lambda c: c[0] < 30, body, x).sum())  # noqa: B023
        slope = (fnx.jit(gradient) if jit else gradient)(jnp.ones(2))
        np.testing.assert_allclose(slope, [2.0**iterations, 3.0**iterations])
        shown = capsys.readouterr().out.split()
        assert shown == [str(2.0**k) for k in range(iterations)]
    asked = fnx.grad(
        lambda x: lax.fori_loop(0, 2 * jnp.int32(x), lambda i, c: shout(c * x), jnp.ones(2))[0]
    )
    assert float(asked(2.0)) == 4 * 2.0**3 * 16
    assert len(capsys.readouterr().out.split()) == 4


def test_iterations_whose_effects_have_results_are_refused():
    answer = lambda: fnx.experimental.io_callback(
        lambda: np.array(1.0), fnx.ShapeDtypeStruct((), float)
    )
    f = lambda x: lax.while_loop(lambda c: c < 30, lambda c: c * 2 + answer(), x)
    assert float(fnx.jit(f)(1.0)) == 31.0
    with pytest.raises(MissingRule, match="results of a function with side effects"):
        fnx.grad(f)(1.0)
