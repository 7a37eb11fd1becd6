"""The exponential distribution."""

import math

from fnx.numpy import ufuncs as u
from fnx.scipy.stats.common import floats, inside, log1mexp


def logpdf(x, loc=0, scale=1):
    """The logarithm of the density."""
    x, loc, scale = floats("expon.logpdf", x, loc, scale)
    return inside(x >= loc, -(x - loc) / scale - u.log(scale))


def pdf(x, loc=0, scale=1):
    """The density."""
    return u.exp(logpdf(x, loc, scale))


def cdf(x, loc=0, scale=1):
    """The distribution function."""
    x, loc, scale = floats("expon.cdf", x, loc, scale)
    return u.where3(x < loc, 0.0, -u.expm1((loc - x) / scale))


def logcdf(x, loc=0, scale=1):
    """The logarithm of the distribution function."""
    x, loc, scale = floats("expon.logcdf", x, loc, scale)
    inner = x > loc
    return inside(inner, log1mexp(u.where3(inner, (loc - x) / scale, -1.0)))


def sf(x, loc=0, scale=1):
    """1 - cdf."""
    return u.exp(logsf(x, loc, scale))


def logsf(x, loc=0, scale=1):
    """The logarithm of 1 - cdf."""
    x, loc, scale = floats("expon.logsf", x, loc, scale)
    return u.where3(x < loc, 0.0, (loc - x) / scale)


def ppf(q, loc=0, scale=1):
    """The quantiles, the inverse of cdf."""
    q, loc, scale = floats("expon.ppf", q, loc, scale)
    bad = u.logical_or(u.isnan(q), u.logical_or(q < 0, q > 1))
    return u.where3(bad, math.nan, loc - scale * u.log1p(-q))
