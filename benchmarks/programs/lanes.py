"""Loops under vmap that each lane runs to an end of its own."""

from __future__ import annotations

import numpy as np
from program import Program

END, TOLERANCE = 20.0, 1e-6


def mandelbrot(jax, jnp, lax, size):
    """Rounds until a point of the plane escapes, 500 at most; their mean, for rounding decides some."""

    def pixel(a, b):
        def step(s):
            x, y, k = s
            return x * x - y * y + a, 2 * x * y + b, k + 1

        near = lambda s: (s[0] * s[0] + s[1] * s[1] < 4) & (s[2] < 500)
        return lax.while_loop(near, step, (0.0, 0.0, 0))[2]

    return lambda a, b: jnp.mean(jax.vmap(jax.vmap(pixel))(a, b))


def plane(size):
    y, x = np.mgrid[-1.25 : 1.25 : size * 1j, -2 : 0.5 : size * 1j]
    return x, y


def numba_mandelbrot(size):
    import numba

    @numba.njit
    def rounds(a, b):
        total = 0
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                x = y = 0.0
                k = 0
                while x * x + y * y < 4 and k < 500:
                    x, y, k = x * x - y * y + a[i, j], 2 * x * y + b[i, j], k + 1
                total += k
        return total / a.size

    return rounds


def van_der_pol(jax, jnp, lax, size):
    """Oscillators of different stiffness, by Heun and Euler steps with error control."""

    def lane(mu):
        slope = lambda y: jnp.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])

        def step(s):
            t, y, h = s
            h = jnp.minimum(h, END - t)
            k1 = slope(y)
            k2 = slope(y + h * k1)
            wrong = 0.5 * h * jnp.max(jnp.abs(k2 - k1) / (1e-3 + jnp.abs(y))) / TOLERANCE**0.5
            good = wrong <= 1
            grown = h * jnp.clip(0.9 / jnp.sqrt(wrong + 1e-30), 0.2, 5.0)
            new = y + 0.5 * h * (k1 + k2)
            return jnp.where(good, t + h, t), jnp.where(good, new, y), grown

        start = 0.0, jnp.array([2.0, 0.0]), 1e-3
        return lax.while_loop(lambda s: s[0] < END, step, start)[1]

    return jax.vmap(lane)


def stiffness(size):
    return (np.geomspace(0.1, 100.0, size),)


def numba_van_der_pol(size):
    import numba

    @numba.njit
    def ends(mus):
        out = np.empty((len(mus), 2))
        for i in range(len(mus)):
            mu, t, x, v, h = mus[i], 0.0, 2.0, 0.0, 1e-3
            while t < END:
                h = min(h, END - t)
                p, q = v, mu * (1 - x * x) * v - x
                x2, v2 = x + h * p, v + h * q
                r, s = v2, mu * (1 - x2 * x2) * v2 - x2
                one, two = abs(r - p) / (1e-3 + abs(x)), abs(s - q) / (1e-3 + abs(v))
                wrong = 0.5 * h * max(one, two) / TOLERANCE**0.5
                if wrong <= 1:
                    t, x, v = t + h, x + 0.5 * h * (p + r), v + 0.5 * h * (q + s)
                h *= min(max(0.9 / np.sqrt(wrong + 1e-30), 0.2), 5.0)
            out[i, 0], out[i, 1] = x, v
        return out

    return ends


def kepler(jax, jnp, lax, size):
    """Kepler's equation by Newton's method."""

    def lane(mean, e):
        def step(s):
            x, _ = s
            d = (x - e * jnp.sin(x) - mean) / (1 - e * jnp.cos(x))
            return x - d, d

        return lax.while_loop(lambda s: jnp.abs(s[1]) > 1e-12, step, (mean + e, 1.0))[0]

    return jax.vmap(lane)


def orbits(size):
    rng = np.random.default_rng(5)
    return rng.uniform(0, np.pi, size), rng.uniform(0, 0.95, size)


def numba_kepler(size):
    import numba

    @numba.njit
    def roots(means, es):
        out = np.empty_like(means)
        for i in range(len(means)):
            x, d = means[i] + es[i], 1.0
            while abs(d) > 1e-12:
                d = (x - es[i] * np.sin(x) - means[i]) / (1 - es[i] * np.cos(x))
                x -= d
            out[i] = x
        return out

    return roots


TARGETS = {"run": {"jax": 0.8, "numba": 1.3}, "compile": {"jax": None}}
PROGRAMS = [
    Program(
        "mandelbrot in lanes",
        "lanes",
        mandelbrot,
        plane,
        size=300,
        quick=20,
        targets=TARGETS,
        rivals={"numba": numba_mandelbrot},
        tolerance=1e-2,
    ),
    *[
        Program(
            f"{count} oscillators with adaptive steps",
            "lanes",
            van_der_pol,
            stiffness,
            size=count,
            quick=8,
            targets=TARGETS,
            rivals={"numba": numba_van_der_pol},
            tolerance=1e-3,
        )
        for count in (8, 100, 10_000)
    ],
    Program(
        "kepler's equation in lanes",
        "lanes",
        kepler,
        orbits,
        size=10_000,
        quick=10,
        targets=TARGETS,
        rivals={"numba": numba_kepler},
        tolerance=1e-9,
    ),
]
