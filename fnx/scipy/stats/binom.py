"""The binomial distribution."""

from fnx.numpy import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats.common import floats, inside


def logpmf(k, n, p, loc=0):
    """The logarithm of the probabilities."""
    k, n, p, loc = floats("binom.logpmf", k, n, p, loc)
    y = k - loc
    ways = special.gammaln(n + 1) - (special.gammaln(y + 1) + special.gammaln(n - y + 1))
    found = ways + special.xlogy(y, p) + special.xlog1py(n - y, -p)
    return inside(u.logical_and(y >= 0, y <= n), found)


def pmf(k, n, p, loc=0):
    """The probabilities."""
    return u.exp(logpmf(k, n, p, loc))
