"""Fourier transforms: alone, inside pseudo-spectral solvers, and in a particle-in-cell code."""

from __future__ import annotations

import numpy as np
from program import Program

TARGETS = {"run": {"jax": 1.0}, "compile": {"jax": None}, "warm": {"jax": None}}


def korteweg_de_vries(jax, jnp, lax, size):
    """u' = -6 u u_x - u_xxx by RK4, derivatives in Fourier space."""
    n, steps = size
    k = np.fft.rfftfreq(n, 1 / n)
    first, third, dt = 1j * k, (1j * k) ** 3, 0.1 / n**3

    def slope(u):
        v = jnp.fft.rfft(u)
        return -6 * u * jnp.fft.irfft(first * v, n) - jnp.fft.irfft(third * v, n)

    def step(u, _):
        a = slope(u)
        b = slope(u + dt / 2 * a)
        c = slope(u + dt / 2 * b)
        d = slope(u + dt * c)
        return u + dt / 6 * (a + 2 * b + 2 * c + d), None

    return lambda u: lax.scan(step, u, None, length=steps)[0]


def energy_gradient(jax, jnp, lax, size):
    """How the energy of the final wave depends on the first one."""
    solve = korteweg_de_vries(jax, jnp, lax, size)
    return jax.grad(lambda u: jnp.sum(solve(u) ** 2))


def wave(size):
    x = 2 * np.pi * np.arange(size[0]) / size[0]
    return (np.cos(x) + 0.1 * np.sin(3 * x),)


def navier_stokes(jax, jnp, lax, size):
    """Vorticity in two dimensions: advection in space, diffusion in Fourier space, 2/3 dealiased."""
    n, steps = size
    kx, ky = np.meshgrid(np.fft.fftfreq(n, 1 / n), np.fft.rfftfreq(n, 1 / n), indexing="ij")
    square = kx**2 + ky**2
    inverse = 1 / np.where(square == 0, 1, square)
    mask = (np.abs(kx) < n / 3) * (ky < n / 3)
    dt, viscosity = 1e-3, 1e-3

    def step(w, _):
        psi = w * inverse
        u, v = jnp.fft.irfft2(1j * ky * psi, (n, n)), jnp.fft.irfft2(-1j * kx * psi, (n, n))
        wx, wy = jnp.fft.irfft2(1j * kx * w, (n, n)), jnp.fft.irfft2(1j * ky * w, (n, n))
        advection = jnp.fft.rfft2(u * wx + v * wy) * mask
        return (w - dt * advection) / (1 + viscosity * dt * square), None

    return lambda w: lax.scan(step, w, None, length=steps)[0]


def vorticity(size):
    n = size[0]
    return (np.fft.rfft2(np.random.default_rng(3).normal(size=(n, n))),)


def particle_in_cell(jax, jnp, lax, size):
    """Electrons in one dimension: charge to the grid, Poisson's equation, field to the particles."""
    count, cells, steps = size
    length = 2 * np.pi
    k = np.fft.rfftfreq(cells, 1 / cells)
    inverse = np.where(k == 0, 0, 1 / np.where(k == 0, 1, k))
    dx, dt = length / cells, 0.05

    def step(state, _):
        x, v = state
        place = x / dx
        left = jnp.floor(place).astype(jnp.int32)
        weight = place - left
        here, there = left % cells, (left + 1) % cells
        charge = jnp.zeros(cells).at[here].add(1 - weight).at[there].add(weight)
        field = jnp.fft.irfft(-1j * inverse * jnp.fft.rfft(charge * (cells / count)), cells)
        v = v - dt * (field[here] * (1 - weight) + field[there] * weight)
        return ((x + dt * v) % length, v), jnp.sum(field**2)

    return lambda x, v: lax.scan(step, (x, v), None, length=steps)[1]


def electrons(size):
    rng = np.random.default_rng(4)
    return rng.uniform(0, 2 * np.pi, size[0]), 0.1 * rng.normal(size=size[0])


def transform(name, shape, kind="fft", dtype=np.complex128, quick=None):
    """A transform alone."""

    def inputs(size):
        rng = np.random.default_rng(9)
        x = rng.normal(size=size)
        return ((x if kind.startswith("r") else x + 1j * rng.normal(size=size)).astype(dtype),)

    return Program(
        name,
        "spectral",
        lambda jax, jnp, lax, size: getattr(jnp.fft, kind),
        inputs,
        size=shape,
        quick=quick or tuple(min(n, 30) for n in shape),
        targets={"run": {"jax": 1.0}},
        tolerance=1e-5 if np.dtype(dtype).itemsize <= 8 and dtype != np.float64 else 1e-12,
    )


PROGRAMS = [
    Program("KdV", "spectral", korteweg_de_vries, wave, (256, 400), (16, 3), TARGETS),
    Program("KdV gradient", "spectral", energy_gradient, wave, (256, 400), (16, 3), TARGETS),
    Program(
        "Navier-Stokes 2-D",
        "spectral",
        navier_stokes,
        vorticity,
        (128, 20),
        (16, 2),
        TARGETS,
        tolerance=1e-10,
    ),
    Program(
        "particle in cell",
        "spectral",
        particle_in_cell,
        electrons,
        (20_000, 128, 50),
        (100, 16, 3),
        TARGETS,
    ),
    transform("fft of 1024 rows of 16", (1024, 16)),
    transform("fft of 256 rows of 256", (256, 256)),
    transform("fft of 256 rows of 256, complex64", (256, 256), dtype=np.complex64),
    transform("fft of 100 rows of 375", (100, 375)),
    transform("fft of 2^20", (1 << 20,)),
    transform("fft of 10007, a prime", (10007,)),
    transform("rfft of 2^20", (1 << 20,), "rfft", np.float64),
    transform("fft2 of 512 x 512", (512, 512), "fft2"),
    transform("rfft2 of 600 x 600", (600, 600), "rfft2", np.float64),
    transform("fftn of 64 x 64 x 64", (64, 64, 64), "fftn"),
]
