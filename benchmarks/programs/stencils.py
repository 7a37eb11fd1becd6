"""Kernels in the manner of ocean models: an equation of state, isoneutral mixing, vertical mixing."""

from __future__ import annotations

import numpy as np
from measure import fastest
from program import Program

GRIDS = {"4 k": (16, 16, 16), "64 k": (40, 40, 40), "1 M": (100, 100, 100)}
QUICK = (10, 9, 8)
DEGREE = 5
SLOPE_LIMIT, SLOPE_WIDTH = 0.02, 0.004
EXPANSION, CONTRACTION, MIXING = -0.2, 0.8, 1e3
SPACING, HEIGHT, STEP = 1e4, 50.0, 1e3


def coefficients() -> np.ndarray:
    """Coefficients of s^i t^j p^k for i + j + k <= 5, 56 of them, falling with the degree."""
    rng = np.random.default_rng(5)
    c = rng.normal(size=(DEGREE + 1,) * 3)
    for index in np.ndindex(c.shape):
        c[index] *= 0.3 ** sum(index) if sum(index) <= DEGREE else 0.0
    return c


def nested(term):
    """The polynomial as nested products; `term(k)` names the variables, `c` is rounded to print."""
    c = coefficients()
    s, t, p = term

    def inner(i, j):
        value = float(c[i, j, DEGREE - i - j])
        for k in range(DEGREE - i - j - 1, -1, -1):
            value = value * p + float(c[i, j, k])
        return value

    def middle(i):
        value = inner(i, DEGREE - i)
        for j in range(DEGREE - i - 1, -1, -1):
            value = value * t + inner(i, j)
        return value

    value = middle(DEGREE)
    for i in range(DEGREE - 1, -1, -1):
        value = value * s + middle(i)
    return value


def density(jax, jnp, lax, grid):
    """Density anomaly from temperature, salinity and pressure."""

    def apply(temperature, salinity, pressure):
        s = jnp.sqrt((salinity + 24.0) * 0.0125)
        return nested((s, temperature * 0.025, pressure * 1e-4))

    return apply


def ocean(grid):
    """Temperature, salinity, pressure."""
    rng = np.random.default_rng(7)
    return rng.uniform(0, 30, grid), rng.uniform(30, 38, grid), rng.uniform(0, 6e3, grid)


class Text(str):
    """An expression as text, so that the polynomial prints itself as the source of a Numba loop."""

    def __add__(self, other):
        return Text(f"({self} + {other!r})" if isinstance(other, float) else f"({self} + {other})")

    def __mul__(self, other):
        return Text(f"({self} * {other})")

    def __rmul__(self, other):
        return Text(f"({other!r} * {self})")


def serial_or_parallel(build):
    """A rival from `build(decorator, grid)`: where there are threads, the better of one and several."""

    def rival(grid):
        import numba

        kinds = [False, True] if numba.get_num_threads() > 1 else [False]
        return fastest(
            [build(numba.njit(parallel=kind, error_model="numpy"), grid) for kind in kinds]
        )

    return rival


@serial_or_parallel
def numba_density(compiled, grid):
    """One loop over all points."""
    import numba

    source = f"def point(s, t, p):\n    return {nested((Text('s'), Text('t'), Text('p')))}\n"
    scope: dict = {}
    exec(source, scope)
    point = numba.njit(scope["point"])

    @compiled
    def loop(temperature, salinity, pressure, out):
        for k in numba.prange(out.size):
            s = np.sqrt((salinity[k] + 24.0) * 0.0125)
            out[k] = point(s, temperature[k] * 0.025, pressure[k] * 1e-4)

    def apply(temperature, salinity, pressure):
        out = np.empty_like(temperature)
        loop(temperature.ravel(), salinity.ravel(), pressure.ravel(), out.ravel())
        return out

    return apply


