"""The Poisson distribution."""

import math

import numpy as np

from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.reductions import reduce
from fnx.scipy import special
from fnx.scipy.stats.common import floats, inside


def logpmf(k, mu, loc=0):
    """The logarithm of the probabilities; -inf where k is not an integer or less than loc.

    >>> fnx.scipy.stats.poisson.logpmf(jnp.array([0, 1]), 1.0)
    Array([-1., -1.], dtype=float64)
    """
    k, mu, loc = floats("poisson.logpmf", k, mu, loc)
    x = k - loc
    found = special.xlogy(x, mu) - special.gammaln(x + 1) - mu
    return inside(u.logical_and(x >= 0, u.round(k) == k), found, x)


def pmf(k, mu, loc=0):
    """The probabilities.

    >>> fnx.scipy.stats.poisson.pmf(jnp.array([0, 1]), 1.0)
    Array([0.36787944, 0.36787944], dtype=float64)
    """
    return u.exp(logpmf(k, mu, loc))


def cdf(k, mu, loc=0):
    """The distribution function.

    >>> fnx.scipy.stats.poisson.cdf(jnp.array([0, 1]), 1.0)
    Array([0.36787944, 0.73575888], dtype=float64)
    """
    k, mu, loc = floats("poisson.cdf", k, mu, loc)
    x = k - loc
    return u.where3(x < 0, 0.0, special.gammaincc(u.maximum(u.floor(x) + 1, 0.5), mu))


def entropy(mu, loc=0):
    """The entropy, in nats.

    >>> fnx.scipy.stats.poisson.entropy(jnp.array([1.0]))
    Array([1.30484224], dtype=float64)
    """
    mu, loc = floats("poisson.entropy", mu, loc)
    k = np.arange(400).astype(mu.dtype)
    terms = special.xlogy(k, mu[..., None]) - special.gammaln(k + 1) - mu[..., None]
    small = -reduce.sum(u.exp(terms) * terms, axis=-1)
    safe = u.maximum(mu, 1.0)
    large = 0.5 * u.log(2 * math.pi * math.e * safe)  # Stirling's series
    large = large - 1 / (12 * safe) - 1 / (24 * u.square(safe)) - 19 / (360 * safe**3)
    found = u.where3(mu == 0, 0.0, u.where3(mu > 200, large, small))
    return u.where3(mu < 0, math.nan, found) + 0 * loc
