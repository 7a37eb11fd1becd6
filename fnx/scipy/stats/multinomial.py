"""The multinomial distribution."""

from fnx.numpy import reduce
from fnx.numpy import ufuncs as u
from fnx.numpy.util import to_arrays
from fnx.scipy import special
from fnx.scipy.stats.common import floats, inside


def logpmf(x, n, p):
    """The logarithm of the probabilities: counts and probabilities along the last axis."""
    (p,) = floats("multinomial.logpmf", p)
    x, n = (v.astype(p.dtype) for v in to_arrays("multinomial.logpmf", x, n))
    found = special.gammaln(n + 1) + reduce.sum(
        special.xlogy(x, p) - special.gammaln(x + 1), axis=-1
    )
    return inside(u.equal(reduce.sum(x, axis=-1), n), found)


def pmf(x, n, p):
    """The probabilities."""
    return u.exp(logpmf(x, n, p))
