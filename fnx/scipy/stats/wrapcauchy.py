"""The wrapped Cauchy distribution."""

import math

from fnx.numpy import ufuncs as u
from fnx.scipy.stats.common import floats, inside


def logpdf(x, c):
    """The logarithm of the density; -inf outside [0, 2 pi], nan unless 0 < c < 1."""
    x, c = floats("wrapcauchy.logpdf", x, c)
    found = u.log1p(-u.square(c)) - math.log(2 * math.pi)
    found = found - u.log1p(u.square(c) - 2 * c * u.cos(x))
    found = inside(u.logical_and(x >= 0, x <= 2 * math.pi), found)
    return u.where3(u.logical_and(c > 0, c < 1), found, math.nan)


def pdf(x, c):
    """The density."""
    return u.exp(logpdf(x, c))
