"""The chi-squared distribution."""

import math

from fnx.numpy.elementwise import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats.common import floats, inside


def logpdf(x, df, loc=0, scale=1):
    """The logarithm of the density.

    >>> fnx.scipy.stats.chi2.logpdf(jnp.array([2.0]), 2.0)
    Array([-1.69314718], dtype=float64)
    """
    x, df, loc, scale = floats("chi2.logpdf", x, df, loc, scale)
    y, half = (x - loc) / scale, df / 2
    norm = half * math.log(2) + special.gammaln(half) + u.log(scale)
    return inside(x >= loc, special.xlogy(half - 1, y) - y / 2 - norm, x)


def pdf(x, df, loc=0, scale=1):
    """The density.

    >>> fnx.scipy.stats.chi2.pdf(jnp.array([2.0]), 2.0)
    Array([0.18393972], dtype=float64)
    """
    return u.exp(logpdf(x, df, loc, scale))


def cdf(x, df, loc=0, scale=1):
    """The distribution function.

    >>> fnx.scipy.stats.chi2.cdf(jnp.array([2.0]), 2.0)
    Array([0.63212056], dtype=float64)
    """
    x, df, loc, scale = floats("chi2.cdf", x, df, loc, scale)
    return special.gammainc(df / 2, u.maximum((x - loc) / (2 * scale), 0.0))


def logcdf(x, df, loc=0, scale=1):
    """The logarithm of the distribution function.

    >>> fnx.scipy.stats.chi2.logcdf(jnp.array([2.0]), 2.0)
    Array([-0.45867515], dtype=float64)
    """
    return u.log(cdf(x, df, loc, scale))


def sf(x, df, loc=0, scale=1):
    """1 - cdf, without cancellation.

    >>> fnx.scipy.stats.chi2.sf(jnp.array([2.0]), 2.0)
    Array([0.36787944], dtype=float64)
    """
    x, df, loc, scale = floats("chi2.sf", x, df, loc, scale)
    return special.gammaincc(df / 2, u.maximum((x - loc) / (2 * scale), 0.0))


def logsf(x, df, loc=0, scale=1):
    """The logarithm of 1 - cdf.

    >>> fnx.scipy.stats.chi2.logsf(jnp.array([2.0]), 2.0)
    Array([-1.], dtype=float64)
    """
    return u.log(sf(x, df, loc, scale))
