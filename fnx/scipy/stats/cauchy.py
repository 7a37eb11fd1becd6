"""The Cauchy distribution."""

import math

from fnx.numpy import ufuncs as u
from fnx.scipy.stats.common import floats


def logpdf(x, loc=0, scale=1):
    """The logarithm of the density."""
    x, loc, scale = floats("cauchy.logpdf", x, loc, scale)
    return -(u.log(math.pi * scale) + u.log1p(u.square((x - loc) / scale)))


def pdf(x, loc=0, scale=1):
    """The density."""
    return u.exp(logpdf(x, loc, scale))


def cdf(x, loc=0, scale=1):
    """The distribution function."""
    x, loc, scale = floats("cauchy.cdf", x, loc, scale)
    return 0.5 + u.arctan((x - loc) / scale) / math.pi


def logcdf(x, loc=0, scale=1):
    """The logarithm of the distribution function."""
    return u.log(cdf(x, loc, scale))


def sf(x, loc=0, scale=1):
    """1 - cdf."""
    x, loc, scale = floats("cauchy.sf", x, loc, scale)
    return cdf(-x, -loc, scale)


def logsf(x, loc=0, scale=1):
    """The logarithm of 1 - cdf."""
    return u.log(sf(x, loc, scale))


def ppf(q, loc=0, scale=1):
    """The quantiles, the inverse of cdf."""
    q, loc, scale = floats("cauchy.ppf", q, loc, scale)
    return u.tan(math.pi * q - math.pi / 2) * scale + loc


def isf(q, loc=0, scale=1):
    """The inverse of sf."""
    q, loc, scale = floats("cauchy.isf", q, loc, scale)
    return u.tan(math.pi / 2 - math.pi * q) * scale + loc
