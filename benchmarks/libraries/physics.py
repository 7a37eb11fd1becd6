"""Particles and flows: programs that are written for JAX, and jax-cfd."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from program import Case

BOX, CUTOFF, SKIN, NEIGHBOURS = 10.0 * 1.08, 2.5, 0.3, 96


def apart(a, b):
    """The vector between two particles in a periodic box."""
    d = a - b
    return d - BOX * jnp.round(d / BOX)


def neighbours(x):
    """The nearest particles of each, as a table of fixed width; too far ones count as none."""
    d2 = jnp.sum(apart(x[:, None], x[None]) ** 2, -1)
    d2 = jnp.where(jnp.eye(len(x), dtype=bool), jnp.inf, d2)
    near, index = jax.lax.top_k(-d2, NEIGHBOURS)
    return jnp.where(-near < (CUTOFF + SKIN) ** 2, index, len(x))


def energy(x, index):
    """The Lennard-Jones energy over the table, cut off."""
    padded = jnp.concatenate([x, jnp.zeros((1, 3))])
    d2 = jnp.sum(apart(x[:, None], padded[index]) ** 2, -1)
    valid = (index < len(x)) & (d2 < CUTOFF**2)
    inverse = jnp.where(valid, 1.0 / jnp.where(valid, d2, 1.0), 0.0) ** 3
    return 2.0 * jnp.sum(inverse**2 - inverse)


def lennard_jones():
    """1,000 particles, 5 times a table of neighbours and 10 steps of velocity Verlet."""
    grid = jnp.stack(jnp.meshgrid(*[jnp.arange(10.0)] * 3), -1).reshape(-1, 3) * 1.08
    x = grid + 0.05 * jax.random.normal(jax.random.PRNGKey(0), grid.shape)
    v = jax.random.normal(jax.random.PRNGKey(1), grid.shape)
    force = lambda x, index: -jax.grad(energy)(x, index)

    def step(index, state, _):
        x, v, f = state
        v = v + 0.5e-3 * f
        x = x + 1e-3 * v
        f = force(x, index)
        return (x, v + 0.5e-3 * f, f), None

    def block(state, _):
        x, v = state
        index = neighbours(x)
        start = (x, v, force(x, index))
        (x, v, _), _ = jax.lax.scan(lambda s, k: step(index, s, k), start, None, 10)
        return (x, v), energy(x, index)

    return jax.jit(lambda x, v: jax.lax.scan(block, (x, v), None, 5)), (x, v)


def turbulence():
    """jax-cfd: 20 steps of decaying turbulence in two dimensions, 256 x 256."""
    import jax_cfd.base as cfd

    grid = cfd.grids.Grid((256, 256), domain=((0, 2 * jnp.pi), (0, 2 * jnp.pi)))
    v0 = cfd.initial_conditions.filtered_velocity_field(
        jax.random.PRNGKey(42), grid, maximum_velocity=7.0, peak_wavenumber=4
    )
    step = cfd.equations.semi_implicit_navier_stokes(
        density=1.0, viscosity=1e-3, dt=1e-3, grid=grid
    )
    run = cfd.funcutils.repeated(step, 20)
    return jax.jit(run), (v0,)


CASES = [
    Case("Lennard-Jones, 1,000 particles", lennard_jones, tolerance=1e-6),
    Case("jax-cfd turbulence 256^2", turbulence, tolerance=1e-2),
]
