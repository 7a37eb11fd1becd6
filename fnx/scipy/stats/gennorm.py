"""The generalized normal distribution."""

from fnx.numpy.elementwise import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats.common import floats


def logpdf(x, beta):
    """The logarithm of the density.

    >>> fnx.scipy.stats.gennorm.logpdf(jnp.array([0.0, 1.0]), 1.0)
    Array([-0.69314718, -1.69314718], dtype=float64)
    """
    x, beta = floats("gennorm.logpdf", x, beta)
    return u.log(0.5 * beta) - special.gammaln(1 / beta) - u.power(u.abs(x), beta)


def pdf(x, beta):
    """The density.

    >>> fnx.scipy.stats.gennorm.pdf(jnp.array([0.0, 1.0]), 1.0)
    Array([0.5       , 0.18393972], dtype=float64)
    """
    return u.exp(logpdf(x, beta))


def cdf(x, beta):
    """The distribution function.

    >>> fnx.scipy.stats.gennorm.cdf(jnp.array([0.0, 1.0]), 1.0)
    Array([0.5       , 0.81606028], dtype=float64)
    """
    x, beta = floats("gennorm.cdf", x, beta)
    return 0.5 * (1 + u.sign(x) * special.gammainc(1 / beta, u.power(u.abs(x), beta)))
