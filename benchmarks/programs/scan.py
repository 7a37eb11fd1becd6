"""Simulations by scan: the Lorenz equations and rings of coupled cells, forward and their gradients."""

from __future__ import annotations

import numpy as np
from program import Program

# A short step keeps 100,000 of them in a time over which the equations' chaos does not amplify
# rounding beyond what two programs can agree on.
STEP = 1e-4
SIGMA, RHO, BETA = 10.0, 28.0, 8.0 / 3.0
START = np.array([1.0, 1.5, 20.0])
JAX_20TH = {"run": {"jax": 1 / 20}, "compile": {"jax": 1.0}}


def vector_step(jnp):
    """One RK4 step of Lorenz over a 3-vector."""

    def velocity(s):
        x, y, z = s[0], s[1], s[2]
        return jnp.stack([SIGMA * (y - x), x * (RHO - z) - y, x * y - BETA * z])

    def step(s):
        k1 = velocity(s)
        k2 = velocity(s + 0.5 * STEP * k1)
        k3 = velocity(s + 0.5 * STEP * k2)
        k4 = velocity(s + STEP * k3)
        return s + STEP / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)

    return step


def scalar_step(x, y, z):
    """One RK4 step of Lorenz over three scalars."""

    def velocity(x, y, z):
        return SIGMA * (y - x), x * (RHO - z) - y, x * y - BETA * z

    def moved(h, k):
        return x + h * k[0], y + h * k[1], z + h * k[2]

    k1 = velocity(x, y, z)
    k2 = velocity(*moved(0.5 * STEP, k1))
    k3 = velocity(*moved(0.5 * STEP, k2))
    k4 = velocity(*moved(STEP, k3))
    a, b, c = (STEP / 6.0 * (p + 2.0 * q + 2.0 * r + s) for p, q, r, s in zip(k1, k2, k3, k4))
    return x + a, y + b, z + c


def lorenz_vector(jax, jnp, lax, steps):
    """The state after `steps` steps, carried as a 3-vector."""
    step = vector_step(jnp)

    def solve(s):
        return lax.scan(lambda s, _: (step(s), None), s, None, length=steps)[0]

    return solve


def lorenz_vector_path(jax, jnp, lax, steps):
    """A loss over all states, which scan stacks as outputs."""
    step = vector_step(jnp)

    def loss(s):
        def body(s, _):
            s = step(s)
            return s, s

        path = lax.scan(body, s, None, length=steps)[1]
        return jnp.mean((path - 1.0) ** 2)

    return loss


def lorenz_scalars(jax, jnp, lax, steps):
    """The state after `steps` steps, carried as three scalars."""

    def solve(x, y, z):
        return lax.scan(lambda s, _: (scalar_step(*s), None), (x, y, z), None, length=steps)[0]

    return solve


def vector_end(jax, jnp, lax, steps):
    """Sum of squares of the final vector."""
    solve = lorenz_vector(jax, jnp, lax, steps)
    return lambda s: jnp.sum(solve(s) ** 2)


def scalars_end(jax, jnp, lax, steps):
    """Sum of squares of the final scalars."""
    solve = lorenz_scalars(jax, jnp, lax, steps)
    return lambda x, y, z: sum(v * v for v in solve(x, y, z))


def ring(cells):
    """Bistable cells in a ring, each carried as a scalar and pulled to its neighbours."""

    def make(jax, jnp, lax, steps):
        def body(u, _):
            left, right = u[-1:] + u[:-1], u[1:] + u[:1]
            return tuple(
                c + 0.01 * (c - c * c * c + 0.7 * (a - 2.0 * c + b))
                for a, c, b in zip(left, u, right)
            ), None

        def loss(u):
            last = lax.scan(body, tuple(u), None, length=steps)[0]
            return sum((k + 1.0) * c * c for k, c in enumerate(last))

        return loss

    return make


