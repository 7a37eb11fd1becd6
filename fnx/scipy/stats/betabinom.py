"""The beta-binomial distribution."""

import math

from fnx.numpy.elementwise import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats.common import floats, inside


def logpmf(k, n, a, b, loc=0):
    """The logarithm of the probabilities.

    >>> fnx.scipy.stats.betabinom.logpmf(jnp.arange(3), 2, 1.0, 1.0)
    Array([-1.09861229, -1.09861229, -1.09861229], dtype=float64)
    """
    k, n, a, b, loc = floats("betabinom.logpmf", k, n, a, b, loc)
    y = u.floor(k) - loc
    ways = -u.log1p(n) - special.betaln(n - y + 1, y + 1)
    found = ways + special.betaln(y + a, n - y + b) - special.betaln(a, b)
    found = inside(u.logical_and(y >= 0, y <= n), found, y)
    return u.where3(u.logical_and(n >= 0, u.logical_and(a > 0, b > 0)), found, math.nan)


def pmf(k, n, a, b, loc=0):
    """The probabilities.

    >>> fnx.scipy.stats.betabinom.pmf(jnp.arange(3), 2, 1.0, 1.0)
    Array([0.33333333, 0.33333333, 0.33333333], dtype=float64)
    """
    return u.exp(logpmf(k, n, a, b, loc))
