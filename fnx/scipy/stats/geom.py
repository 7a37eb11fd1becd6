"""The geometric distribution."""

from fnx.numpy.elementwise import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats.common import floats, inside


def logpmf(k, p, loc=0):
    """The logarithm of the probabilities.

    >>> fnx.scipy.stats.geom.logpmf(jnp.array([1, 2, 3]), 0.5)
    Array([-0.69314718, -1.38629436, -2.07944154], dtype=float64)
    """
    k, p, loc = floats("geom.logpmf", k, p, loc)
    x = k - loc
    return inside(x > 0, special.xlog1py(x - 1, -p) + u.log(p), x)


def pmf(k, p, loc=0):
    """The probabilities.

    >>> fnx.scipy.stats.geom.pmf(jnp.array([1, 2, 3]), 0.5)
    Array([0.5  , 0.25 , 0.125], dtype=float64)
    """
    return u.exp(logpmf(k, p, loc))
