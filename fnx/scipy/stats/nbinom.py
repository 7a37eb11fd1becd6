"""The negative binomial distribution."""

from fnx.numpy import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats.common import floats, inside


def logpmf(k, n, p, loc=0):
    """The logarithm of the probabilities."""
    k, n, p, loc = floats("nbinom.logpmf", k, n, p, loc)
    y = k - loc
    ways = special.gammaln(n + y) - special.gammaln(n) - special.gammaln(y + 1)
    return inside(y >= 0, ways + special.xlogy(n, p) + special.xlog1py(y, -p))


def pmf(k, n, p, loc=0):
    """The probabilities."""
    return u.exp(logpmf(k, n, p, loc))
