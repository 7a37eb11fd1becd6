"""The von Mises distribution."""

import math

from fnx.numpy.elementwise import ufuncs as u
from fnx.scipy import special
from fnx.scipy.stats.common import floats


def logpdf(x, kappa):
    """The logarithm of the density; nan where kappa is not positive.

    >>> fnx.scipy.stats.vonmises.logpdf(jnp.array([0.0, jnp.pi]), 1.0)
    Array([-1.07379142, -3.07379142], dtype=float64)
    """
    x, kappa = floats("vonmises.logpdf", x, kappa)
    found = kappa * (u.cos(x) - 1) - u.log(2 * math.pi * special.i0e(kappa))
    return u.where3(kappa > 0, found, math.nan)


def pdf(x, kappa):
    """The density.

    >>> fnx.scipy.stats.vonmises.pdf(jnp.array([0.0, jnp.pi]), 1.0)
    Array([0.34171049, 0.04624549], dtype=float64)
    """
    return u.exp(logpdf(x, kappa))
