"""The Gumbel distribution of minima."""

import math

from fnx.numpy.elementwise import ufuncs as u
from fnx.scipy.stats.common import floats, inside, log1mexp


def logpdf(x, loc=0, scale=1):
    """The logarithm of the density; -inf where scale is not positive.

    >>> fnx.scipy.stats.gumbel_l.logpdf(jnp.array([0.0]))
    Array([-1.], dtype=float64)
    """
    x, loc, scale = floats("gumbel_l.logpdf", x, loc, scale)
    z = (x - loc) / scale
    return inside(scale > 0, z - u.exp(z) - u.log(scale), x)


def pdf(x, loc=0, scale=1):
    """The density.

    >>> fnx.scipy.stats.gumbel_l.pdf(jnp.array([0.0]))
    Array([0.36787944], dtype=float64)
    """
    return u.exp(logpdf(x, loc, scale))


def logcdf(x, loc=0, scale=1):
    """The logarithm of the distribution function.

    >>> fnx.scipy.stats.gumbel_l.logcdf(jnp.array([0.0]))
    Array([-0.45867515], dtype=float64)
    """
    return log1mexp(logsf(x, loc, scale))


def cdf(x, loc=0, scale=1):
    """The distribution function.

    >>> fnx.scipy.stats.gumbel_l.cdf(jnp.array([0.0]))
    Array([0.63212056], dtype=float64)
    """
    return -u.expm1(logsf(x, loc, scale))


def ppf(p, loc=0, scale=1):
    """The quantiles, the inverse of cdf.

    >>> fnx.scipy.stats.gumbel_l.ppf(jnp.array([0.5]))
    Array([-0.36651292], dtype=float64)
    """
    p, loc, scale = floats("gumbel_l.ppf", p, loc, scale)
    found = loc + scale * u.log(-u.log1p(-p))
    return u.where3(u.logical_and(u.logical_and(p > 0, p < 1), scale > 0), found, math.nan)


def sf(x, loc=0, scale=1):
    """1 - cdf.

    >>> fnx.scipy.stats.gumbel_l.sf(jnp.array([0.0]))
    Array([0.36787944], dtype=float64)
    """
    return u.exp(logsf(x, loc, scale))


def logsf(x, loc=0, scale=1):
    """The logarithm of 1 - cdf.

    >>> fnx.scipy.stats.gumbel_l.logsf(jnp.array([0.0]))
    Array([-1.], dtype=float64)
    """
    x, loc, scale = floats("gumbel_l.logsf", x, loc, scale)
    return inside(scale > 0, -u.exp((x - loc) / scale), x)
