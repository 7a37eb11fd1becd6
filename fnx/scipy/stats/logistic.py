"""The logistic distribution."""

from fnx.numpy import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats.common import floats


def logpdf(x, loc=0, scale=1):
    """The logarithm of the density."""
    x, loc, scale = floats("logistic.logpdf", x, loc, scale)
    half = (x - loc) / (2 * scale)
    return -2 * u.logaddexp(half, -half) - u.log(scale)


def pdf(x, loc=0, scale=1):
    """The density."""
    return u.exp(logpdf(x, loc, scale))


def cdf(x, loc=0, scale=1):
    """The distribution function."""
    x, loc, scale = floats("logistic.cdf", x, loc, scale)
    return special.expit((x - loc) / scale)


def sf(x, loc=0, scale=1):
    """1 - cdf, without cancellation."""
    x, loc, scale = floats("logistic.sf", x, loc, scale)
    return special.expit((loc - x) / scale)


def ppf(x, loc=0, scale=1):
    """The quantiles, the inverse of cdf."""
    x, loc, scale = floats("logistic.ppf", x, loc, scale)
    return special.logit(x) * scale + loc


def isf(x, loc=0, scale=1):
    """The inverse of sf."""
    x, loc, scale = floats("logistic.isf", x, loc, scale)
    return loc - special.logit(x) * scale
