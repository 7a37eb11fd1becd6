"""Kernels in the style of npbench's JAX versions, and their gradients: matrices, tables, particles.

npbench: Ziogas et al., "NPBench: a benchmarking suite for high-performance NumPy", ICS 2021. Sizes are
those that it calls S, but for products of two matrices, which are as large as a second of rounds allows.
"""

from __future__ import annotations

import numpy as np
from program import Program

from programs.kernels import random

GROUP = "npbench"
PROGRAMS: list[Program] = []


def kernel(name, inputs, size, quick, argnums=(0,), tolerance=None):
    """Add the decorated `make(jax, jnp, lax, size)`, and its gradient in some arguments, if any."""

    def register(make):
        def gradient(jax, jnp, lax, size):
            function = make(jax, jnp, lax, size)

            def loss(*args):
                outs = jax.tree_util.tree_leaves(function(*args))
                return sum(jnp.sum(jnp.abs(x) ** 2) for x in outs)

            return jax.grad(loss, argnums)

        made = {name: make} | ({f"gradient of {name}": gradient} if argnums else {})
        for title, fun in made.items():
            targets = {"run": {"jax": 1.0}, "compile": {"jax": None}, "warm": {"jax": None}}
            given = {"size": size, "quick": quick, "targets": targets, "tolerance": tolerance}
            PROGRAMS.append(Program(title, GROUP, fun, inputs, **given))
        return make

    return register


# products ---------------------------------------------------------------------------------------


@kernel("mvt", random(*[lambda n: n] * 4, lambda n: (n, n)), 2500, 40, (0, 2, 3, 4))
def mvt(jax, jnp, lax, n):
    """A matrix and its transpose, each times a vector."""
    return lambda x1, x2, y1, y2, a: (x1 + a @ y1, x2 + y2 @ a)


@kernel("atax", random(lambda n: (n, n + 100), lambda n: n + 100), 2000, 40, (0, 1))
def atax(jax, jnp, lax, n):
    """A' A x."""
    return lambda a, x: (a @ x) @ a


@kernel("gesummv", random(*[lambda n: (n, n)] * 2, lambda n: n), 2000, 40, (0, 1, 2))
def gesummv(jax, jnp, lax, n):
    """A sum of two matrices times a vector."""
    return lambda a, b, x: (1.5 * a + 1.2 * b) @ x


@kernel(
    "gemver", random(lambda n: (n, n), *[lambda n: n] * 8), 1000, 40, (0, 1, 2, 3, 4, 5, 6, 7, 8)
)
def gemver(jax, jnp, lax, n):
    """A matrix with two outer products added, times vectors from both sides."""

    def apply(a, u1, v1, u2, v2, w, x, y, z):
        a = a + jnp.outer(u1, v1) + jnp.outer(u2, v2)
        x = x + 1.2 * (y @ a) + z
        return a, x, w + 1.5 * (a @ x)

    return apply


@kernel("k2mm", random(*[lambda n: (n, n)] * 4), 500, 30, (0, 1, 2, 3))
def k2mm(jax, jnp, lax, n):
    """Two products and a sum."""
    return lambda a, b, c, d: 1.5 * (a @ b) @ c + 1.2 * d


@kernel("k3mm", random(*[lambda n: (n, n)] * 4), 500, 30, (0, 1, 2, 3))
def k3mm(jax, jnp, lax, n):
    """Three products."""
    return lambda a, b, c, d: (a @ b) @ (c @ d)


@kernel("doitgen", random(lambda n: (60, 60, n), lambda n: (n, n)), 128, 10, (0, 1))
def doitgen(jax, jnp, lax, n):
    """A matrix times the rows of a cube."""
    return lambda a, c: a.at[:].set(jnp.reshape(jnp.reshape(a, (60, 60, 1, n)) @ c, a.shape))


def resonances(n):
    """Blocks of a Hamiltonian, points on a contour, right-hand sides."""
    rng = np.random.default_rng(16)
    draw = lambda *shape: rng.random(shape) + 1j * rng.random(shape)
    return draw(3, n, n), draw(32), draw(n, 3 * n)


@kernel("contour integral", resonances, 50, 6, (), tolerance=1e-8)
def contour_integral(jax, jnp, lax, n):
    """Solutions of complex systems, added up along a contour."""

    def apply(blocks, points, y):
        def point(k, sums):
            z = points[k]
            matrix = sum(z ** (1.0 - j) * blocks[j] for j in range(3))
            x = jnp.linalg.solve(matrix, y)
            x = lax.cond(abs(z) < 1.0, lambda x: -x, lambda x: x, x)
            return sums[0] + x, sums[1] + z * x

        zero = jnp.zeros_like(y)
        return lax.fori_loop(0, 32, point, (zero, zero))

    return apply


# tables and particles ---------------------------------------------------------------------------


@kernel("azimuthal histogram", random(lambda n: n, lambda n: n), 400_000, 1000)
def azimuthal_histogram(jax, jnp, lax, n):
    """The mean of values in a thousand rings, whose edges are found."""

    def apply(values, radius):
        count = jnp.histogram(radius, 1000)[0]
        return jnp.histogram(radius, 1000, weights=values)[0] / jnp.maximum(count, 1)

    return apply


@kernel("go fast", random(lambda n: (n, n)), 2000, 40)
def go_fast(jax, jnp, lax, n):
    """A sum along the diagonal, added to a matrix."""

    def apply(a):
        step = lambda i, trace: trace + jnp.tanh(a[i, i])
        return a + lax.fori_loop(0, n, step, 0.0)

    return apply


@kernel("scatter at computed indices", random(lambda n: n, lambda n: n), 2000, 50, (0, 1))
def computed_indices(jax, jnp, lax, n):
    """Values added where hashes of values say, again and again."""

    def apply(x, v):
        step = lambda _, x: 0.999 * x.at[(x * 1e6).astype(int) % n].add(v)
        return lax.fori_loop(0, 100, step, x)

    return apply


@kernel("particles on a grid", random(lambda n: (64, 64), lambda n: n), 10_000, 50, (0, 1))
def particles(jax, jnp, lax, n):
    """Weights left in cells of a periodic grid, which then move who left them."""

    def apply(grid, p):
        def step(_, state):
            grid, p = state
            i, j = (p * 64).astype(int) % 64, (p * 641).astype(int) % 64
            grid = grid.at[i, j].add(p)
            return grid, (p + 1e-4 * grid[i, j]) % 1.0

        return lax.fori_loop(0, 50, step, (grid, p))

    return apply


@kernel("Thomas in time", random(lambda n: n, low=-1.0), 2000, 40)
def thomas(jax, jnp, lax, n):
    """The heat equation by Crank and Nicolson: a tridiagonal system by two scans, each step."""
    r = 0.4

    def solve(right):
        def down(carry, d):
            p, q = carry
            pivot = 1.0 / (1.0 + 2.0 * r - r * p)
            carry = (r * pivot, (d + r * q) * pivot)
            return carry, carry

        def up(x, pq):
            x = pq[0] * x + pq[1]
            return x, x

        _, swept = lax.scan(down, (0.0, 0.0), right)
        return lax.scan(up, 0.0, swept, reverse=True)[1]

    def apply(u):
        step = lambda u, _: (solve(u.at[1:-1].add(r * (u[2:] - 2.0 * u[1:-1] + u[:-2]))), None)
        return lax.scan(step, u, None, length=50)[0]

    return apply
