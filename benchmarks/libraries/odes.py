"""diffrax: solvers, adjoints and ensembles."""

from __future__ import annotations

import diffrax
import jax
import jax.numpy as jnp
from program import Case

ADAPTIVE = diffrax.PIDController(rtol=1e-7, atol=1e-9)


def lorenz(t, y, p):
    """The Lorenz system."""
    x, y, z = y
    return jnp.array([p[0] * (y - x), x * (p[1] - z) - y, x * y - p[2] * z])


def robertson(t, y, k):
    """Robertson's chemical reaction, which is stiff."""
    a = k[0] * y[0]
    b = k[1] * y[1] ** 2
    c = k[2] * y[1] * y[2]
    return jnp.stack([-a + c, a - b - c, b])


def pleiades(t, y, _):
    """Seven stars in a plane (Hairer, Norsett and Wanner, problem PLEI)."""
    x, v = y
    d = x[:, None, :] - x[None, :, :]
    r = jnp.sum(d**2, -1) + jnp.eye(7)
    masses = jnp.arange(1.0, 8.0)
    return v, -jnp.sum(masses[None, :, None] * d / r[..., None] ** 1.5, 1)


def solve(field, solver, end, y0, p, *, saveat=None, adjoint=None, controller=ADAPTIVE, dt0=1e-3):
    """The solution's values."""
    found = diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        solver,
        0.0,
        end,
        dt0,
        y0,
        p,
        saveat=saveat or diffrax.SaveAt(t1=True),
        stepsize_controller=controller,
        adjoint=adjoint or diffrax.RecursiveCheckpointAdjoint(),
        max_steps=4096,
    )
    return found.ys


LORENZ = jnp.array([10.0, 28.0, 8.0 / 3.0])
RATES = jnp.array([0.04, 3e7, 1e4])
START = jnp.array([1.0, 1.0, 1.0])
STIFF = diffrax.PIDController(rtol=1e-6, atol=1e-9, pcoeff=0.3, icoeff=0.3)


def tsit5():
    """Forward, adaptive."""
    return jax.jit(lambda y, p: solve(lorenz, diffrax.Tsit5(), 10.0, y, p)), (START, LORENZ)


def dopri8():
    """Order eight on the seven stars."""
    x = jnp.array([[3.0, 3], [3, -3], [-1, 2], [-3, 0], [2, 0], [-2, -4], [2, 4]])
    v = jnp.array([[0.0, 0], [0, 0], [0, 0], [0, -1.25], [0, 1], [1.75, 0], [-1.5, 0]])
    return jax.jit(lambda *y: solve(pleiades, diffrax.Dopri8(), 1.0, y, None)), (x, v)


def kvaerno5():
    """A stiff system, by an implicit method."""
    f = lambda y, k: solve(robertson, diffrax.Kvaerno5(), 100.0, y, k, controller=STIFF)
    return jax.jit(f), (jnp.array([1.0, 0.0, 0.0]), RATES)


def kvaerno5_gradient():
    """Its gradient with respect to the rates."""

    def loss(k):
        y = jnp.array([1.0, 0.0, 0.0])
        return solve(robertson, diffrax.Kvaerno5(), 100.0, y, k, controller=STIFF)[0, 2]

    return jax.jit(jax.grad(loss)), (RATES,)


def gradient(adjoint):
    """The gradient of an adaptive solution by one of the adjoints."""

    def make():
        def loss(y, p):
            return jnp.sum(solve(lorenz, diffrax.Tsit5(), 1.0, y, p, adjoint=adjoint()) ** 2)

        return jax.jit(jax.grad(loss, argnums=(0, 1))), (START, LORENZ)

    return make


def forward_mode():
    """Its Jacobian in forward mode."""
    f = lambda p: solve(lorenz, diffrax.Tsit5(), 1.0, START, p, adjoint=diffrax.ForwardMode())
    return jax.jit(jax.jacfwd(f)), (LORENZ,)


def ensemble(members, dense=False):
    """Adaptive solutions from many initial states."""

    def make():
        saveat = diffrax.SaveAt(ts=jnp.linspace(0.0, 2.0, 101)) if dense else None
        f = lambda y: solve(lorenz, diffrax.Tsit5(), 2.0, y, LORENZ, saveat=saveat)
        ys = START + 0.1 * jax.random.normal(jax.random.PRNGKey(0), (members, 3))
        return jax.jit(jax.vmap(f)), (ys,)

    return make


CASES = [
    Case("diffrax Tsit5", tsit5),
    Case("diffrax Dopri8", dopri8),
    Case("diffrax Kvaerno5", kvaerno5),
    Case("diffrax Kvaerno5, gradient", kvaerno5_gradient, tolerance=1e-4),
    Case("diffrax gradient, checkpoints", gradient(diffrax.RecursiveCheckpointAdjoint)),
    Case("diffrax gradient, direct", gradient(diffrax.DirectAdjoint)),
    Case("diffrax gradient, backsolve", gradient(diffrax.BacksolveAdjoint), tolerance=1e-4),
    Case("diffrax Jacobian, forward mode", forward_mode),
    Case("diffrax ensemble of 1,000", ensemble(1000), ensemble=True),
    Case("diffrax ensemble of 10,000", ensemble(10_000), ensemble=True),
    Case("diffrax ensemble, dense output", ensemble(1000, dense=True), ensemble=True),
]
