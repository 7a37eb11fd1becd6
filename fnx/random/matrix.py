"""Random vectors and matrices: multivariate normal numbers, orthogonal matrices.

Factorizations are imported by the functions that use them: most programs that draw numbers have none.
"""

from typing import Any

from fnx.core import dtypes
from fnx.core.array import Array, as_array
from fnx.core.errors import InvalidValue, ShapeError
from fnx.ops.elementwise.arithmetic import abs_, add, div, mul, sign, sqrt
from fnx.ops.elementwise.select import eq, select
from fnx.ops.linalg import matrix as m
from fnx.ops.structure.basic import broadcast_to, convert, scalar
from fnx.random.continuous import normal_of
from fnx.random.keys import canonical_shape, words_of
from fnx.random.uniform import float_dtype, result_shape, sum_of_products

_METHODS = ("cholesky", "eigh", "svd")


def multivariate_normal(
    key: Any,
    mean: Any,
    cov: Any,
    shape: Any = None,
    dtype: Any = None,
    method: str = "cholesky",
    *,
    out_sharding: Any = None,
) -> Array:
    """Normal vectors of a mean (..., n) and a covariance (..., n, n): shape (*shape, n).

    `method` says how the covariance is factored; "eigh" and "svd" take singular ones.

    ShapeError for shapes that do not fit; ValueError for another method.

    >>> cov = jnp.array([[1.0, 0.9], [0.9, 1.0]])
    >>> x = fnx.random.multivariate_normal(fnx.random.key(0), jnp.zeros(2), cov, (2000,))
    >>> float(jnp.corrcoef(x.T)[0, 1].round(1))
    0.9
    """
    words = words_of(key, "multivariate_normal")
    if method not in _METHODS:
        raise InvalidValue(f"method of multivariate_normal is one of {_METHODS}, not {method!r}")
    mean, cov = as_array(mean), as_array(cov)
    pair = (mean.dtype, mean.aval.weak_type), (cov.dtype, cov.aval.weak_type)
    common = dtypes.to_inexact(dtypes.promote(pair)[0])
    mean, cov = convert(mean, common), convert(cov, common)
    dtype = common if dtype is None else float_dtype(dtype, "multivariate_normal", inexact=True)
    n = mean.shape[-1] if mean.shape else 0
    if not mean.shape or cov.shape[-2:] != (n, n):
        raise ShapeError(
            f"multivariate_normal needs a mean of shape (..., n) and a covariance of shape (..., n, n), "
            f"not {mean.shape} and {cov.shape}"
        )
    lead = [_Shaped(mean.shape[:-1]), _Shaped(cov.shape[:-2])]
    shape = result_shape("multivariate_normal", shape, *lead)  # type: ignore[arg-type]
    x = convert(normal_of(words, (*shape, n), dtype), common)
    factor = broadcast_to(_factor(cov, method), (*shape, n, n))
    product = sum_of_products(factor, m.repeat_rows(x, n))
    return add(broadcast_to(mean, (*shape, n)), product)


class _Shaped:
    """Something of which the shape alone is known."""

    def __init__(self, shape: tuple[int, ...]):
        self.shape = shape


def _symmetric(a: Array) -> Array:
    return mul(scalar(0.5, a.dtype), add(a, m.adjoint(a)))


def _factor(cov: Array, method: str) -> Array:
    from fnx.ops.linalg.eigen import SVD, Eigh
    from fnx.ops.linalg.factorizations import cholesky

    if method == "cholesky":
        return cholesky(_symmetric(cov))
    if method == "svd":
        s, u, _ = SVD(True)(cov)
        return mul(u, convert(m.repeat_rows(sqrt(s), cov.shape[-1]), u.dtype))
    v, w = Eigh()(_symmetric(cov))
    return mul(v, convert(m.repeat_rows(sqrt(w), cov.shape[-1]), v.dtype))


def orthogonal(
    key: Any,
    n: int,
    shape: Any = (),
    dtype: Any = None,
    m: int | None = None,
    *,
    out_sharding: Any = None,
) -> Array:
    """Orthogonal (unitary) matrices of shape (*shape, n, m), uniform by the Haar measure;.

    `m` is n by default.

    >>> q = fnx.random.orthogonal(fnx.random.key(0), 3)
    >>> bool(jnp.allclose(q @ q.T, jnp.eye(3)))
    True
    """
    from fnx.ops.linalg.eigen import QR

    words, dtype = words_of(key, "orthogonal"), float_dtype(dtype, "orthogonal", inexact=True)
    shape, (n, columns) = canonical_shape(shape), canonical_shape((n, n if m is None else m))
    tall, wide = max(n, columns), min(n, columns)
    q, r = QR(False)(normal_of(words, (*shape, tall, wide), dtype))
    return _with_phases(q, r, n < columns)


def _with_phases(q: Array, r: Array, turned: bool) -> Array:
    d = m.diagonal(r)
    if dtypes.is_complex(d.dtype):
        size = abs_(d)
        size = select(eq(size, scalar(0.0, size.dtype)), scalar(1.0, size.dtype), size)
        phase = div(d, convert(size, d.dtype))
    else:
        phase = sign(d)
    q = mul(q, m.repeat_rows(phase, q.shape[-2]))
    return m.swap(q) if turned else q
