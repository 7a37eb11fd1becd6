"""Derivatives of simulations on periodic grids, beside the time of the simulation."""

from __future__ import annotations

import numpy as np

from programs.derivatives import derivative


def shallow_water(jax, jnp, lax, size):
    """Shallow water on a periodic square, by central differences."""
    _, steps = size
    dt = 0.05

    def slope(f, axis):
        return 0.5 * (jnp.roll(f, -1, axis) - jnp.roll(f, 1, axis))

    def loss(h, u, v):
        def step(state, _):
            h, u, v = state
            du = -u * slope(u, 1) - v * slope(u, 0) - slope(h, 1)
            dv = -u * slope(v, 1) - v * slope(v, 0) - slope(h, 0)
            dh = -slope(h * u, 1) - slope(h * v, 0)
            return (h + dt * dh, u + dt * du, v + dt * dv), None

        (h, u, v), _ = lax.scan(step, (h, u, v), None, length=steps)
        return jnp.sum(h**2) + jnp.sum(u * v)

    return loss


def staggered(jax, jnp, lax, size):
    """Shallow water in vector-invariant form on a staggered grid, forward-backward in time."""
    _, steps = size
    dt, coriolis, roll = 0.02, 0.5, jnp.roll

    def loss(h, u, v):
        def step(state, _):
            h, u, v = state
            east, north = 0.5 * (h + roll(h, -1, 1)) * u, 0.5 * (h + roll(h, -1, 0)) * v
            h = h - dt * (east - roll(east, 1, 1) + north - roll(north, 1, 0))
            energy = 0.25 * (u * u + roll(u * u, 1, 1) + v * v + roll(v * v, 1, 0))
            vorticity = roll(v, -1, 1) - v - roll(u, -1, 0) + u + coriolis
            head = h + energy
            across = 0.25 * (v + roll(v, -1, 1) + roll(v, 1, 0) + roll(roll(v, -1, 1), 1, 0))
            along = 0.25 * (u + roll(u, 1, 1) + roll(u, -1, 0) + roll(roll(u, 1, 1), -1, 0))
            du = 0.5 * (vorticity + roll(vorticity, 1, 0)) * across - roll(head, -1, 1) + head
            dv = -0.5 * (vorticity + roll(vorticity, 1, 1)) * along - roll(head, -1, 0) + head
            return (h, u + dt * du, v + dt * dv), None

        (h, u, _), _ = lax.scan(step, (h, u, v), None, length=steps)
        return jnp.sum(h**2) + jnp.sum(u**2)

    return loss


def water(size):
    """Depth and velocities."""
    x, y = np.meshgrid(*[2 * np.pi * np.arange(size[0]) / size[0]] * 2)
    return 1 + 0.01 * np.cos(x) * np.sin(y), 0.01 * np.sin(x + y), 0.01 * np.cos(x - y)


def heat(jax, jnp, lax, size):
    """Diffusion in a periodic cube whose conductivity differs from place to place."""
    _, steps = size

    def loss(u, conductivity):
        def step(u, _):
            around = sum(jnp.roll(u, 1, k) + jnp.roll(u, -1, k) for k in range(3))
            return u + 0.1 * conductivity * (around - 6.0 * u), None

        last, _ = lax.scan(step, u, None, length=steps)
        return jnp.sum(last**2)

    return loss


def cubes(size):
    """Temperature and conductivity."""
    rng = np.random.default_rng(41)
    return tuple(rng.uniform(size=(size[0],) * 3) for _ in range(2))


def cascade(jax, jnp, lax, size):
    """A chain of equations, each driven by the one before, by RK4: where the last one ends."""
    _, steps = size

    def velocity(x, y):
        return jnp.concatenate([x[:1], x[1:] * y[:-1]])

    def last(x):
        h = 2.0 / steps

        def step(_, y):
            k1 = velocity(x, y)
            k2 = velocity(x, y + 0.5 * h * k1)
            k3 = velocity(x, y + 0.5 * h * k2)
            k4 = velocity(x, y + h * k3)
            return y + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)

        return lax.fori_loop(0, steps, step, jnp.zeros(x.shape[0]))[-1]

    return last


def rates(size):
    """One of each equation."""
    return (np.random.default_rng(42).uniform(size=size[0]),)


STATE = (0, 1, 2)
PROGRAMS = [
    derivative(f"{name} gradient, grid {n}", make, water, (n, 1000), (10, 60), STATE, asked=5.0)
    for name, make in [("shallow water", shallow_water), ("staggered shallow water", staggered)]
    for n in (64, 256)
] + [
    derivative("periodic heat 3-D gradient", heat, cubes, (40, 100), (8, 60), (0, 1), asked=5.0),
    derivative("cascade gradient", cascade, rates, (1000, 100), (10, 20), asked=5.0),
]
