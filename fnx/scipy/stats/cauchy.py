"""The Cauchy distribution."""

import math

from fnx.numpy.elementwise import ufuncs as u
from fnx.scipy.stats.common import floats


def logpdf(x, loc=0, scale=1):
    """The logarithm of the density.

    >>> fnx.scipy.stats.cauchy.logpdf(jnp.array([0.0, 1.0]))
    Array([-1.14472989, -1.83787707], dtype=float64)
    """
    x, loc, scale = floats("cauchy.logpdf", x, loc, scale)
    return -(u.log(math.pi * scale) + u.log1p(u.square((x - loc) / scale)))


def pdf(x, loc=0, scale=1):
    """The density.

    >>> fnx.scipy.stats.cauchy.pdf(jnp.array([0.0, 1.0]))
    Array([0.31830989, 0.15915494], dtype=float64)
    """
    return u.exp(logpdf(x, loc, scale))


def cdf(x, loc=0, scale=1):
    """The distribution function.

    >>> fnx.scipy.stats.cauchy.cdf(jnp.array([0.0, 1.0]))
    Array([0.5 , 0.75], dtype=float64)
    """
    x, loc, scale = floats("cauchy.cdf", x, loc, scale)
    return 0.5 + u.arctan((x - loc) / scale) / math.pi


def logcdf(x, loc=0, scale=1):
    """The logarithm of the distribution function.

    >>> fnx.scipy.stats.cauchy.logcdf(jnp.array([0.0, 1.0]))
    Array([-0.69314718, -0.28768207], dtype=float64)
    """
    return u.log(cdf(x, loc, scale))


def sf(x, loc=0, scale=1):
    """1 - cdf.

    >>> fnx.scipy.stats.cauchy.sf(jnp.array([0.0, 1.0]))
    Array([0.5 , 0.25], dtype=float64)
    """
    x, loc, scale = floats("cauchy.sf", x, loc, scale)
    return cdf(-x, -loc, scale)


def logsf(x, loc=0, scale=1):
    """The logarithm of 1 - cdf.

    >>> fnx.scipy.stats.cauchy.logsf(jnp.array([0.0, 1.0]))
    Array([-0.69314718, -1.38629436], dtype=float64)
    """
    return u.log(sf(x, loc, scale))


def ppf(q, loc=0, scale=1):
    """The quantiles, the inverse of cdf.

    >>> fnx.scipy.stats.cauchy.ppf(jnp.array([0.25, 0.75]))
    Array([-1.,  1.], dtype=float64)
    """
    q, loc, scale = floats("cauchy.ppf", q, loc, scale)
    return u.tan(math.pi * q - math.pi / 2) * scale + loc


def isf(q, loc=0, scale=1):
    """The inverse of sf.

    >>> fnx.scipy.stats.cauchy.isf(jnp.array([0.25, 0.75]))
    Array([ 1., -1.], dtype=float64)
    """
    q, loc, scale = floats("cauchy.isf", q, loc, scale)
    return u.tan(math.pi / 2 - math.pi * q) * scale + loc
