"""The Pareto distribution."""

import math

from fnx.numpy import ufuncs as u
from fnx.scipy.stats.common import floats, inside


def logpdf(x, b, loc=0, scale=1):
    """The logarithm of the density."""
    x, b, loc, scale = floats("pareto.logpdf", x, b, loc, scale)
    inner = x >= loc + scale
    y = u.where3(inner, (x - loc) / scale, 1.0)
    return inside(inner, u.log(b / scale) - (b + 1) * u.log(y))


def pdf(x, b, loc=0, scale=1):
    """The density."""
    return u.exp(logpdf(x, b, loc, scale))


def cdf(x, b, loc=0, scale=1):
    """The distribution function."""
    return -u.expm1(logsf(x, b, loc, scale))


def logcdf(x, b, loc=0, scale=1):
    """The logarithm of the distribution function."""
    return u.log(cdf(x, b, loc, scale))


def sf(x, b, loc=0, scale=1):
    """1 - cdf."""
    return u.exp(logsf(x, b, loc, scale))


def logsf(x, b, loc=0, scale=1):
    """The logarithm of 1 - cdf."""
    x, b, loc, scale = floats("pareto.logsf", x, b, loc, scale)
    inner = x >= loc + scale
    return u.where3(inner, -b * u.log(u.where3(inner, (x - loc) / scale, 1.0)), 0.0)


def ppf(q, b, loc=0, scale=1):
    """The quantiles, the inverse of cdf."""
    q, b, loc, scale = floats("pareto.ppf", q, b, loc, scale)
    bad = u.logical_or(u.isnan(q), u.logical_or(q < 0, q > 1))
    return u.where3(bad, math.nan, loc + scale * u.exp(-u.log1p(-q) / b))
