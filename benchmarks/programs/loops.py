"""Gradients of loop nests that update arrays in place, as numerical recipes are written."""

from __future__ import annotations

import numpy as np
from program import Program

from programs.scan import gradient

PROGRAMS: list[Program] = []


def nest(name, inputs, size, quick, adjoint, argnums=0):
    """Add the gradient of the sum of squares of what the decorated program returns.

    `adjoint(size)` counts the numbers that a hand-written adjoint keeps beside inputs and outputs.
    """

    def register(make):
        def loss(jax, jnp, lax, size):
            function = make(jax, jnp, lax, size)
            return lambda *args: sum(jnp.sum(x * x) for x in function(*args))

        PROGRAMS.append(
            Program(
                f"{name} gradient",
                "loops",
                gradient(loss, argnums),
                inputs,
                size=size,
                quick=quick,
                targets={
                    "run": {"jax": 0.5},
                    "memory": {"hand": 2.0, "jax": None},
                    "compile": {"jax": None},
                    "warm": {"jax": None},
                },
                adjoint_bytes=lambda size: 8 * adjoint(size),
            )
        )
        return make

    return register


def triangular(n):
    """A lower triangular matrix, well conditioned, and a right-hand side."""
    rng = np.random.default_rng(51)
    lower = np.tril(rng.normal(size=(n, n)), -1) / n + np.diag(rng.uniform(1, 2, n))
    return lower, rng.normal(size=n)


@nest("triangular solve", triangular, 400, 10, lambda n: 2 * n, (0, 1))
def trisolv(jax, jnp, lax, n):
    """Forward substitution."""

    def apply(lower, b):
        def row(i, x):
            return x.at[i].set((b[i] - jnp.dot(lower[i], x)) / lower[i, i])

        return (lax.fori_loop(0, n, row, jnp.zeros(n)),)

    return apply


def positive(n):
    """A symmetric positive definite matrix."""
    a = np.random.default_rng(52).normal(size=(n, n))
    return (a @ a.T / n + np.eye(n),)


@nest("Cholesky", positive, 200, 8, lambda n: 2 * n * n)
def cholesky(jax, jnp, lax, n):
    """Column after column, in the lower triangle of one array."""
    rows = np.arange(n)

    def apply(a):
        def column(j, factor):
            v = a[:, j] - factor @ factor[j]
            return factor.at[:, j].set(jnp.where(rows >= j, v / jnp.sqrt(v[j]), 0.0))

        return (lax.fori_loop(0, n, column, jnp.zeros((n, n))),)

    return apply


def dominant(n):
    """A matrix that needs no pivoting."""
    rng = np.random.default_rng(53)
    return (rng.uniform(-1, 1, (n, n)) / n + np.diag(rng.uniform(1, 2, n)),)


@nest("LU", dominant, 150, 8, lambda n: 2 * n * n)
def lu(jax, jnp, lax, n):
    """Right-looking, both factors in one array."""
    index = np.arange(n)

    def apply(a):
        def eliminate(k, a):
            below = jnp.where(index > k, a[:, k] / a[k, k], 0.0)
            right = jnp.where(index > k, a[k], 0.0)
            a = a.at[:, k].set(jnp.where(index > k, below, a[:, k]))
            return a - below[:, None] * right[None, :]

        return (lax.fori_loop(0, n, eliminate, a),)

    return apply


@nest("LU by elements", dominant, 100, 6, lambda n: 2 * n * n)
def lu_elements(jax, jnp, lax, n):
    """Row by row, each element by a product of the row and the column before it."""
    index = np.arange(n)

    def apply(a):
        def element(i):
            def update(j, a):
                before = index < jnp.minimum(i, j)
                value = a[i, j] - jnp.dot(jnp.where(before, a[i], 0.0), a[:, j])
                return a.at[i, j].set(jnp.where(j < i, value / a[j, j], value))

            return update

        return (lax.fori_loop(0, n, lambda i, a: lax.fori_loop(0, n, element(i), a), a),)

    return apply


def tall(size):
    """A tall matrix."""
    return (np.random.default_rng(54).normal(size=size),)


@nest("Gram-Schmidt", tall, (200, 120), (8, 5), lambda s: 2 * (s[0] * s[1] + s[1] ** 2))
def gram_schmidt(jax, jnp, lax, size):
    """Modified: each new direction is taken out of all columns after it."""
    m, n = size
    index = np.arange(n)

    def apply(a):
        def direction(k, state):
            a, q, r = state
            norm = jnp.sqrt(jnp.sum(a[:, k] ** 2))
            unit = a[:, k] / norm
            share = jnp.where(index > k, unit @ a, 0.0)
            q = q.at[:, k].set(unit * (1.0 + k))
            r = r.at[k].set(share).at[k, k].set(norm)
            return a - unit[:, None] * share[None, :], q, r

        start = (a, jnp.zeros((m, n)), jnp.zeros((n, n)))
        return lax.fori_loop(0, n, direction, start)[1:]

    return apply


def autocorrelation(n):
    """A decaying sequence, whose Toeplitz matrix is positive."""
    rng = np.random.default_rng(55)
    return (0.4 * np.exp(-0.05 * np.arange(n)) * rng.uniform(-1, 1, n) / np.sqrt(n),)


