"""The Pareto distribution."""

import math

from fnx.numpy.elementwise import ufuncs as u
from fnx.scipy.stats.common import floats, inside


def logpdf(x, b, loc=0, scale=1):
    """The logarithm of the density.

    >>> fnx.scipy.stats.pareto.logpdf(jnp.array([1.0, 2.0]), 1.0)
    Array([ 0.        , -1.38629436], dtype=float64)
    """
    x, b, loc, scale = floats("pareto.logpdf", x, b, loc, scale)
    inner = x >= loc + scale
    y = u.where3(inner, (x - loc) / scale, 1.0)
    return inside(inner, u.log(b / scale) - (b + 1) * u.log(y), x)


def pdf(x, b, loc=0, scale=1):
    """The density.

    >>> fnx.scipy.stats.pareto.pdf(jnp.array([1.0, 2.0]), 1.0)
    Array([1.  , 0.25], dtype=float64)
    """
    return u.exp(logpdf(x, b, loc, scale))


def cdf(x, b, loc=0, scale=1):
    """The distribution function.

    >>> fnx.scipy.stats.pareto.cdf(jnp.array([1.0, 2.0]), 1.0)
    Array([0. , 0.5], dtype=float64)
    """
    return -u.expm1(logsf(x, b, loc, scale))


def logcdf(x, b, loc=0, scale=1):
    """The logarithm of the distribution function.

    >>> fnx.scipy.stats.pareto.logcdf(jnp.array([1.0, 2.0]), 1.0)
    Array([       -inf, -0.69314718], dtype=float64)
    """
    return u.log(cdf(x, b, loc, scale))


def sf(x, b, loc=0, scale=1):
    """1 - cdf.

    >>> fnx.scipy.stats.pareto.sf(jnp.array([1.0, 2.0]), 1.0)
    Array([1. , 0.5], dtype=float64)
    """
    return u.exp(logsf(x, b, loc, scale))


def logsf(x, b, loc=0, scale=1):
    """The logarithm of 1 - cdf.

    >>> fnx.scipy.stats.pareto.logsf(jnp.array([2.0, 4.0]), 1.0)
    Array([-0.69314718, -1.38629436], dtype=float64)
    """
    x, b, loc, scale = floats("pareto.logsf", x, b, loc, scale)
    outside = x < loc + scale
    return u.where3(outside, 0.0, -b * u.log(u.where3(outside, 1.0, (x - loc) / scale)))


def ppf(q, b, loc=0, scale=1):
    """The quantiles, the inverse of cdf.

    >>> fnx.scipy.stats.pareto.ppf(jnp.array([0.0, 0.5]), 1.0)
    Array([1., 2.], dtype=float64)
    """
    q, b, loc, scale = floats("pareto.ppf", q, b, loc, scale)
    bad = u.logical_or(u.isnan(q), u.logical_or(q < 0, q > 1))
    return u.where3(bad, math.nan, loc + scale * u.exp(-u.log1p(-q) / b))
