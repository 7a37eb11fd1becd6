"""The exponential distribution."""

import math

from fnx.numpy.elementwise import ufuncs as u
from fnx.scipy.stats.common import floats, inside, log1mexp


def logpdf(x, loc=0, scale=1):
    """The logarithm of the density.

    >>> fnx.scipy.stats.expon.logpdf(jnp.array([1.0, 2.0]))
    Array([-1., -2.], dtype=float64)
    """
    x, loc, scale = floats("expon.logpdf", x, loc, scale)
    return inside(x >= loc, -(x - loc) / scale - u.log(scale), x)


def pdf(x, loc=0, scale=1):
    """The density.

    >>> fnx.scipy.stats.expon.pdf(jnp.array([0.0, 1.0]))
    Array([1.        , 0.36787944], dtype=float64)
    """
    return u.exp(logpdf(x, loc, scale))


def cdf(x, loc=0, scale=1):
    """The distribution function.

    >>> fnx.scipy.stats.expon.cdf(jnp.array([1.0, 2.0]))
    Array([0.63212056, 0.86466472], dtype=float64)
    """
    x, loc, scale = floats("expon.cdf", x, loc, scale)
    return u.where3(x < loc, 0.0, -u.expm1((loc - x) / scale))


def logcdf(x, loc=0, scale=1):
    """The logarithm of the distribution function.

    >>> fnx.scipy.stats.expon.logcdf(jnp.array([0.0, 1.0]))
    Array([       -inf, -0.45867515], dtype=float64)
    """
    x, loc, scale = floats("expon.logcdf", x, loc, scale)
    inner = x > loc
    return inside(inner, log1mexp(u.where3(inner, (loc - x) / scale, -1.0)), x)


def sf(x, loc=0, scale=1):
    """1 - cdf.

    >>> fnx.scipy.stats.expon.sf(jnp.array([0.0, 1.0]))
    Array([1.        , 0.36787944], dtype=float64)
    """
    return u.exp(logsf(x, loc, scale))


def logsf(x, loc=0, scale=1):
    """The logarithm of 1 - cdf.

    >>> fnx.scipy.stats.expon.logsf(jnp.array([0.0, 1.0]))
    Array([ 0., -1.], dtype=float64)
    """
    x, loc, scale = floats("expon.logsf", x, loc, scale)
    return u.where3(x < loc, 0.0, (loc - x) / scale)


def ppf(q, loc=0, scale=1):
    """The quantiles, the inverse of cdf.

    >>> fnx.scipy.stats.expon.ppf(jnp.array([0.0, 0.5]))
    Array([0.        , 0.69314718], dtype=float64)
    """
    q, loc, scale = floats("expon.ppf", q, loc, scale)
    bad = u.logical_or(u.isnan(q), u.logical_or(q < 0, q > 1))
    return u.where3(bad, math.nan, loc - scale * u.log1p(-q))
