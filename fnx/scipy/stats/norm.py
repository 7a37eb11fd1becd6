"""The normal distribution."""

import math

from fnx.numpy.arrays.creation import asarray
from fnx.numpy.elementwise import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats.common import floats


def logpdf(x, loc=0, scale=1):
    """The logarithm of the density.

    >>> fnx.scipy.stats.norm.logpdf(jnp.array([0.0, 1.0]))
    Array([-0.91893853, -1.41893853], dtype=float64)
    """
    x, loc, scale = floats("norm.logpdf", x, loc, scale)
    z = (x - loc) / scale
    return -0.5 * (u.square(z) + math.log(2 * math.pi)) - u.log(scale)


def pdf(x, loc=0, scale=1):
    """The density.

    >>> fnx.scipy.stats.norm.pdf(jnp.array([0.0, 1.0]))
    Array([0.39894228, 0.24197072], dtype=float64)
    """
    return u.exp(logpdf(x, loc, scale))


def cdf(x, loc=0, scale=1):
    """The distribution function.

    >>> fnx.scipy.stats.norm.cdf(jnp.array([0.0, 1.0]))
    Array([0.5       , 0.84134475], dtype=float64)
    """
    x, loc, scale = floats("norm.cdf", x, loc, scale)
    return special.ndtr((x - loc) / scale)


def logcdf(x, loc=0, scale=1):
    """The logarithm of the distribution function.

    >>> fnx.scipy.stats.norm.logcdf(jnp.array([0.0, 1.0]))
    Array([-0.69314718, -0.17275378], dtype=float64)
    """
    x, loc, scale = floats("norm.logcdf", x, loc, scale)
    return special.log_ndtr((x - loc) / scale)


def sf(x, loc=0, scale=1):
    """1 - cdf, without cancellation.

    >>> fnx.scipy.stats.norm.sf(jnp.array([0.0, 1.0]))
    Array([0.5       , 0.15865525], dtype=float64)
    """
    x, loc, scale = floats("norm.sf", x, loc, scale)
    return special.ndtr((loc - x) / scale)


def logsf(x, loc=0, scale=1):
    """The logarithm of 1 - cdf.

    >>> fnx.scipy.stats.norm.logsf(jnp.array([0.0, 1.0]))
    Array([-0.69314718, -1.84102165], dtype=float64)
    """
    x, loc, scale = floats("norm.logsf", x, loc, scale)
    return special.log_ndtr((loc - x) / scale)


def ppf(q, loc=0, scale=1):
    """The quantiles, the inverse of cdf; of any dtype they are of that of Python's floats.

    >>> fnx.scipy.stats.norm.ppf(jnp.array([0.025, 0.975]))
    Array([-1.95996398,  1.95996398], dtype=float64)
    """
    q, loc, scale = floats("norm.ppf", q, loc, scale)
    return asarray(special.ndtri(q) * scale + loc, float)


def isf(q, loc=0, scale=1):
    """The inverse of sf; of any dtype it is of that of Python's floats.

    >>> fnx.scipy.stats.norm.isf(jnp.array([0.025, 0.975]))
    Array([ 1.95996398, -1.95996398], dtype=float64)
    """
    q, loc, scale = floats("norm.isf", q, loc, scale)
    return asarray(loc - special.ndtri(q) * scale, float)
