"""The beta distribution."""

import math

from fnx.numpy.elementwise import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats.common import floats, inside


def logpdf(x, a, b, loc=0, scale=1):
    """The logarithm of the density.

    >>> fnx.scipy.stats.beta.logpdf(jnp.array([0.25]), 2.0, 1.0)
    Array([-0.69314718], dtype=float64)
    """
    x, a, b, loc, scale = floats("beta.logpdf", x, a, b, loc, scale)
    y = (x - loc) / scale
    body = special.xlogy(a - 1, y) + special.xlog1py(b - 1, -y)
    found = inside(u.logical_and(y >= 0, y <= 1), body - special.betaln(a, b) - u.log(scale), y)
    return u.where3(u.logical_and(u.logical_and(a > 0, b > 0), scale > 0), found, math.nan)


def pdf(x, a, b, loc=0, scale=1):
    """The density.

    >>> fnx.scipy.stats.beta.pdf(jnp.array([0.25, 0.5]), 2.0, 1.0)
    Array([0.5, 1. ], dtype=float64)
    """
    return u.exp(logpdf(x, a, b, loc, scale))


def cdf(x, a, b, loc=0, scale=1):
    """The distribution function.

    >>> fnx.scipy.stats.beta.cdf(jnp.array([0.25, 0.5]), 2.0, 1.0)
    Array([0.0625, 0.25  ], dtype=float64)
    """
    x, a, b, loc, scale = floats("beta.cdf", x, a, b, loc, scale)
    return special.betainc(a, b, u.clip((x - loc) / scale, 0.0, 1.0))


def logcdf(x, a, b, loc=0, scale=1):
    """The logarithm of the distribution function.

    >>> fnx.scipy.stats.beta.logcdf(jnp.array([0.25, 0.5]), 2.0, 1.0)
    Array([-2.77258872, -1.38629436], dtype=float64)
    """
    return u.log(cdf(x, a, b, loc, scale))


def sf(x, a, b, loc=0, scale=1):
    """1 - cdf, without cancellation.

    >>> fnx.scipy.stats.beta.sf(jnp.array([0.25, 0.5]), 2.0, 1.0)
    Array([0.9375, 0.75  ], dtype=float64)
    """
    x, a, b, loc, scale = floats("beta.sf", x, a, b, loc, scale)
    return special.betainc(b, a, 1 - u.clip((x - loc) / scale, 0.0, 1.0))


def logsf(x, a, b, loc=0, scale=1):
    """The logarithm of 1 - cdf.

    >>> fnx.scipy.stats.beta.logsf(jnp.array([0.25, 0.5]), 2.0, 1.0)
    Array([-0.06453852, -0.28768207], dtype=float64)
    """
    return u.log(sf(x, a, b, loc, scale))
