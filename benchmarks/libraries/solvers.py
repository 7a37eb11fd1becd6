"""optimistix and jaxopt: least squares, minimisation and roots."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jaxopt
import optimistix as optx
from program import Case


def levenberg_marquardt():
    """A sum of two exponentials, fitted to 200 points."""
    t = jnp.linspace(0.0, 3.0, 200)
    data = 2.0 * jnp.exp(-1.3 * t) + 0.5 * jnp.exp(-0.2 * t)

    def residuals(p, args):
        return p[0] * jnp.exp(-p[1] * t) + p[2] * jnp.exp(-p[3] * t) - data

    solver = optx.LevenbergMarquardt(rtol=1e-8, atol=1e-8)
    f = lambda p: optx.least_squares(residuals, solver, p, max_steps=500).value
    return jax.jit(f), (jnp.array([1.5, 1.0, 0.7, 0.1]),)


def rosenbrock(x, args=None):
    """Rosenbrock's function in any number of variables."""
    return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def bfgs():
    """Rosenbrock's function of ten variables."""
    solver = optx.BFGS(rtol=1e-8, atol=1e-8)
    f = lambda x: optx.minimise(rosenbrock, solver, x, max_steps=1000).value
    return jax.jit(f), (jnp.linspace(-1.0, 1.0, 10),)


def newton():
    """The steady state of a reaction and diffusion on 50 points."""

    def residual(u, lam):
        padded = jnp.concatenate([jnp.zeros(1), u, jnp.zeros(1)])
        return padded[2:] - 2 * u + padded[:-2] + lam / 51**2 * jnp.exp(u)

    solver = optx.Newton(rtol=1e-10, atol=1e-10)
    f = lambda lam: optx.root_find(residual, solver, jnp.zeros(50), lam).value
    return jax.jit(f), (jnp.array(2.0),)


def lbfgs():
    """Logistic regression of 1,000 points by jaxopt's LBFGS."""
    keys = jax.random.split(jax.random.PRNGKey(0), 2)
    x = jax.random.normal(keys[0], (1000, 20))
    y = (jax.random.uniform(keys[1], (1000,)) < jax.nn.sigmoid(x @ jnp.linspace(-1, 1, 20))) * 1.0

    def loss(w, x, y):
        z = x @ w
        return jnp.mean(jnp.logaddexp(0.0, z) - y * z) + 1e-3 * jnp.sum(w**2)

    solver = jaxopt.LBFGS(loss, maxiter=50, tol=1e-8)
    return jax.jit(lambda w, x, y: solver.run(w, x, y).params), (jnp.zeros(20), x, y)


CASES = [
    Case("optimistix Levenberg-Marquardt", levenberg_marquardt, tolerance=1e-4),
    Case("optimistix BFGS", bfgs, tolerance=1e-4),
    Case("optimistix Newton", newton),
    Case("jaxopt LBFGS", lbfgs, tolerance=1e-4),
]
