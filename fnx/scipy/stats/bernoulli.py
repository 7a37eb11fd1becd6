"""The Bernoulli distribution."""

import math

from fnx.numpy.elementwise import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats.common import floats, inside


def logpmf(k, p, loc=0):
    """The logarithm of the probabilities.

    >>> fnx.scipy.stats.bernoulli.logpmf(jnp.array([0, 1]), 0.25)
    Array([-0.28768207, -1.38629436], dtype=float64)
    """
    k, p, loc = floats("bernoulli.logpmf", k, p, loc)
    x = k - loc
    found = special.xlogy(x, p) + special.xlog1py(1 - x, -p)
    return inside(u.logical_or(x == 0, x == 1), found, x)


def pmf(k, p, loc=0):
    """The probabilities.

    >>> fnx.scipy.stats.bernoulli.pmf(jnp.array([0, 1]), 0.25)
    Array([0.75, 0.25], dtype=float64)
    """
    return u.exp(logpmf(k, p, loc))


def cdf(k, p):
    """The distribution function.

    >>> fnx.scipy.stats.bernoulli.cdf(jnp.array([0, 1]), 0.25)
    Array([0.75, 1.  ], dtype=float64)
    """
    k, p = floats("bernoulli.cdf", k, p)
    found = u.where3(k < 0, 0.0, u.where3(k < 1, 1.0 - p, 1.0))
    bad = u.logical_or(u.logical_or(u.isnan(k), u.isnan(p)), u.logical_or(p < 0, p > 1))
    return u.where3(bad, math.nan, found)


def ppf(q, p):
    """The quantiles.

    >>> fnx.scipy.stats.bernoulli.ppf(jnp.array([0.5, 0.9]), 0.25)
    Array([0., 1.], dtype=float64, weak_type=True)
    """
    q, p = floats("bernoulli.ppf", q, p)
    good = u.logical_and(u.logical_and(q >= 0, q <= 1), u.logical_and(p >= 0, p <= 1))
    found = u.where3(q <= 1 - p, 0.0, 1.0)
    return u.where3(good, found, math.nan)
