"""NumPy-style kernels: stencils in time, matrices, graphs, particles, tables."""

from __future__ import annotations

import math

import numpy as np
from program import Program

GROUP = "kernels"
PROGRAMS: list[Program] = []


def kernel(name, inputs, size, quick, tolerance=None):
    """Add the decorated `make(jax, jnp, lax, size)` to the programs."""

    def register(make):
        targets = {"run": {"jax": 1.2}, "compile": {"jax": None}, "warm": {"jax": None}}
        PROGRAMS.append(
            Program(
                name,
                GROUP,
                make,
                inputs,
                size=size,
                quick=quick,
                targets=targets,
                tolerance=tolerance,
            )
        )
        return make

    return register


def random(*shapes, dtype=np.float64, low=0.0, high=1.0):
    """Uniform arrays; a shape may be a function of the size."""

    def inputs(size):
        rng = np.random.default_rng(11)
        made = [s(size) if callable(s) else s for s in shapes]
        return tuple(rng.uniform(low, high, s).astype(dtype) for s in made)

    return inputs


# matrices ---------------------------------------------------------------------------------------


@kernel(
    "matrix chain",
    random(
        lambda n: (n, n + 20), lambda n: (n + 20, n - 10), lambda n: (n - 10, n), lambda n: (n, n)
    ),
    240,
    30,
)
def matrix_chain(jax, jnp, lax, n):
    """Three products and a sum."""
    return lambda a, b, c, d: 1.5 * (a @ b) @ c @ d + 0.7 * d


