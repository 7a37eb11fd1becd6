"""The Dirichlet distribution."""

from fnx.core.errors import ShapeError
from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.reductions import reduce
from fnx.numpy.structure.joining import concatenate
from fnx.scipy import special
from fnx.scipy.stats.common import floats, inside


def logpdf(x, alpha):
    """The logarithm of the density at points of the simplex: the components along the first axis.

    ShapeError for an alpha that is no vector, and for another number of components.

    >>> fnx.scipy.stats.dirichlet.logpdf(jnp.array([0.2, 0.8]), jnp.array([1.0, 2.0]))
    Array(0.47000363, dtype=float64)
    """
    x, alpha = floats("dirichlet.logpdf", x, alpha)
    if alpha.ndim != 1:
        raise ShapeError(f"dirichlet with alpha of shape {alpha.shape}; expected a vector")
    if x.shape[:1] not in (alpha.shape, (alpha.shape[0] - 1,)):
        raise ShapeError(
            f"dirichlet of x of shape {x.shape} and alpha of {alpha.shape}; expected as many "
            "components, or one less"
        )
    if x.shape[0] != alpha.shape[0]:
        x = concatenate([x, 1 - reduce.sum(x, axis=0, keepdims=True)], axis=0)
    norm = reduce.sum(special.gammaln(alpha)) - special.gammaln(reduce.sum(alpha))
    wide = alpha.reshape(-1, *(1,) * (x.ndim - 1))
    found = reduce.sum(special.xlogy(wide - 1, x), axis=0) - norm
    total = reduce.sum(x, axis=0)
    sums = u.abs(total - 1) < 1e-6
    return inside(u.logical_and(reduce.all(x > 0, axis=0), sums), found, total)


def pdf(x, alpha):
    """The density.

    >>> fnx.scipy.stats.dirichlet.pdf(jnp.array([0.2, 0.8]), jnp.array([1.0, 2.0]))
    Array(1.6, dtype=float64)
    """
    return u.exp(logpdf(x, alpha))
