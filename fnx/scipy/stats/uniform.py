"""The uniform distribution on [loc, loc + scale]."""

import math

from fnx.numpy import ufuncs as u
from fnx.scipy.stats.common import floats, inside


def logpdf(x, loc=0, scale=1):
    """The logarithm of the density."""
    x, loc, scale = floats("uniform.logpdf", x, loc, scale)
    return inside(u.logical_and(x >= loc, x <= loc + scale), -u.log(scale))


def pdf(x, loc=0, scale=1):
    """The density."""
    return u.exp(logpdf(x, loc, scale))


def cdf(x, loc=0, scale=1):
    """The distribution function."""
    x, loc, scale = floats("uniform.cdf", x, loc, scale)
    return u.clip((x - loc) / scale, 0.0, 1.0)


def ppf(q, loc=0, scale=1):
    """The quantiles, the inverse of cdf."""
    q, loc, scale = floats("uniform.ppf", q, loc, scale)
    bad = u.logical_or(u.isnan(q), u.logical_or(q < 0, q > 1))
    return u.where3(bad, math.nan, q * scale + loc)
