"""The Laplace distribution."""

from fnx.numpy.elementwise import ufuncs as u
from fnx.scipy.stats.common import floats


def logpdf(x, loc=0, scale=1):
    """The logarithm of the density.

    >>> fnx.scipy.stats.laplace.logpdf(jnp.array([0.0, 1.0]))
    Array([-0.69314718, -1.69314718], dtype=float64)
    """
    x, loc, scale = floats("laplace.logpdf", x, loc, scale)
    return -(u.abs(x - loc) / scale + u.log(2 * scale))


def pdf(x, loc=0, scale=1):
    """The density.

    >>> fnx.scipy.stats.laplace.pdf(jnp.array([0.0, 1.0]))
    Array([0.5       , 0.18393972], dtype=float64)
    """
    return u.exp(logpdf(x, loc, scale))


def cdf(x, loc=0, scale=1):
    """The distribution function.

    >>> fnx.scipy.stats.laplace.cdf(jnp.array([0.0, 1.0]))
    Array([0.5       , 0.81606028], dtype=float64)
    """
    x, loc, scale = floats("laplace.cdf", x, loc, scale)
    z = (x - loc) / scale
    tail = 0.5 * u.exp(-u.abs(z))
    return u.where3(z <= 0, tail, 1 - tail)
