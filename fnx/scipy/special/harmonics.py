"""Spherical harmonics."""

from typing import Any

import numpy as np

from fnx.control_flow import fori_loop
from fnx.core.array import Array
from fnx.core.errors import ConcretizationTypeError, InvalidValue
from fnx.core.interpreter import Tracer
from fnx.numpy.arrays.creation import zeros_like
from fnx.numpy.arrays.util import promote_inexact, to_arrays
from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.structure.selection import where
from fnx.ops.elementwise import arithmetic as ops


def sph_harm_y(
    n: Any, m: Any, theta: Any, phi: Any, diff_n: Any = None, n_max: int | None = None
) -> Array:
    """The spherical harmonic of degree n and order m at polar angle theta and azimuth phi.

    Arguments broadcast. `n_max` is the largest degree, which compiled functions have to be told.

    TypeError for traced degrees without `n_max`; NotImplementedError for `diff_n`.

    >>> y00 = fnx.scipy.special.sph_harm_y(jnp.array([0]), jnp.array([0]), 0.5, 1.0, n_max=0)
    >>> bool(jnp.allclose(y00, 0.5 / jnp.sqrt(jnp.pi)))
    True
    """
    if diff_n is not None:
        raise NotImplementedError("sph_harm_y has no diff_n; differentiate it with fnx.grad")
    n, m = to_arrays("sph_harm_y", n, m)
    theta, phi = promote_inexact("sph_harm_y", theta, phi)
    if n_max is None:
        if isinstance(n, Tracer):
            raise ConcretizationTypeError(
                "sph_harm_y of traced degrees n; pass the largest of them as n_max"
            )
        n_max = int(np.max(np.asarray(n), initial=0))
    if n_max < 0:
        raise InvalidValue(f"sph_harm_y with n_max={n_max}; expected at least 0")
    order, degree = u.abs(m), u.minimum(n, n_max)
    value = _legendre(degree, order, theta, n_max)
    value = where((m < 0) & (order % 2 == 1), -value, value)
    turn = m.astype(value.dtype) * phi
    return ops.complex_(value * u.cos(turn), value * u.sin(turn))


def _legendre(n: Array, m: Array, theta: Array, n_max: int) -> Array:
    """Legendre functions of cos(theta), normalised on the sphere, for m >= 0; 0 where m > n."""
    x, y = u.cos(theta), u.sin(theta)
    y = where(y < 0, -y, y)  # as SciPy has them where theta is no polar angle
    n, m = n.astype(float), m.astype(float)
    start = zeros_like(x + n.astype(x.dtype) + m.astype(x.dtype)) + np.sqrt(0.25 / np.pi).astype(
        x.dtype
    )

    def diagonal(k: Any, p: Array) -> Array:
        """From degree and order k to k + 1, up to m."""
        k = k.astype(float)
        return where(k < m, -u.sqrt((2.0 * k + 3.0) / (2.0 * k + 2.0)).astype(x.dtype) * y * p, p)

    def next_degree(k: Any, state: tuple) -> tuple:
        """From degree k to k + 1, up to n."""
        k = k.astype(float)
        p, before = state
        a = u.sqrt((4.0 * (k + 1.0) ** 2 - 1.0) / u.maximum((k + 1) ** 2 - m**2, 1))
        b = u.sqrt(u.maximum(k**2 - m**2, 0) / u.maximum(4.0 * k**2 - 1.0, 1.0))
        new = a.astype(x.dtype) * (x * p - b.astype(x.dtype) * before)
        rises = (k >= m) & (k < n)
        return where(rises, new, p), where(rises, p, before)

    p = fori_loop(0, n_max, diagonal, start)
    p, _ = fori_loop(0, n_max, next_degree, (p, zeros_like(p)))
    return where(m <= n, p, 0)


__all__ = ["sph_harm_y"]
