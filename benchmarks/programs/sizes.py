"""Programs that must not be compiled again on a grid of another size; `quick` is the other size."""

from __future__ import annotations

import numpy as np
from program import Program


def diffusion(jax, jnp, lax, size):
    """Two hundred steps of explicit diffusion on a square."""

    def step(_, u):
        inner = u[1:-1, 1:-1]
        flow = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * inner
        return u.at[1:-1, 1:-1].set(inner + 0.2 * flow)

    return lambda u: lax.fori_loop(0, 200, step, u)


def statistics(jax, jnp, lax, size):
    """Standardised columns, and a norm: reductions among elementwise code."""

    def apply(u):
        centred = u - jnp.mean(u, axis=0)
        scaled = centred / jnp.sqrt(jnp.mean(centred**2, axis=0) + 1e-9)
        return scaled, jnp.sum(jnp.tanh(scaled) ** 2)

    return apply


def wave_gradient(jax, jnp, lax, size):
    """The gradient of a wave's final energy with respect to its first shape."""

    def body(state, _):
        u, v = state
        bend = jnp.roll(u, 1) - 2.0 * u + jnp.roll(u, -1)
        v = v + 0.1 * bend
        return (u + 0.1 * v, v), None

    def energy(u):
        (u, v), _ = lax.scan(body, (u, jnp.zeros_like(u)), None, length=100)
        return jnp.sum(u**2 * v**2)

    return jax.grad(energy)


def square(size):
    """A random square."""
    return (np.random.default_rng(size).uniform(size=(size, size)),)


def line(size):
    """A random line."""
    return (np.random.default_rng(size).uniform(size=size),)


PROGRAMS = [
    Program(name, "sizes", make, inputs, size=b, quick=a, targets={"kernels": {"count": 0}})
    for name, make, inputs, a, b in [
        ("diffusion, grid 100 then 141", diffusion, square, 100, 141),
        ("statistics, grid 100 then 141", statistics, square, 100, 141),
        ("wave gradient, grid 200 then 345", wave_gradient, line, 200, 345),
    ]
]
