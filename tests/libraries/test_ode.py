"""odeint: solutions that are known, SciPy's, and gradients against finite differences."""

import numpy as np
import pytest
import scipy.integrate

import fnx
import fnx.numpy as jnp
from fnx.experimental.ode import odeint

T = np.linspace(0.0, 3.0, 7)

pytestmark = pytest.mark.usefixtures("reference")


def close(a, b, tol=1e-6):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tol, atol=tol)


def pendulum(y, t, damping):
    return {"x": y["v"], "v": -jnp.sin(y["x"]) - damping * y["v"] + jnp.cos(t)}


START = {"x": np.array([0.3, 1.2]), "v": np.array([0.0, -0.5])}


def test_exponential():
    ys = odeint(lambda y, t, k: -k * y, 2.0, T, 1.5, rtol=1e-10, atol=1e-10)
    close(ys, 2 * np.exp(-1.5 * T), 1e-9)
    close(odeint(lambda y, t: 1j * y, 1.0 + 0j, T), np.exp(1j * T))
    assert odeint(lambda y, t: -y, jnp.float32(1), T).dtype == np.float32
    close(odeint(lambda y, t: -y, 1, np.arange(3)), np.exp(-np.arange(3)))
    close(odeint(lambda y, t: -y, 1.0, np.array([0.5])), [1.0])


def test_a_system_in_a_pytree_is_scipys():
    ys = odeint(pendulum, START, T, 0.2, rtol=1e-10, atol=1e-10)

    def flat(t, y):
        return [*y[2:], *(-np.sin(y[:2]) - 0.2 * y[2:] + np.cos(t))]

    y0 = [*START["x"], *START["v"]]
    expected = scipy.integrate.solve_ivp(flat, (0, 3), y0, t_eval=T, rtol=1e-10, atol=1e-10).y.T
    assert ys["x"].shape == (7, 2)
    close(ys["x"], expected[:, :2], 1e-7)
    close(ys["v"], expected[:, 2:], 1e-7)
    compiled = fnx.jit(lambda y, t, d: odeint(pendulum, y, t, d))(START, T, 0.2)
    close(compiled["x"], ys["x"])


def test_tolerances_and_bounds_of_steps():
    calls = []

    def f(y, t):
        fnx.debug.callback(lambda t: calls.append(float(t)), t)
        return jnp.cos(t) * jnp.ones_like(y)

    def count(**options):
        calls.clear()
        odeint(f, 0.0, np.array([0.0, 3.0]), **options)
        return len(calls)

    assert count(rtol=1e-3, atol=1e-3) < count(rtol=1e-10, atol=1e-10)
    assert count(hmax=0.01) >= 6 * 300
    assert count(mxstep=2) <= 2 + 2 * 6


def loss(y0, t, damping, wave):
    """All kinds of inputs: a pytree, the times, an argument, a value that is closed over."""
    ys = odeint(
        lambda y, t, d: pendulum(y, t * wave, d["d"]), y0, t, {"d": damping}, rtol=1e-9, atol=1e-9
    )
    return jnp.sum(jnp.sin(ys["x"])) + jnp.sum(ys["v"][1:] ** 2)


@pytest.mark.slow
def test_gradients():
    args = START, T, 0.2, 1.1
    found = fnx.grad(loss, (0, 1, 2, 3))(*args)
    leaves, tree = fnx.tree_util.tree_flatten(args)
    for k, g in enumerate(fnx.tree_util.tree_leaves(found)):
        x = np.asarray(leaves[k], float)
        for at in np.ndindex(x.shape):
            sides = []
            for sign in (1, -1):
                moved = x.copy()
                moved[at] += sign * 1e-5
                sides.append(float(loss(*tree.unflatten([*leaves[:k], moved, *leaves[k + 1 :]]))))
            close(np.asarray(g)[at], (sides[0] - sides[1]) / 2e-5, 2e-5)
            if k == 2:  # of the times the first and one more are enough
                break
    compiled = fnx.jit(fnx.grad(loss, (0, 1, 2, 3)))(*args)
    for a, b in zip(fnx.tree_util.tree_leaves(compiled), fnx.tree_util.tree_leaves(found)):
        close(a, b)


def test_gradient_with_respect_to_times():
    g = fnx.grad(lambda t: jnp.sum(odeint(lambda y, t: -y * t, 2.0, t) ** 2))(T)
    # y = 2 exp((t0^2 - t^2) / 2)
    y2 = 4 * np.exp(T[0] ** 2 - T**2)
    expected = -2 * T * y2
    expected[0] = np.sum(2 * T[0] * y2[1:])
    close(g, expected)
    late = T + 0.5
    y2 = 4 * np.exp(late[0] ** 2 - late**2)
    expected = -2 * late * y2
    expected[0] = np.sum(2 * late[0] * y2[1:])
    close(fnx.grad(lambda t: jnp.sum(odeint(lambda y, t: -y * t, 2.0, t) ** 2))(late), expected)


def test_lanes():
    ks = np.array([0.5, 1.0, 4.0])
    ys = fnx.vmap(lambda k: odeint(lambda y, t: -k * y, 1.0, T))(ks)
    close(ys, np.exp(-ks[:, None] * T))
    g = fnx.vmap(fnx.grad(lambda k: odeint(lambda y, t: -k * y, 1.0, T)[-1]))(ks)
    close(g, -3 * np.exp(-3 * ks))


def test_integer_arguments_have_no_gradient():
    g = fnx.grad(lambda a, n: odeint(lambda y, t, a, n: -a * y / n, 1.0, T, a, n)[-1])(0.7, 2)
    close(g, -1.5 * np.exp(-0.7 * 1.5))


def test_what_is_refused():
    with pytest.raises(TypeError, match="of shapes"):
        odeint(lambda y, t: (y, y), 1.0, T)
    with pytest.raises(ValueError, match="rank 1"):
        odeint(lambda y, t: y, 1.0, 2.0)
    with pytest.raises(TypeError, match="forward-mode"):
        fnx.jvp(lambda y: odeint(lambda y, t: y, y, T), (1.0,), (1.0,))


def test_rates_may_come_in_another_container():
    rates = lambda y, t: [y[1], -y[0]]
    t = jnp.linspace(0.0, 1.0, 3)
    ys = odeint(rates, jnp.array([0.0, 1.0]), t)
    np.testing.assert_allclose(ys, np.stack([np.sin(t), np.cos(t)], 1), atol=1e-6)
    slope = fnx.grad(lambda y0: odeint(rates, y0, t)[-1, 0])(jnp.array([0.0, 1.0]))
    np.testing.assert_allclose(slope, [np.cos(1.0), np.sin(1.0)], atol=1e-6)


def test_steps_are_those_of_jax():
    jax = pytest.importorskip("jax")
    theirs = pytest.importorskip("jax.experimental.ode")

    def final(np_, solve, stiffness, t):
        rate = lambda y, t, k: [y[1], -k * y[0] * np_.cos(t)]
        options = {"rtol": 1e-3, "atol": 1e-3}  # far from the solution, so other steps show
        return solve(rate, [1.0, 0.2], t, stiffness, **options)[0].sum()

    t = np.array([0.0, 0.5, 4.0])
    ours = fnx.grad(lambda *a: final(jnp, odeint, *a), (0, 1))(2.0, jnp.asarray(t))
    with jax.enable_x64(True):
        expected = jax.grad(lambda *a: final(jax.numpy, theirs.odeint, *a), (0, 1))(
            2.0, jax.numpy.asarray(t)
        )
    for a, b in zip(ours, expected, strict=True):
        close(a, b, 1e-9)
