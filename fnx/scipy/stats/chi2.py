"""The chi-squared distribution."""

import math

from fnx.numpy import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats.common import floats, inside


def logpdf(x, df, loc=0, scale=1):
    """The logarithm of the density."""
    x, df, loc, scale = floats("chi2.logpdf", x, df, loc, scale)
    y, half = (x - loc) / scale, df / 2
    norm = half * math.log(2) + special.gammaln(half) + u.log(scale)
    return inside(x >= loc, special.xlogy(half - 1, y) - y / 2 - norm)


def pdf(x, df, loc=0, scale=1):
    """The density."""
    return u.exp(logpdf(x, df, loc, scale))


def cdf(x, df, loc=0, scale=1):
    """The distribution function."""
    x, df, loc, scale = floats("chi2.cdf", x, df, loc, scale)
    return special.gammainc(df / 2, u.maximum((x - loc) / (2 * scale), 0.0))


def logcdf(x, df, loc=0, scale=1):
    """The logarithm of the distribution function."""
    return u.log(cdf(x, df, loc, scale))


def sf(x, df, loc=0, scale=1):
    """1 - cdf, without cancellation."""
    x, df, loc, scale = floats("chi2.sf", x, df, loc, scale)
    return special.gammaincc(df / 2, u.maximum((x - loc) / (2 * scale), 0.0))


def logsf(x, df, loc=0, scale=1):
    """The logarithm of 1 - cdf."""
    return u.log(sf(x, df, loc, scale))
