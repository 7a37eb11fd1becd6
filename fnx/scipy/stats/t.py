"""Student's t distribution."""

import math

from fnx.numpy import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats.common import floats


def logpdf(x, df, loc=0, scale=1):
    """The logarithm of the density."""
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
    """The density."""
    return u.exp(logpdf(x, df, loc, scale))