@nest("Durbin", autocorrelation, 400, 10, lambda n: n * n // 2 + 2 * n)
def durbin(jax, jnp, lax, n):
    """Solves the Yule-Walker equations."""
    index = np.arange(n)

    def apply(r):
        def grow(k, state):
            y, alpha, beta = state
            beta = (1.0 - alpha * alpha) * beta
            mirror = jnp.where(index < k, jnp.take(y, k - 1 - index, mode="clip"), 0.0)
            past = jnp.where(index < k, jnp.take(r, k - 1 - index, mode="clip"), 0.0)
            alpha = -(r[k] + jnp.sum(past * y)) / beta
            return (y + alpha * mirror).at[k].set(alpha), alpha, beta

        y = jnp.zeros(n).at[0].set(-r[0])
        return (lax.fori_loop(1, n, grow, (y, -r[0], jnp.ones(()))),)[0][:1]

    return apply


def update_inputs(size):
    """C and A of C := beta C + alpha A A^T."""
    n, m = size
    rng = np.random.default_rng(56)
    return rng.normal(size=(n, n)), rng.normal(size=(n, m))


@nest(
    "symmetric rank-k, by rows", update_inputs, (150, 60), (6, 4), lambda s: 2 * s[0] ** 2, (0, 1)
)
def syrk(jax, jnp, lax, size):
    """The lower triangle, row by row and term by term."""
    n, m = size
    index = np.arange(n)

    def apply(c, a):
        def row(i, c):
            c = c.at[i].multiply(jnp.where(index <= i, 0.8, 1.0))

            def term(k, c):
                return c.at[i].add(jnp.where(index <= i, 1.2 * a[i, k] * a[:, k], 0.0))

            return lax.fori_loop(0, m, term, c)

        return (lax.fori_loop(0, n, row, c),)

    return apply


def square(size):
    """A random square."""
    n = size if isinstance(size, int) else size[0]
    return (np.random.default_rng(57).uniform(size=(n, n)),)


@nest("Gauss-Seidel sweeps", square, (150, 5), (8, 2), lambda s: 2 * s[0] ** 2)
def gauss_seidel(jax, jnp, lax, size):
    """Nine points, each cell after the ones above and to the left of it are new."""
    n, sweeps = size

    def apply(a):
        def row(i, a):
            above, old, below = a[i - 1], a[i], a[i + 1]
            fixed = above[:-2] + above[1:-1] + above[2:] + below[:-2] + below[1:-1] + below[2:]
            fixed = fixed + old[1:-1] + old[2:]

            def cell(left, f):
                value = (left + f) / 9.0
                return value, value

            _, new = lax.scan(cell, old[0], fixed)
            return a.at[i, 1:-1].set(new)

        sweep = lambda _, a: lax.fori_loop(1, n - 1, row, a)
        return (lax.fori_loop(0, sweeps, sweep, a),)

    return apply


@nest("ADI", square, (100, 8), (8, 2), lambda s: 6 * s[0] ** 2)
def adi(jax, jnp, lax, size):
    """Alternating directions, each column and row written where it is computed."""
    n, steps = size
    r = 0.4

    def sweep(u, v):
        """Implicit along the first axis of v, explicit along the second of u."""
        p = jnp.zeros(n)
        q = jnp.zeros((n, n)).at[0].set(1.0)

        def down(j, pq):
            p, q = pq
            pivot = 1.0 / (1.0 + 2.0 * r - r * p[j - 1])
            right = r * u[:-2, j] + (1.0 - 2.0 * r) * u[1:-1, j] + r * u[2:, j]
            return (
                p.at[j].set(r * pivot),
                q.at[j, 1:-1].set((right + r * q[j - 1, 1:-1]) * pivot),
            )

        def up(k, v):
            j = n - 2 - k
            return v.at[j, 1:-1].set(p[j] * v[j + 1, 1:-1] + q[j, 1:-1])

        p, q = lax.fori_loop(1, n - 1, down, (p, q))
        v = v.at[n - 1].set(1.0)
        return lax.fori_loop(0, n - 2, up, v)

    def apply(u):
        def step(_, u):
            v = sweep(u, jnp.zeros_like(u))
            return sweep(v, u)

        return (lax.fori_loop(0, steps, step, u),)

    return apply


def cube(size):
    """A random cube."""
    n = size[0]
    return (np.random.default_rng(58).uniform(size=(n, n, n)),)


@nest("heat 3-D", cube, (40, 20), (6, 3), lambda s: 2 * s[0] ** 3)
def heat_3d(jax, jnp, lax, size):
    """Two arrays in turn, the inside of each from the other."""
    _, steps = size
    m = slice(1, -1)

    def advanced(u):
        c = 2.0 * u[m, m, m]
        bend = (u[2:, m, m] - c + u[:-2, m, m]) + (u[m, 2:, m] - c + u[m, :-2, m])
        bend = bend + u[m, m, 2:] - c + u[m, m, :-2]
        return u[m, m, m] + 0.125 * bend

    def apply(a):
        def step(_, ab):
            a, b = ab
            b = b.at[m, m, m].set(advanced(a))
            return a.at[m, m, m].set(advanced(b)), b

        return lax.fori_loop(0, steps, step, (a, a))

    return apply
