"""The geometric distribution."""

from fnx.numpy import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats.common import floats, inside


def logpmf(k, p, loc=0):
    """The logarithm of the probabilities."""
    k, p, loc = floats("geom.logpmf", k, p, loc)
    x = k - loc
    return inside(x > 0, special.xlog1py(x - 1, -p) + u.log(p))


def pmf(k, p, loc=0):
    """The probabilities."""
    return u.exp(logpmf(k, p, loc))
