"""The logistic distribution."""

from fnx.numpy.elementwise import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats.common import floats


def logpdf(x, loc=0, scale=1):
    """The logarithm of the density.

    >>> fnx.scipy.stats.logistic.logpdf(jnp.array([0.0, 1.0]))
    Array([-1.38629436, -1.62652338], dtype=float64)
    """
    x, loc, scale = floats("logistic.logpdf", x, loc, scale)
    half = (x - loc) / (2 * scale)
    return -2 * u.logaddexp(half, -half) - u.log(scale)


def pdf(x, loc=0, scale=1):
    """The density.

    >>> fnx.scipy.stats.logistic.pdf(jnp.array([0.0, 1.0]))
    Array([0.25      , 0.19661193], dtype=float64)
    """
    return u.exp(logpdf(x, loc, scale))


def cdf(x, loc=0, scale=1):
    """The distribution function.

    >>> fnx.scipy.stats.logistic.cdf(jnp.array([0.0, 1.0]))
    Array([0.5       , 0.73105858], dtype=float64)
    """
    x, loc, scale = floats("logistic.cdf", x, loc, scale)
    return special.expit((x - loc) / scale)


def sf(x, loc=0, scale=1):
    """1 - cdf, without cancellation.

    >>> fnx.scipy.stats.logistic.sf(jnp.array([0.0, 1.0]))
    Array([0.5       , 0.26894142], dtype=float64)
    """
    x, loc, scale = floats("logistic.sf", x, loc, scale)
    return special.expit((loc - x) / scale)


def ppf(x, loc=0, scale=1):
    """The quantiles, the inverse of cdf.

    >>> fnx.scipy.stats.logistic.ppf(jnp.array([0.25, 0.75]))
    Array([-1.09861229,  1.09861229], dtype=float64)
    """
    x, loc, scale = floats("logistic.ppf", x, loc, scale)
    return special.logit(x) * scale + loc


def isf(x, loc=0, scale=1):
    """The inverse of sf.

    >>> fnx.scipy.stats.logistic.isf(jnp.array([0.25, 0.75]))
    Array([ 1.09861229, -1.09861229], dtype=float64)
    """
    x, loc, scale = floats("logistic.isf", x, loc, scale)
    return loc - special.logit(x) * scale
