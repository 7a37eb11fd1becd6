"""The beta distribution."""

import math

from fnx.numpy import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats.common import floats, inside


def logpdf(x, a, b, loc=0, scale=1):
    """The logarithm of the density."""
    x, a, b, loc, scale = floats("beta.logpdf", x, a, b, loc, scale)
    y = (x - loc) / scale
    body = special.xlogy(a - 1, y) + special.xlog1py(b - 1, -y)
    found = inside(u.logical_and(y >= 0, y <= 1), body - special.betaln(a, b) - u.log(scale))
    return u.where3(u.logical_and(u.logical_and(a > 0, b > 0), scale > 0), found, math.nan)


def pdf(x, a, b, loc=0, scale=1):
    """The density."""
    return u.exp(logpdf(x, a, b, loc, scale))


def cdf(x, a, b, loc=0, scale=1):
    """The distribution function."""
    x, a, b, loc, scale = floats("beta.cdf", x, a, b, loc, scale)
    return special.betainc(a, b, u.clip((x - loc) / scale, 0.0, 1.0))


def logcdf(x, a, b, loc=0, scale=1):
    """The logarithm of the distribution function."""
    return u.log(cdf(x, a, b, loc, scale))


def sf(x, a, b, loc=0, scale=1):
    """1 - cdf, without cancellation."""
    x, a, b, loc, scale = floats("beta.sf", x, a, b, loc, scale)
    return special.betainc(b, a, 1 - u.clip((x - loc) / scale, 0.0, 1.0))


def logsf(x, a, b, loc=0, scale=1):
    """The logarithm of 1 - cdf."""
    return u.log(sf(x, a, b, loc, scale))
