"""The generalized normal distribution."""

from fnx.numpy import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats.common import floats


def logpdf(x, beta):
    """The logarithm of the density."""
    x, beta = floats("gennorm.logpdf", x, beta)
    return u.log(0.5 * beta) - special.gammaln(1 / beta) - u.power(u.abs(x), beta)


def pdf(x, beta):
    """The density."""
    return u.exp(logpdf(x, beta))


def cdf(x, beta):
    """The distribution function."""
    x, beta = floats("gennorm.cdf", x, beta)
    return 0.5 * (1 + u.sign(x) * special.gammainc(1 / beta, u.power(u.abs(x), beta)))
