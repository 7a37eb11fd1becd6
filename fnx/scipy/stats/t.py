"""Student's t distribution."""

import math

from fnx.numpy.elementwise import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats.common import floats


def logpdf(x, df, loc=0, scale=1):
    """The logarithm of the density.

    >>> fnx.scipy.stats.t.logpdf(jnp.array([0.0, 1.0]), 1.0)
    Array([-1.14472989, -1.83787707], dtype=float64)
    """
    x, df, loc, scale = floats("t.logpdf", x, df, loc, scale)
    y, half = (x - loc) / scale, df / 2
    norm = (
        0.5 * u.log(df * math.pi)
        + u.log(scale)
        + special.gammaln(half)
        - special.gammaln(half + 0.5)
    )
    return -norm - (half + 0.5) * u.log1p(u.square(y) / df)


def pdf(x, df, loc=0, scale=1):
    """The density.

    >>> fnx.scipy.stats.t.pdf(jnp.array([0.0, 1.0]), 1.0)
    Array([0.31830989, 0.15915494], dtype=float64)
    """
    return u.exp(logpdf(x, df, loc, scale))
