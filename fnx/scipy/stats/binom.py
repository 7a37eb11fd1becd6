"""The binomial distribution."""

from fnx.numpy.elementwise import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats.common import floats, inside


def logpmf(k, n, p, loc=0):
    """The logarithm of the probabilities.

    >>> fnx.scipy.stats.binom.logpmf(jnp.arange(3), 2, 0.5)
    Array([-1.38629436, -0.69314718, -1.38629436], dtype=float64)
    """
    k, n, p, loc = floats("binom.logpmf", k, n, p, loc)
    y = k - loc
    ways = special.gammaln(n + 1) - (special.gammaln(y + 1) + special.gammaln(n - y + 1))
    found = ways + special.xlogy(y, p) + special.xlog1py(n - y, -p)
    return inside(u.logical_and(y >= 0, y <= n), found, y)


def pmf(k, n, p, loc=0):
    """The probabilities.

    >>> fnx.scipy.stats.binom.pmf(jnp.arange(3), 2, 0.5)
    Array([0.25, 0.5 , 0.25], dtype=float64)
    """
    return u.exp(logpmf(k, n, p, loc))
