"""The normal distribution function, its logarithm and inverse; error functions."""

import math

import numpy as np

from fnx.core import dtypes
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.numpy.arrays.util import fit, promote_inexact, strong
from fnx.numpy.elementwise import ufuncs as u
from fnx.ops.elementwise import integrals
from fnx.ops.elementwise import special as prims


def _float(name, x):
    (x,) = promote_inexact(name, x)
    u.without_complex(name, x)
    return x


def erf(x):
    """The error function.

    >>> fnx.scipy.special.erf(0.0)
    Array(0., dtype=float64, weak_type=True)
    """
    return prims.erf(_float("erf", x))


def erfc(x):
    """1 - erf(x), without cancellation.

    >>> fnx.scipy.special.erfc(jnp.array([0.0, 10.0]))
    Array([1.00000000e+00, 2.08848758e-45], dtype=float64)
    """
    return prims.erfc(_float("erfc", x))


def erfinv(x):
    """The inverse of `erf`.

    >>> fnx.scipy.special.erfinv(fnx.scipy.special.erf(jnp.array([0.25, 1.0])))
    Array([0.25, 1.  ], dtype=float64)
    """
    return prims.erf_inv(_float("erfinv", x))


def erfcx(x):
    """exp(x**2) erfc(x), without overflow; of complex numbers, too.

    >>> fnx.scipy.special.erfcx(jnp.array([0.0, 1000.0]))
    Array([1.00000000e+00, 5.64189301e-04], dtype=float64)
    """
    (x,) = promote_inexact("erfcx", x)
    return integrals.erfcx(strong(x)) if dtypes.is_float(x.dtype) else wofz(1j * x)


def dawsn(x):
    """Dawson's integral: exp(-x**2) times the integral of exp(t**2) from 0 to x.

    >>> fnx.scipy.special.dawsn(jnp.array([0.0, 1.0]))
    Array([0.        , 0.53807951], dtype=float64)
    """
    return integrals.dawsn(*map(strong, promote_inexact("dawsn", x)))


def wofz(z):
    """The Faddeeva function: exp(-z**2) erfc(-iz).

    >>> fnx.scipy.special.wofz(jnp.array([1j])).real
    Array([0.42758358], dtype=float64)
    """
    (z,) = promote_inexact("wofz", z)
    return integrals.wofz(z.astype(dtypes.complex_of(z.dtype)))


def owens_t(h, a):
    """Owen's T function: the probability of X > h and 0 < Y < a X for standard normal X, Y.

    >>> fnx.scipy.special.owens_t(0.0, jnp.array([1.0]))
    Array([0.125], dtype=float64)
    """
    return integrals.owens_t(*map(strong, fit("owens_t", promote_inexact("owens_t", h, a))))


def ndtr(x):
    """The standard normal distribution function.

    >>> fnx.scipy.special.ndtr(0.0)
    Array(0.5, dtype=float64)
    """
    return 0.5 * prims.erfc(strong(_float("ndtr", x)) * -math.sqrt(0.5))


def ndtri(p):
    """The inverse of `ndtr`: the quantiles of the standard normal distribution.

    >>> fnx.scipy.special.ndtri(jnp.array([0.5, 0.975]))
    Array([0.        , 1.95996398], dtype=float64)
    """
    return integrals.ndtri(strong(_float("ndtri", p)))


def log_ndtr(x, series_order=3):
    """The logarithm of `ndtr`; far to the left by an asymptotic series of `series_order` terms.

    TypeError for dtypes other than float32 and float64; ValueError for an order above 30.

    >>> fnx.scipy.special.log_ndtr(jnp.array([0.0, -50.0]))
    Array([-6.93147181e-01, -1.25483136e+03], dtype=float64)
    """
    if not isinstance(series_order, int):
        raise TypeMismatch(f"log_ndtr with series_order={series_order!r}; expected an integer")
    if not 0 <= series_order <= 30:
        raise InvalidValue(f"log_ndtr with series_order={series_order}; expected 0 to 30")
    x = strong(_float("log_ndtr", x))
    if x.dtype not in (np.float32, np.float64):
        raise TypeMismatch(f"log_ndtr of dtype {x.dtype}; expected float32 or float64")
    low, high = (-20.0, 8.0) if x.dtype == np.float64 else (-10.0, 5.0)
    left, right = x <= low, x > high
    middle = u.where3(left, low, u.where3(right, high, x))
    found = u.where3(right, -ndtr(-u.where3(right, x, high)), u.log(ndtr(middle)))
    return u.where3(left, _log_ndtr_far_left(u.where3(left, x, low), series_order), found)


def _log_ndtr_far_left(x, order):
    """-x^2/2 - log(-x) - log(2 pi)/2 + log(1 - 1/x^2 + 3/x^4 - ...), DLMF 7.12.1."""
    total, coefficient = 1.0, 1.0
    inverse = 1.0 / u.square(x)
    power = inverse
    for n in range(1, order + 1):
        coefficient *= -(2 * n - 1)
        total = total + coefficient * power
        power = power * inverse
    return -0.5 * u.square(x) - u.log(-x) - 0.5 * math.log(2 * math.pi) + u.log(total)


__all__ = [
    "dawsn",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "log_ndtr",
    "ndtr",
    "ndtri",
    "owens_t",
    "wofz",
]
