"""The Gumbel distribution of maxima."""

import math

from fnx.numpy.elementwise import ufuncs as u
from fnx.scipy.stats.common import floats, inside, log1mexp


def logpdf(x, loc=0, scale=1):
    """The logarithm of the density; -inf where scale is not positive.

    >>> fnx.scipy.stats.gumbel_r.logpdf(jnp.array([0.0]))
    Array([-1.], dtype=float64)
    """
    x, loc, scale = floats("gumbel_r.logpdf", x, loc, scale)
    z = (x - loc) / scale
    return inside(scale > 0, -(z + u.exp(-z)) - u.log(scale), x)


def pdf(x, loc=0, scale=1):
    """The density.

    >>> fnx.scipy.stats.gumbel_r.pdf(jnp.array([0.0]))
    Array([0.36787944], dtype=float64)
    """
    return u.exp(logpdf(x, loc, scale))


def logcdf(x, loc=0, scale=1):
    """The logarithm of the distribution function.

    >>> fnx.scipy.stats.gumbel_r.logcdf(jnp.array([0.0]))
    Array([-1.], dtype=float64)
    """
    x, loc, scale = floats("gumbel_r.logcdf", x, loc, scale)
    return inside(scale > 0, -u.exp((loc - x) / scale), x)


def cdf(x, loc=0, scale=1):
    """The distribution function.

    >>> fnx.scipy.stats.gumbel_r.cdf(jnp.array([0.0]))
    Array([0.36787944], dtype=float64)
    """
    return u.exp(logcdf(x, loc, scale))


def ppf(p, loc=0, scale=1):
    """The quantiles, the inverse of cdf.

    >>> fnx.scipy.stats.gumbel_r.ppf(jnp.array([0.5]))
    Array([0.36651292], dtype=float64)
    """
    p, loc, scale = floats("gumbel_r.ppf", p, loc, scale)
    found = loc - scale * u.log(-u.log(p))
    return u.where3(u.logical_and(u.logical_and(p > 0, p < 1), scale > 0), found, math.nan)


def sf(x, loc=0, scale=1):
    """1 - cdf, without cancellation.

    >>> fnx.scipy.stats.gumbel_r.sf(jnp.array([0.0]))
    Array([0.63212056], dtype=float64)
    """
    return -u.expm1(logcdf(x, loc, scale))


def logsf(x, loc=0, scale=1):
    """The logarithm of 1 - cdf.

    >>> fnx.scipy.stats.gumbel_r.logsf(jnp.array([0.0]))
    Array([-0.45867515], dtype=float64)
    """
    return log1mexp(logcdf(x, loc, scale))
