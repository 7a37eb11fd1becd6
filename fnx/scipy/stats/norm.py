"""The normal distribution."""

import math

from fnx.numpy import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats.common import floats


def logpdf(x, loc=0, scale=1):
    """The logarithm of the density."""
    x, loc, scale = floats("norm.logpdf", x, loc, scale)
    z = (x - loc) / scale
    return -0.5 * (u.square(z) + math.log(2 * math.pi)) - u.log(scale)


def pdf(x, loc=0, scale=1):
    """The density."""
    return u.exp(logpdf(x, loc, scale))


def cdf(x, loc=0, scale=1):
    """The distribution function."""
    x, loc, scale = floats("norm.cdf", x, loc, scale)
    return special.ndtr((x - loc) / scale)


def logcdf(x, loc=0, scale=1):
    """The logarithm of the distribution function."""
    x, loc, scale = floats("norm.logcdf", x, loc, scale)
    return special.log_ndtr((x - loc) / scale)


def sf(x, loc=0, scale=1):
    """1 - cdf, without cancellation."""
    x, loc, scale = floats("norm.sf", x, loc, scale)
    return special.ndtr((loc - x) / scale)


def logsf(x, loc=0, scale=1):
    """The logarithm of 1 - cdf."""
    x, loc, scale = floats("norm.logsf", x, loc, scale)
    return special.log_ndtr((loc - x) / scale)


def ppf(q, loc=0, scale=1):
    """The quantiles, the inverse of cdf."""
    q, loc, scale = floats("norm.ppf", q, loc, scale)
    return special.ndtri(q) * scale + loc


def isf(q, loc=0, scale=1):
    """The inverse of sf."""
    q, loc, scale = floats("norm.isf", q, loc, scale)
    return loc - special.ndtri(q) * scale