def isoneutral(jax, jnp, lax, grid):
    """A step of mixing along density surfaces: slopes at triads, a tapered tensor, fluxes."""
    nx, ny, nz = grid
    mid = slice(1, -1)

    def along(axis, temperature, salinity, rho_z, temp_z):
        """Flux through the faces of one axis, and its share of the vertical diffusivity."""
        ahead = [slice(None)] * 3
        behind = [slice(None)] * 3
        ahead[axis], behind[axis] = slice(1, None), slice(None, -1)
        temp_h = (temperature[tuple(ahead)] - temperature[tuple(behind)]) / SPACING
        salt_h = (salinity[tuple(ahead)] - salinity[tuple(behind)]) / SPACING
        rho_h = EXPANSION * temp_h + CONTRACTION * salt_h
        flux = jnp.zeros_like(temp_h)
        vertical = jnp.zeros((nx, ny, nz - 1))
        for side in (behind, ahead):
            for layer in (0, 1):
                cells = (*side[:2], slice(layer, nz - 2 + layer))
                slope = -rho_h[:, :, mid] / jnp.minimum(rho_z[cells], -1e-7)
                taper = 0.5 * (1.0 + jnp.tanh((SLOPE_LIMIT - jnp.abs(slope)) / SLOPE_WIDTH))
                share = 0.25 * MIXING * taper
                flux = flux.at[:, :, mid].add(share * (temp_h[:, :, mid] - slope * temp_z[cells]))
                vertical = vertical.at[cells].add(share * slope * slope)
        return flux, vertical

    def apply(temperature, salinity):
        temp_z = (temperature[:, :, 1:] - temperature[:, :, :-1]) / HEIGHT
        salt_z = (salinity[:, :, 1:] - salinity[:, :, :-1]) / HEIGHT
        rho_z = EXPANSION * temp_z + CONTRACTION * salt_z
        flux_x, k_x = along(0, temperature, salinity, rho_z, temp_z)
        flux_y, k_y = along(1, temperature, salinity, rho_z, temp_z)
        k33 = k_x + k_y
        change = jnp.zeros_like(temperature)
        change = change.at[:-1].add(flux_x / SPACING)
        change = change.at[1:].add(-flux_x / SPACING)
        change = change.at[:, :-1].add(flux_y / SPACING)
        change = change.at[:, 1:].add(-flux_y / SPACING)
        return temperature + STEP * change, k33

    return apply


def stratified(grid):
    """Temperature and salinity, density falling upwards at most points."""
    rng = np.random.default_rng(8)
    depth = np.linspace(0, 1, grid[2])
    temperature = 5.0 + 15.0 * depth + 0.5 * rng.normal(size=grid)
    return temperature, 35.0 + 0.2 * rng.normal(size=grid)


@serial_or_parallel
def numba_isoneutral(compiled, grid):
    """Loops over columns, one axis after the other."""
    import numba

    nx, ny, nz = grid

    @numba.njit(error_model="numpy")
    def column(t0, t1, s0, s1, k0, k1, c0, c1):
        """Mixing between two neighbouring columns, added to their diffusivities and changes."""
        for k in range(1, nz - 1):
            th = (t1[k] - t0[k]) / SPACING
            rh = EXPANSION * th + CONTRACTION * (s1[k] - s0[k]) / SPACING
            flux = 0.0
            for layer in range(2):
                m = k - 1 + layer
                tz = (t0[m + 1] - t0[m]) / HEIGHT
                rz = EXPANSION * tz + CONTRACTION * (s0[m + 1] - s0[m]) / HEIGHT
                slope = -rh / min(rz, -1e-7)
                taper = 0.5 * (1.0 + np.tanh((SLOPE_LIMIT - abs(slope)) / SLOPE_WIDTH))
                share = 0.25 * MIXING * taper
                flux += share * (th - slope * tz)
                k0[m] += share * slope * slope
                tz = (t1[m + 1] - t1[m]) / HEIGHT
                rz = EXPANSION * tz + CONTRACTION * (s1[m + 1] - s1[m]) / HEIGHT
                slope = -rh / min(rz, -1e-7)
                taper = 0.5 * (1.0 + np.tanh((SLOPE_LIMIT - abs(slope)) / SLOPE_WIDTH))
                share = 0.25 * MIXING * taper
                flux += share * (th - slope * tz)
                k1[m] += share * slope * slope
            c0[k] += STEP * flux / SPACING
            c1[k] -= STEP * flux / SPACING

    @compiled
    def apply(t, s):
        k33 = np.zeros((nx, ny, nz - 1))
        new = t.copy()
        for j in numba.prange(ny):
            for i in range(nx - 1):
                column(
                    t[i, j], t[i + 1, j], s[i, j], s[i + 1, j],
                    k33[i, j], k33[i + 1, j], new[i, j], new[i + 1, j],
                )  # fmt: skip
        for i in numba.prange(nx):
            for j in range(ny - 1):
                column(
                    t[i, j], t[i, j + 1], s[i, j], s[i, j + 1],
                    k33[i, j], k33[i, j + 1], new[i, j], new[i, j + 1],
                )  # fmt: skip
        return new, k33

    return apply