@kernel("correlation", random(lambda n: (n, n // 2)), 600, 40)
def correlation(jax, jnp, lax, n):
    """The correlation matrix of the columns."""

    def apply(data):
        centred = data - jnp.mean(data, axis=0)
        deviation = jnp.sqrt(jnp.mean(centred**2, axis=0))
        scaled = centred / (jnp.where(deviation < 1e-6, 1.0, deviation) * math.sqrt(n))
        return scaled.T @ scaled

    return apply


def positive(n):
    """A symmetric positive definite matrix."""
    a = np.random.default_rng(12).normal(size=(n, n))
    return (a @ a.T / n + np.eye(n),)


@kernel("Cholesky by loops", positive, 200, 20)
def cholesky(jax, jnp, lax, n):
    """Column after column."""
    rows = np.arange(n)

    def apply(a):
        def column(j, factor):
            v = a[:, j] - factor @ factor[j]
            return factor.at[:, j].set(jnp.where(rows >= j, v / jnp.sqrt(v[j]), 0.0))

        return lax.fori_loop(0, n, column, jnp.zeros_like(a))

    return apply


def weights(n):
    """Lengths of the edges of a graph."""
    return (np.random.default_rng(13).uniform(1, 100, (n, n)),)


@kernel("Floyd-Warshall", weights, 200, 20)
def floyd_warshall(jax, jnp, lax, n):
    """All shortest paths."""

    def relax(k, path):
        return jnp.minimum(path, path[:, k][:, None] + path[k][None, :])

    return lambda path: lax.fori_loop(0, n, relax, path)


# stencils in time -------------------------------------------------------------------------------


@kernel("Jacobi 1-D", random(lambda n: n, lambda n: n), 4000, 50)
def jacobi_1d(jax, jnp, lax, n):
    """Two arrays, each the average of the other."""

    def step(_, ab):
        a, b = ab
        b = b.at[1:-1].set((a[:-2] + a[1:-1] + a[2:]) / 3.0)
        a = a.at[1:-1].set((b[:-2] + b[1:-1] + b[2:]) / 3.0)
        return a, b

    return lambda a, b: lax.fori_loop(0, 400, step, (a, b))


@kernel("Jacobi 2-D", random(lambda n: (n, n), lambda n: (n, n)), 200, 20)
def jacobi_2d(jax, jnp, lax, n):
    """The same on a square."""

    def smooth(a):
        around = a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:]
        return 0.2 * (a[1:-1, 1:-1] + around)

    def step(_, ab):
        a, b = ab
        b = b.at[1:-1, 1:-1].set(smooth(a))
        a = a.at[1:-1, 1:-1].set(smooth(b))
        return a, b

    return lambda a, b: lax.fori_loop(0, 60, step, (a, b))


@kernel("heat 3-D", random(lambda n: (n, n, n)), 48, 10)
def heat_3d(jax, jnp, lax, n):
    """Explicit diffusion in a cube."""
    m = slice(1, -1)

    def step(_, u):
        c = 2.0 * u[m, m, m]
        bend = (u[2:, m, m] - c + u[:-2, m, m]) + (u[m, 2:, m] - c + u[m, :-2, m])
        bend += u[m, m, 2:] - c + u[m, m, :-2]
        return u.at[m, m, m].add(0.125 * bend)

    return lambda u: lax.fori_loop(0, 40, step, u)


@kernel(
    "FDTD 2-D", random(lambda n: (n, n + 20), lambda n: (n, n + 20), lambda n: (n, n + 20)), 200, 20
)
def fdtd(jax, jnp, lax, n):
    """Maxwell's equations in two dimensions, driven at one side."""

    def step(t, fields):
        ex, ey, hz = fields
        ey = ey.at[0].set(jnp.sin(0.1 * t))
        ey = ey.at[1:].add(-0.5 * (hz[1:] - hz[:-1]))
        ex = ex.at[:, 1:].add(-0.5 * (hz[:, 1:] - hz[:, :-1]))
        curl = ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1]
        return ex, ey, hz.at[:-1, :-1].add(-0.7 * curl)

    return lambda *fields: lax.fori_loop(0, 60, step, fields)


@kernel("ADI", random(lambda n: (n, n)), 160, 16)
def adi(jax, jnp, lax, n):
    """Alternating directions: implicit along the rows, then along the columns."""
    r = 0.4

    def half(u):
        """Implicit in the first axis, explicit in the second; the edges are zero."""
        bend = u[:, :-2] - 2.0 * u[:, 1:-1] + u[:, 2:]
        right = jnp.pad(u[:, 1:-1] + r * bend, ((0, 0), (1, 1)))[1:-1]

        def down(carry, d):
            p, q = carry
            pivot = 1.0 / (1.0 + 2.0 * r - r * p)
            carry = (r * pivot, (d + r * q) * pivot)
            return carry, carry

        def up(x, pq):
            x = pq[0] * x + pq[1]
            return x, x

        zero = jnp.zeros(n)
        _, swept = lax.scan(down, (0.0, zero), right)
        _, inner = lax.scan(up, zero, swept, reverse=True)
        return jnp.pad(inner, ((1, 1), (0, 0)))

    return lambda u: lax.fori_loop(0, 15, lambda _, u: half(half(u).T).T, u)


@kernel(
    "vertical advection",
    random(*[lambda n: (n, n, 60)] * 3, low=-1.0),
    64,
    8,
)
def vertical_advection(jax, jnp, lax, n):
    """An implicit step of advection by a vertical wind: a tridiagonal system for each column."""

    def apply(u, wind, tendency):
        u, wind, tendency = (jnp.moveaxis(x, 2, 0) for x in (u, wind, tendency))
        face = 0.25 * (wind[1:] + wind[:-1])
        rim = jnp.zeros_like(face[:1])
        lower = -jnp.concatenate([rim, face])
        upper = jnp.concatenate([face, rim])
        rise = jnp.concatenate([rim, u[1:] - u[:-1]])
        fall = jnp.concatenate([u[1:] - u[:-1], rim])
        right = 3.0 * u + tendency + lower * rise - upper * fall

        def down(carry, level):
            a, c, d = level
            pivot = 1.0 / (3.0 - a * carry[0])
            carry = (c * pivot, (d - a * carry[1]) * pivot)
            return carry, carry

        def up(x, pq):
            x = pq[1] - pq[0] * x
            return x, x

        zero = jnp.zeros_like(u[0])
        _, swept = lax.scan(down, (zero, zero), (lower, upper, right))
        _, new = lax.scan(up, zero, swept, reverse=True)
        return jnp.moveaxis(3.0 * (new - u), 0, 2)

    return apply


@kernel("horizontal diffusion", random(*[lambda n: (n, n, 60)] * 2), 80, 10)
def horizontal_diffusion(jax, jnp, lax, n):
    """Fourth order, fluxes limited where they would sharpen."""

    def apply(u, coefficient):
        lap = 4.0 * u[1:-1, 1:-1] - u[2:, 1:-1] - u[:-2, 1:-1] - u[1:-1, 2:] - u[1:-1, :-2]
        fx = lap[1:, 1:-1] - lap[:-1, 1:-1]
        fx = jnp.where(fx * (u[2:-1, 2:-2] - u[1:-2, 2:-2]) > 0.0, 0.0, fx)
        fy = lap[1:-1, 1:] - lap[1:-1, :-1]
        fy = jnp.where(fy * (u[2:-2, 2:-1] - u[2:-2, 1:-2]) > 0.0, 0.0, fy)
        inner = slice(2, -2)
        div = fx[1:] - fx[:-1] + fy[:, 1:] - fy[:, :-1]
        return u[inner, inner] - coefficient[inner, inner] * div

    return apply


# particles and points ---------------------------------------------------------------------------


def bodies(n):
    """Masses, positions, velocities."""
    rng = np.random.default_rng(14)
    return rng.uniform(0.5, 1.5, n) / n, rng.normal(size=(n, 3)), 0.3 * rng.normal(size=(n, 3))


@kernel("N-body", bodies, 120, 12)
def n_body(jax, jnp, lax, n):
    """Leapfrog under softened gravity, with the energy after each step."""

    def pairs(x):
        between = x[None, :, :] - x[:, None, :]
        return between, jnp.sum(between**2, axis=-1) + 0.01

    def apply(mass, x, v):
        def pull(x):
            between, square = pairs(x)
            return jnp.sum(between * (mass[None, :] * square**-1.5)[:, :, None], axis=1)

        def energy(x, v):
            _, square = pairs(x)
            bound = jnp.sum(mass[:, None] * mass[None, :] / jnp.sqrt(square))
            return 0.5 * jnp.sum(mass[:, None] * v**2) - 0.5 * bound

        def step(state, _):
            x, v, a = state
            v = v + 0.005 * a
            x = x + 0.01 * v
            a = pull(x)
            v = v + 0.005 * a
            return (x, v, a), energy(x, v)

        (x, v, _), energies = lax.scan(step, (x, v, pull(x)), None, length=20)
        return x, v, energies

    return apply


@kernel("k-means", random(lambda n: (n, 8), lambda n: (16, 8)), 5000, 100)
def k_means(jax, jnp, lax, n):
    """Five of Lloyd's steps."""

    def step(_, centres_of):
        points, centres = centres_of
        distance = jnp.sum((points[:, None, :] - centres[None, :, :]) ** 2, axis=-1)
        label = jnp.argmin(distance, axis=1)
        total = jnp.zeros_like(centres).at[label].add(points)
        count = jnp.zeros(centres.shape[0]).at[label].add(1.0)
        return points, total / jnp.maximum(count, 1.0)[:, None]

    return lambda points, centres: lax.fori_loop(0, 5, step, (points, centres))[1]


# images and tables ------------------------------------------------------------------------------


@kernel("Mandelbrot", lambda n: (), 250, 20, tolerance=1e-3)
def mandelbrot(jax, jnp, lax, n):
    """Steps until escape, in complex numbers; a point on the brink may go either way by rounding."""

    def apply():
        x = jnp.linspace(-2.2, 0.8, n)
        y = jnp.linspace(-1.3, 1.2, n)
        c = x[None, :] + 1j * y[:, None]

        def step(_, state):
            z, count = state
            inside = z.real * z.real + z.imag * z.imag < 4.0
            return jnp.where(inside, z * z + c, z), count + inside

        count = lax.fori_loop(0, 60, step, (jnp.zeros_like(c), jnp.zeros(c.shape, int)))[1]
        return jnp.mean(count.astype(float)), jnp.mean(count.astype(float), axis=0)

    return apply


@kernel("azimuthal integration", random(lambda n: n, lambda n: n), 400_000, 1000)
def azimuthal(jax, jnp, lax, n):
    """The mean of values in rings of equal width."""
    bins = 500

    def apply(values, radius):
        ring = jnp.minimum((radius * bins).astype(jnp.int32), bins - 1)
        total = jnp.zeros(bins).at[ring].add(values)
        count = jnp.zeros(bins).at[ring].add(1.0)
        return total / jnp.maximum(count, 1.0)

    return apply


@kernel("histogram", random(lambda n: n), 1_000_000, 1000)
def histogram(jax, jnp, lax, n):
    """Counts in 256 bins."""

    def apply(values):
        index = jnp.clip((values * 256).astype(jnp.int32), 0, 255)
        return jnp.zeros(256, jnp.int32).at[index].add(1)

    return apply


def sparse(n):
    """Values, column and row of each entry sorted by rows, and a vector."""
    rng = np.random.default_rng(15)
    entries = 12 * n
    rows = np.sort(rng.integers(0, n, entries)).astype(np.int32)
    columns = rng.integers(0, n, entries).astype(np.int32)
    return rng.normal(size=entries), columns, rows, rng.normal(size=n)


@kernel("sparse matrix times vector", sparse, 20_000, 100)
def spmv(jax, jnp, lax, n):
    """Gather, multiply, add by rows."""
    return lambda values, columns, rows, x: (
        jnp.zeros(x.shape[0]).at[rows].add(values * x[columns], indices_are_sorted=True)
    )
