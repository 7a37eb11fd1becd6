"""Vector quantization."""

from fnx.core.errors import ShapeError
from fnx.numpy.arrays.public_calls import serve as _retell
from fnx.numpy.arrays.util import promote_inexact
from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.linalg import norm
from fnx.numpy.reductions import reduce


def vq(obs, code_book, check_finite=True):
    """For each observation the number of the nearest code, and the distance to it.

    ShapeError for other shapes than (m, n) and (k, n), or two vectors.

    >>> codes = jnp.array([[0.0, 0.0], [10.0, 0.0]])
    >>> fnx.scipy.cluster.vq.vq(jnp.array([[1.0, 0.0], [10.0, 3.0]]), codes)
    (Array([0, 1], dtype=int64), Array([1., 3.], dtype=float64))
    """
    del check_finite
    x, codes = promote_inexact("vq", obs, code_book)
    if x.ndim != codes.ndim or x.ndim not in (1, 2) or x.shape[1:] != codes.shape[1:]:
        raise ShapeError(
            f"vq of shapes {x.shape} and {codes.shape}; expected (m, n) and (k, n), or two vectors"
        )
    if x.ndim == 1:
        x, codes = x[:, None], codes[:, None]
    distances = norm(u.subtract(x[:, None], codes[None]), axis=-1)
    return reduce.argmin(distances, axis=-1), reduce.min(distances, axis=-1)


__all__ = ["vq"]

_retell(globals())