def vertical_mixing(jax, jnp, lax, grid):
    """An implicit step of vertical diffusion: one tridiagonal system for each column, by scans."""

    def apply(field, diffusivity):
        exchange = STEP / HEIGHT**2 * jnp.moveaxis(diffusivity, 2, 0)
        right = jnp.moveaxis(field, 2, 0)
        edge = jnp.zeros_like(right[:1])
        below = jnp.concatenate([edge, exchange])
        above = jnp.concatenate([exchange, edge])

        def eliminate(carry, level):
            ratio, value = carry
            a, c, d = level
            pivot = 1.0 / (1.0 + a + c - a * ratio)
            carry = (c * pivot, (d + a * value) * pivot)
            return carry, carry

        def substitute(x, level):
            ratio, value = level
            x = value + ratio * x
            return x, x

        start = (jnp.zeros_like(right[0]), jnp.zeros_like(right[0]))
        _, swept = lax.scan(eliminate, start, (below, above, right))
        _, solution = lax.scan(substitute, jnp.zeros_like(right[0]), swept, reverse=True)
        return jnp.moveaxis(solution, 0, 2)

    return apply


def mixed_layer(grid):
    """A field, and diffusivities at the faces between its levels."""
    rng = np.random.default_rng(9)
    nx, ny, nz = grid
    return rng.normal(size=grid), 10.0 ** rng.uniform(-3, 1, (nx, ny, nz - 1))


@serial_or_parallel
def numba_vertical_mixing(compiled, grid):
    """Column by column, its two sweeps in cache."""
    import numba

    nx, ny, nz = grid

    @compiled
    def apply(field, diffusivity):
        out = np.empty_like(field)
        for i in numba.prange(nx):
            ratio = np.empty(nz)
            for j in range(ny):
                d, e, x = field[i, j], diffusivity[i, j], out[i, j]
                last, value = 0.0, 0.0
                for k in range(nz):
                    a = STEP / HEIGHT**2 * e[k - 1] if k > 0 else 0.0
                    c = STEP / HEIGHT**2 * e[k] if k < nz - 1 else 0.0
                    pivot = 1.0 / (1.0 + a + c - a * last)
                    last, value = c * pivot, (d[k] + a * value) * pivot
                    ratio[k] = last
                    x[k] = value
                for k in range(nz - 2, -1, -1):
                    x[k] += ratio[k] * x[k + 1]
        return out

    return apply


def programs():
    """Each kernel on each grid; compile time is asked on one of them."""
    kernels = [
        ("equation of state", density, ocean, numba_density),
        ("isoneutral mixing", isoneutral, stratified, numba_isoneutral),
        ("implicit vertical mixing", vertical_mixing, mixed_layer, numba_vertical_mixing),
    ]
    for name, make, inputs, rival in kernels:
        for label, grid in GRIDS.items():
            targets = {"run": {"jax": 0.8, "numba": 1.1}}
            if label == "64 k":
                targets |= {"compile": {"jax": None}, "warm": {"jax": None}}
            yield Program(
                f"{name}, {label} points",
                "stencils",
                make,
                inputs,
                size=grid,
                quick=QUICK,
                targets=targets,
                rivals={"numba": rival},
            )


PROGRAMS = list(programs())
