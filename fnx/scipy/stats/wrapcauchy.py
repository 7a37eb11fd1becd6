"""The wrapped Cauchy distribution."""

import math

from fnx.numpy.elementwise import ufuncs as u
from fnx.scipy.stats.common import floats, inside


def logpdf(x, c):
    """The logarithm of the density; -inf outside [0, 2 pi], nan unless 0 < c < 1.

    >>> fnx.scipy.stats.wrapcauchy.logpdf(jnp.array([0.0, jnp.pi]), 0.5)
    Array([-0.73926478, -2.93648936], dtype=float64)
    """
    x, c = floats("wrapcauchy.logpdf", x, c)
    found = u.log1p(-u.square(c)) - math.log(2 * math.pi)
    found = found - u.log1p(u.square(c) - 2 * c * u.cos(x))
    found = inside(u.logical_and(x >= 0, x <= 2 * math.pi), found, x)
    return u.where3(u.logical_and(c > 0, c < 1), found, math.nan)


def pdf(x, c):
    """The density.

    >>> fnx.scipy.stats.wrapcauchy.pdf(jnp.array([0.0, jnp.pi]), 0.5)
    Array([0.47746483, 0.05305165], dtype=float64)
    """
    return u.exp(logpdf(x, c))
