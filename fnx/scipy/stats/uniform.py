"""The uniform distribution on [loc, loc + scale]."""

import math

from fnx.numpy.elementwise import ufuncs as u
from fnx.scipy.stats.common import floats, inside


def logpdf(x, loc=0, scale=1):
    """The logarithm of the density.

    >>> fnx.scipy.stats.uniform.logpdf(jnp.array([1.0, 3.0]), 0.0, 2.0)
    Array([-0.69314718,        -inf], dtype=float64)
    """
    x, loc, scale = floats("uniform.logpdf", x, loc, scale)
    return inside(u.logical_and(x >= loc, x <= loc + scale), -u.log(scale), x)


def pdf(x, loc=0, scale=1):
    """The density.

    >>> fnx.scipy.stats.uniform.pdf(jnp.array([1.0, 3.0]), 0.0, 2.0)
    Array([0.5, 0. ], dtype=float64)
    """
    return u.exp(logpdf(x, loc, scale))


def cdf(x, loc=0, scale=1):
    """The distribution function.

    >>> fnx.scipy.stats.uniform.cdf(jnp.array([1.0, 3.0]), 0.0, 2.0)
    Array([0.5, 1. ], dtype=float64)
    """
    x, loc, scale = floats("uniform.cdf", x, loc, scale)
    return u.clip((x - loc) / scale, 0.0, 1.0)


def ppf(q, loc=0, scale=1):
    """The quantiles, the inverse of cdf.

    >>> fnx.scipy.stats.uniform.ppf(jnp.array([0.25]), 0.0, 2.0)
    Array([0.5], dtype=float64)
    """
    q, loc, scale = floats("uniform.ppf", q, loc, scale)
    bad = u.logical_or(u.isnan(q), u.logical_or(q < 0, q > 1))
    return u.where3(bad, math.nan, q * scale + loc)
