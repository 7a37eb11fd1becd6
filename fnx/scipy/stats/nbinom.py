"""The negative binomial distribution."""

from fnx.numpy.elementwise import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats.common import floats, inside


def logpmf(k, n, p, loc=0):
    """The logarithm of the probabilities.

    >>> fnx.scipy.stats.nbinom.logpmf(jnp.array([0, 1]), 1, 0.5)
    Array([-0.69314718, -1.38629436], dtype=float64)
    """
    k, n, p, loc = floats("nbinom.logpmf", k, n, p, loc)
    y = k - loc
    ways = special.gammaln(n + y) - special.gammaln(n) - special.gammaln(y + 1)
    return inside(y >= 0, ways + special.xlogy(n, p) + special.xlog1py(y, -p), y)


def pmf(k, n, p, loc=0):
    """The probabilities.

    >>> fnx.scipy.stats.nbinom.pmf(jnp.array([0, 1]), 1, 0.5)
    Array([0.5 , 0.25], dtype=float64)
    """
    return u.exp(logpmf(k, n, p, loc))
