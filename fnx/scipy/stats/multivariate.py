"""Distributions of vectors."""

import math

from fnx.core.errors import InvalidValue
from fnx.numpy import linalg, reduce
from fnx.numpy import ufuncs as u
from fnx.numpy.shape import diagonal
from fnx.numpy.util import promote_inexact
from fnx.scipy import special as s
from fnx.scipy.linalg import solve_triangular
from fnx.scipy.stats.distribution import Distribution

_LOG_2PI = math.log(2 * math.pi)


def _normal_logpdf(x, mean, cov, allow_singular=None):
    """The logarithm of the normal density; `cov` is a matrix, or the variance of all components."""
    if allow_singular is not None:
        raise InvalidValue("multivariate_normal with allow_singular is not supported")
    x, mean, cov = promote_inexact("stats.multivariate_normal", x, mean, cov)
    if not mean.shape and not cov.shape:
        z = x - mean
        return -0.5 * (z * z / cov + _LOG_2PI + u.log(cov))
    n = mean.shape[-1] if mean.shape else cov.shape[-1]
    if not cov.shape:
        z = x - mean
        return -0.5 * (reduce.sum(z * z, axis=-1) / cov + n * (_LOG_2PI + u.log(cov)))
    if cov.ndim < 2 or cov.shape[-1] != n or cov.shape[-2] != n:
        raise InvalidValue(f"multivariate_normal of mean {mean.shape} with cov {cov.shape}; expected (n, n)")
    low = linalg.cholesky(cov)
    z = (x - mean)[..., None]
    y = solve_triangular(low, z, lower=True)[..., 0]
    logs = reduce.sum(u.log(diagonal(low, 0, -2, -1)), axis=-1)
    return -0.5 * (reduce.sum(y * y, axis=-1) + n * _LOG_2PI) - logs


multivariate_normal = Distribution("multivariate_normal", logpdf=_normal_logpdf)


def _dirichlet_logpdf(x, alpha):
    """The logarithm of Dirichlet's density; components lie along axis 0, and may leave out the last."""
    x, alpha = promote_inexact("stats.dirichlet", x, alpha)
    if x.shape[0] == alpha.shape[0] - 1:
        from fnx.numpy.shape import concatenate

        x = concatenate([x, 1 - reduce.sum(x, axis=0, keepdims=True)])
    if x.shape[0] != alpha.shape[0]:
        raise InvalidValue(f"dirichlet of x {x.shape} with alpha {alpha.shape}; expected equal axes 0")
    size = reduce.sum(s.gammaln(alpha)) - s.gammaln(reduce.sum(alpha))
    powers = (alpha - 1).reshape((-1,) + (1,) * (x.ndim - 1))
    out = reduce.sum(s.xlogy(powers, x), axis=0) - size
    ok = (u.abs(reduce.sum(x, axis=0) - 1) < 1e-6) & reduce.all(x >= 0, axis=0)
    return u.where3(ok, out, -math.inf)


dirichlet = Distribution("dirichlet", logpdf=_dirichlet_logpdf)

__all__ = ["dirichlet", "multivariate_normal"]
