"""The multivariate normal distribution."""

import math

from fnx.core.errors import ShapeError
from fnx.lax.linalg import cholesky, triangular_solve
from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.reductions import reduce
from fnx.numpy.structure.diagonals import diagonal
from fnx.numpy.structure.shapes import broadcast_shapes, broadcast_to
from fnx.scipy.stats.common import floats


def logpdf(x, mean, cov, allow_singular=None):
    """The logarithm of the density: components along the last axis; a scalar `cov` is a variance.

    ShapeError for a covariance of another shape; NotImplementedError for `allow_singular`.

    >>> fnx.scipy.stats.multivariate_normal.logpdf(jnp.zeros(2), jnp.zeros(2), jnp.eye(2))
    Array(-1.83787707, dtype=float64)
    """
    if allow_singular is not None:
        raise NotImplementedError("multivariate_normal with allow_singular; expected None")
    x, mean, cov = floats("multivariate_normal.logpdf", x, mean, cov)
    if not mean.shape:
        return -0.5 * (u.square(x - mean) / cov + math.log(2 * math.pi) + u.log(cov))
    n = mean.shape[-1]
    if not cov.shape:
        y = x - mean
        return -0.5 * (
            reduce.sum(u.square(y), axis=-1) / cov + n * (math.log(2 * math.pi) + u.log(cov))
        )
    if cov.ndim < 2 or cov.shape[-2:] != (n, n):
        raise ShapeError(
            f"multivariate_normal with mean of shape {mean.shape} and cov of {cov.shape}; expected "
            f"cov (..., {n}, {n})"
        )
    y = x - mean
    factor = cholesky(cov)
    lead = broadcast_shapes(y.shape[:-1], cov.shape[:-2])
    wide = broadcast_to(y, (*lead, n))[..., None]
    z = triangular_solve(broadcast_to(factor, (*lead, n, n)), wide, left_side=True, lower=True)
    size = reduce.sum(u.square(z[..., 0]), axis=-1)
    logs = reduce.sum(u.log(diagonal(factor, 0, -2, -1)), axis=-1)
    return -0.5 * size - 0.5 * n * math.log(2 * math.pi) - logs


def pdf(x, mean, cov):
    """The density.

    >>> fnx.scipy.stats.multivariate_normal.pdf(jnp.zeros(2), jnp.zeros(2), jnp.eye(2))
    Array(0.15915494, dtype=float64)
    """
    return u.exp(logpdf(x, mean, cov))
