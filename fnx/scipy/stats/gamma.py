"""The gamma distribution."""

from fnx.numpy.elementwise import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats.common import floats, inside


def logpdf(x, a, loc=0, scale=1):
    """The logarithm of the density.

    >>> fnx.scipy.stats.gamma.logpdf(jnp.array([1.0, 2.0]), 1.0)
    Array([-1., -2.], dtype=float64)
    """
    x, a, loc, scale = floats("gamma.logpdf", x, a, loc, scale)
    inner = x >= loc
    y = u.where3(inner, (x - loc) / scale, 1.0)
    return inside(inner, special.xlogy(a - 1, y) - y - (special.gammaln(a) + u.log(scale)), x)


def pdf(x, a, loc=0, scale=1):
    """The density.

    >>> fnx.scipy.stats.gamma.pdf(jnp.array([1.0, 2.0]), 1.0)
    Array([0.36787944, 0.13533528], dtype=float64)
    """
    return u.exp(logpdf(x, a, loc, scale))


def cdf(x, a, loc=0, scale=1):
    """The distribution function.

    >>> fnx.scipy.stats.gamma.cdf(jnp.array([1.0, 2.0]), 1.0)
    Array([0.63212056, 0.86466472], dtype=float64)
    """
    x, a, loc, scale = floats("gamma.cdf", x, a, loc, scale)
    return special.gammainc(a, u.maximum((x - loc) / scale, 0.0))


def logcdf(x, a, loc=0, scale=1):
    """The logarithm of the distribution function.

    >>> fnx.scipy.stats.gamma.logcdf(jnp.array([1.0, 2.0]), 1.0)
    Array([-0.45867515, -0.14541346], dtype=float64)
    """
    return u.log(cdf(x, a, loc, scale))


def sf(x, a, loc=0, scale=1):
    """1 - cdf, without cancellation.

    >>> fnx.scipy.stats.gamma.sf(jnp.array([1.0, 2.0]), 1.0)
    Array([0.36787944, 0.13533528], dtype=float64)
    """
    x, a, loc, scale = floats("gamma.sf", x, a, loc, scale)
    return special.gammaincc(a, u.maximum((x - loc) / scale, 0.0))


def logsf(x, a, loc=0, scale=1):
    """The logarithm of 1 - cdf.

    >>> fnx.scipy.stats.gamma.logsf(jnp.array([1.0, 2.0]), 1.0)
    Array([-1., -2.], dtype=float64)
    """
    return u.log(sf(x, a, loc, scale))
