"""The normal distribution, cut off at a and b (in standard deviations from loc)."""

import math

from fnx.numpy.elementwise import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats import norm
from fnx.scipy.stats.common import floats, inside, log1mexp


def _log_mass(a, b):
    """log(ndtr(b) - ndtr(a)), from the side where the two are small."""
    left = b <= 0
    right = u.logical_and(a > 0, u.logical_not(left))
    low, high = u.where3(right, -b, a), u.where3(right, -a, b)
    tail = u.logical_or(left, right)
    high_tail, low_tail = u.where3(tail, high, -1.0), u.where3(tail, low, -2.0)
    one_side = special.log_ndtr(high_tail)
    one_side = one_side + log1mexp(special.log_ndtr(low_tail) - one_side)
    a, b = u.where3(tail, -1.0, a), u.where3(tail, 1.0, b)
    both = u.log1p(-special.ndtr(a) - special.ndtr(-b))
    return u.where3(tail, one_side, both)


def _standard(name, x, a, b, loc, scale):
    x, a, b, loc, scale = floats(name, x, a, b, loc, scale)
    return (x - loc) / scale, a, b, scale


def logpdf(x, a, b, loc=0, scale=1):
    """The logarithm of the density; nan where a >= b.

    >>> fnx.scipy.stats.truncnorm.logpdf(jnp.array([0.0, 2.0]), -1.0, 1.0)
    Array([-0.53722339,        -inf], dtype=float64)
    """
    y, a, b, scale = _standard("truncnorm.logpdf", x, a, b, loc, scale)
    found = norm.logpdf(y) - u.log(scale) - _log_mass(a, b)
    found = inside(u.logical_and(y >= a, y <= b), found, y)
    return u.where3(a >= b, math.nan, found)


def pdf(x, a, b, loc=0, scale=1):
    """The density.

    >>> fnx.scipy.stats.truncnorm.pdf(jnp.array([0.0, 2.0]), -1.0, 1.0)
    Array([0.58436857, 0.        ], dtype=float64)
    """
    return u.exp(logpdf(x, a, b, loc, scale))


def logcdf(x, a, b, loc=0, scale=1):
    """The logarithm of the distribution function; nan where a >= b.

    >>> fnx.scipy.stats.truncnorm.logcdf(jnp.array([0.0, 2.0]), -1.0, 1.0)
    Array([-0.69314718,  0.        ], dtype=float64)
    """
    y, a, b, _ = _standard("truncnorm.logcdf", x, a, b, loc, scale)
    inner = u.logical_and(y > a, y < b)
    safe = u.where3(inner, y, 0.5 * (u.clip(a, -9.0, 9.0) + u.clip(b, -9.0, 9.0)))
    below = _log_mass(a, safe) - _log_mass(a, b)
    above = log1mexp(_log_mass(safe, b) - _log_mass(a, b))
    found = u.where3(below > -0.1, above, below)  # near 0 the other side is exact
    found = u.where3(inner, found, u.where3(y <= a, -math.inf, 0.0))
    return u.where3(u.logical_or(a >= b, u.isnan(y)), math.nan, found)


def cdf(x, a, b, loc=0, scale=1):
    """The distribution function.

    >>> fnx.scipy.stats.truncnorm.cdf(jnp.array([0.0, 2.0]), -1.0, 1.0)
    Array([0.5, 1. ], dtype=float64)
    """
    return u.exp(logcdf(x, a, b, loc, scale))


def logsf(x, a, b, loc=0, scale=1):
    """The logarithm of 1 - cdf.

    >>> fnx.scipy.stats.truncnorm.logsf(jnp.array([0.0, 2.0]), -1.0, 1.0)
    Array([-0.69314718,        -inf], dtype=float64)
    """
    x, a, b, loc, scale = floats("truncnorm.logsf", x, a, b, loc, scale)
    return logcdf(-x, -b, -a, -loc, scale)


def sf(x, a, b, loc=0, scale=1):
    """1 - cdf, without cancellation.

    >>> fnx.scipy.stats.truncnorm.sf(jnp.array([0.0, 2.0]), -1.0, 1.0)
    Array([0.5, 0. ], dtype=float64)
    """
    return u.exp(logsf(x, a, b, loc, scale))
