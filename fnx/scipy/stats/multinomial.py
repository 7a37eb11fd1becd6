"""The multinomial distribution."""

from fnx.numpy.arrays.util import to_arrays
from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.reductions import reduce
from fnx.scipy import special
from fnx.scipy.stats.common import floats, inside


def logpmf(x, n, p):
    """The logarithm of the probabilities: counts and probabilities along the last axis.

    >>> fnx.scipy.stats.multinomial.logpmf(jnp.array([1, 1]), 2, jnp.array([0.5, 0.5]))
    Array(-0.69314718, dtype=float64)
    """
    (p,) = floats("multinomial.logpmf", p)
    x, n = (v.astype(p.dtype) for v in to_arrays("multinomial.logpmf", x, n))
    found = special.gammaln(n + 1) + reduce.sum(
        special.xlogy(x, p) - special.gammaln(x + 1), axis=-1
    )
    total = reduce.sum(x, axis=-1)
    return inside(u.equal(total, n), found, total)


def pmf(x, n, p):
    """The probabilities.

    >>> fnx.scipy.stats.multinomial.pmf(jnp.array([1, 1]), 2, jnp.array([0.5, 0.5]))
    Array(0.5, dtype=float64)
    """
    return u.exp(logpmf(x, n, p))
