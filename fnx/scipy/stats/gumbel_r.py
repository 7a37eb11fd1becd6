"""The Gumbel distribution of maxima."""

import math

from fnx.numpy import ufuncs as u
from fnx.scipy.stats.common import floats, inside, log1mexp


def logpdf(x, loc=0, scale=1):
    """The logarithm of the density; -inf where scale is not positive."""
    x, loc, scale = floats("gumbel_r.logpdf", x, loc, scale)
    z = (x - loc) / scale
    return inside(scale > 0, -(z + u.exp(-z)) - u.log(scale))


def pdf(x, loc=0, scale=1):
    """The density."""
    return u.exp(logpdf(x, loc, scale))


def logcdf(x, loc=0, scale=1):
    """The logarithm of the distribution function."""
    x, loc, scale = floats("gumbel_r.logcdf", x, loc, scale)
    return inside(scale > 0, -u.exp((loc - x) / scale))


def cdf(x, loc=0, scale=1):
    """The distribution function."""
    return u.exp(logcdf(x, loc, scale))


def ppf(p, loc=0, scale=1):
    """The quantiles, the inverse of cdf."""
    p, loc, scale = floats("gumbel_r.ppf", p, loc, scale)
    found = loc - scale * u.log(-u.log(p))
    return u.where3(u.logical_and(u.logical_and(p > 0, p < 1), scale > 0), found, math.nan)


def sf(x, loc=0, scale=1):
    """1 - cdf, without cancellation."""
    return -u.expm1(logcdf(x, loc, scale))


def logsf(x, loc=0, scale=1):
    """The logarithm of 1 - cdf."""
    return log1mexp(logcdf(x, loc, scale))