def ring_start(cells):
    """A tuple of scalars in (-1, 1)."""
    values = np.random.default_rng(cells).uniform(-1, 1, cells)
    return lambda steps: (tuple(np.asarray(v) for v in values),)


def gradient(objective, argnums=0):
    """The program that is the gradient of `objective`."""

    def make(jax, jnp, lax, size):
        return jax.grad(objective(jax, jnp, lax, size), argnums=argnums)

    return make


def numba_vector(steps):
    """Lorenz by hand, from and to a 3-vector."""
    solve = numba_loop(steps)
    return lambda s: np.array(solve(s[0], s[1], s[2]))


def numba_scalars(steps):
    """Lorenz by hand, from and to three scalars."""
    solve = numba_loop(steps)
    return lambda x, y, z: solve(float(x), float(y), float(z))


def numba_loop(steps):
    """The loop that one would write in Numba."""
    import numba

    @numba.njit
    def velocity(x, y, z):
        return SIGMA * (y - x), x * (RHO - z) - y, x * y - BETA * z

    @numba.njit
    def solve(x, y, z):
        h = STEP
        for _ in range(steps):
            a1, b1, c1 = velocity(x, y, z)
            a2, b2, c2 = velocity(x + 0.5 * h * a1, y + 0.5 * h * b1, z + 0.5 * h * c1)
            a3, b3, c3 = velocity(x + 0.5 * h * a2, y + 0.5 * h * b2, z + 0.5 * h * c2)
            a4, b4, c4 = velocity(x + h * a3, y + h * b3, z + h * c3)
            x += h / 6.0 * (a1 + 2.0 * a2 + 2.0 * a3 + a4)
            y += h / 6.0 * (b1 + 2.0 * b2 + 2.0 * b3 + b4)
            z += h / 6.0 * (c1 + 2.0 * c2 + 2.0 * c3 + c4)
        return x, y, z

    return solve


def one_vector(_):
    """The initial state as a vector."""
    return (START.copy(),)


def three_scalars(_):
    """The initial state as scalars."""
    return tuple(np.asarray(v) for v in START)


STEPS = {"size": 100_000, "quick": 2_000}
RING = {"size": 10_000, "quick": 500}
PROGRAMS = [
    Program(
        "lorenz vector forward",
        "scan",
        lorenz_vector,
        one_vector,
        targets={"run": {"numba": 1.3, "jax": None}},
        rivals={"numba": numba_vector},
        tolerance=1e-6,
        **STEPS,
    ),
    Program(
        "lorenz scalars forward",
        "scan",
        lorenz_scalars,
        three_scalars,
        targets={"run": {"numba": 1.3, "jax": None}},
        rivals={"numba": numba_scalars},
        tolerance=1e-6,
        **STEPS,
    ),
    Program(
        "lorenz vector gradient, final state",
        "scan",
        gradient(vector_end),
        one_vector,
        targets=JAX_20TH | {"memory": {"hand": 1.1, "jax": None}},
        adjoint_bytes=lambda steps: 8 * 3 * (steps + 1),
        tolerance=1e-6,
        **STEPS,
    ),
    Program(
        "lorenz vector gradient, all states",
        "scan",
        gradient(lorenz_vector_path),
        one_vector,
        targets=JAX_20TH,
        tolerance=1e-6,
        **STEPS,
    ),
    Program(
        "lorenz scalars gradient",
        "scan",
        gradient(scalars_end, (0, 1, 2)),
        three_scalars,
        targets={"run": {"jax": 1.0}, "compile": {"jax": 1.0}},
        tolerance=1e-6,
        **STEPS,
    ),
    Program(
        "ring of 10 gradient",
        "scan",
        gradient(ring(10)),
        ring_start(10),
        targets=JAX_20TH,
        **RING,
    ),
    Program(
        "ring of 60 gradient",
        "scan",
        gradient(ring(60)),
        ring_start(60),
        targets=JAX_20TH,
        **RING,
    ),
]
