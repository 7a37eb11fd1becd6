"""Linear systems, on stacks of matrices: solutions, inverses, determinants, ranks and powers."""

import math
from typing import Any, NamedTuple

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError
from fnx.numpy.algebra.einsums import einsum
from fnx.numpy.algebra.factorizations import matrix_of, pair_of, svd, symmetrized
from fnx.numpy.algebra.norms import norm
from fnx.numpy.algebra.products import matmul as _matmul
from fnx.numpy.arrays.scalar_types import finfo
from fnx.numpy.arrays.traced_cache import replayed
from fnx.numpy.arrays.util import common_shape, convert, integer, reshape_to, to_array
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.reductions import reduce
from fnx.numpy.structure.diagonals import diagonal as _diagonal
from fnx.numpy.structure.ranges import eye
from fnx.numpy.structure.selection import where
from fnx.numpy.structure.shapes import transpose
from fnx.ops.base.broadcast import broadcast_to, full, scalar
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.linalg import factorizations as prims
from fnx.ops.linalg import matrix as m


def solve(a, b):
    """x with a x = b; b is a vector if it has one axis, else a stack of matrices.

    ShapeError for matrices that are not square, and for b of another number of rows.

    >>> jnp.linalg.solve(jnp.array([[2.0, 0.0], [0.0, 4.0]]), jnp.ones(2))
    Array([0.5 , 0.25], dtype=float64)
    """
    x, y = pair_of("solve", a, b)
    x = matrix_of("solve", x, square=True)
    vector = y.ndim == 1
    if y.ndim == 0 or (y.shape[0] if vector else y.shape[-2]) != x.shape[-1]:
        raise ShapeError(
            f"linalg.solve of matrices of shape {x.shape} and right-hand sides of shape {y.shape}; "
            f"expected {x.shape[-1]} rows"
        )
    y = reshape_to(y, (*y.shape, 1)) if vector else y
    lead = common_shape("linalg.solve", [x.shape[:-2], y.shape[:-2]])
    x = broadcast_to(x, (*lead, *x.shape[-2:]))
    y = broadcast_to(y, (*lead, *y.shape[-2:]))
    out = prims.solve(x, y)
    return reshape_to(out, out.shape[:-1]) if vector else out


def inv(a):
    """The inverse of square matrices.

    >>> jnp.linalg.inv(jnp.array([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float64)
    """
    x = matrix_of("inv", a, square=True)
    return prims.solve(x, m.eye(x.shape, x.dtype))


def _lu(x: Array) -> tuple[Array, Array, Array]:
    """LU factors, pivots, and the sign of the permutation."""
    lu, pivots, _ = prims.lu(x)
    n = x.shape[-1]
    moved = ufuncs.not_equal(pivots, np.arange(n, dtype=np.int32))
    odd = ufuncs.remainder(reduce.sum(moved, axis=-1), 2)
    return lu, pivots, ufuncs.where3(ufuncs.equal(odd, 1), -1.0, 1.0)


def det(a):
    """Determinants.

    >>> jnp.linalg.det(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    Array(-2., dtype=float64)
    """
    x = matrix_of("det", a, square=True)
    n = x.shape[-1]
    if n == 0:
        return full(x.shape[:-2], 1, x.dtype)
    if n == 1:
        return x[..., 0, 0]
    if n == 2:
        return x[..., 0, 0] * x[..., 1, 1] - x[..., 0, 1] * x[..., 1, 0]
    if n == 3:
        return _det3(x)
    return prims.det(x)


def _det3(x: Array) -> Array:
    a, b, c, d, e, f, g, h, i = (x[..., j, k] for j in range(3) for k in range(3))
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)


class SlogdetResult(NamedTuple):
    """The sign of a determinant and the logarithm of its size.

    >>> jnp.linalg.slogdet(-2 * jnp.eye(3)).sign
    Array(-1., dtype=float64)
    """

    sign: Array
    logabsdet: Array


@replayed()
def slogdet(a, *, method=None):
    """The sign of determinants, and the logarithms of their sizes.

    ValueError for another method than 'lu' or 'qr'.

    >>> sign, log = jnp.linalg.slogdet(1e-200 * jnp.eye(3))  # det itself is less than any float
    >>> float(sign), bool(jnp.allclose(log, -600 * jnp.log(10.0)))
    (1.0, True)
    """
    if method not in (None, "lu", "qr"):
        raise InvalidValue(f"slogdet with method={method!r}; expected 'lu' or 'qr'")
    x = matrix_of("slogdet", a, square=True)
    if not dtypes.is_complex(x.dtype):
        given = ops.stop_gradient(x)
        lu, pivots, sign = _lu(given)
        signs = reduce.prod(ufuncs.sign(_diagonal(lu, 0, -2, -1)), axis=-1)
        logs = prims.Determinant(log=True)(x, lu, pivots)
        return SlogdetResult(ufuncs.multiply(convert(sign, x.dtype), signs), logs)
    lu, _, sign = _lu(x)
    d = _diagonal(lu, 0, -2, -1)
    size = ufuncs.abs(d)
    zero = reduce.any(ufuncs.equal(size, 0), axis=-1)
    # Not sign(d): a complex determinant's phase has a derivative.
    unit = ops.div(d, convert(ufuncs.where3(ufuncs.equal(size, 0), 1, size), d.dtype))
    sign = ufuncs.multiply(convert(sign, x.dtype), reduce.prod(unit, axis=-1))
    logs = reduce.sum(ufuncs.log(size), axis=-1)
    return SlogdetResult(
        ufuncs.where3(zero, scalar(0, x.dtype), sign),
        ufuncs.where3(zero, scalar(-math.inf, logs.dtype), logs),
    )


@replayed("rcond")
def lstsq(a, b, rcond=None, *, numpy_resid=False):
    """x that makes |a x - b| least, its residuals, the rank of a, and its singular values.

    Shapes (m, n), (m,) -> (n,), (1,), (), (min(m, n),); or (m, k) -> (n, k), (k,), ...

    ShapeError for other shapes.

    >>> a = jnp.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> line, residuals, rank, _ = jnp.linalg.lstsq(a, jnp.array([1.0, 3.0, 5.0]))
    >>> line.round(6), int(rank)
    (Array([1., 2.], dtype=float64), 2)
    """
    x, y = pair_of("lstsq", a, b)
    if x.ndim != 2 or y.ndim not in (1, 2) or x.shape[0] != y.shape[0]:
        raise ShapeError(
            f"linalg.lstsq of shapes {x.shape} and {y.shape}; expected (m, n) and (m,) or (m, k)"
        )
    vector = y.ndim == 1
    y = y[:, None] if vector else y
    rows, columns = x.shape
    u, s, vh = svd(x, full_matrices=False)
    cut = _eps(x) * max(rows, columns) if rcond is None else rcond
    keep = ufuncs.greater(s, 0)
    if s.shape[0]:
        keep = ufuncs.logical_and(keep, ufuncs.greater_equal(s, ufuncs.multiply(cut, s[0])))
    rank = reduce.sum(keep)
    inverse = ufuncs.where3(keep, ufuncs.divide(1.0, ufuncs.where3(keep, s, 1.0)), 0.0)
    inverse = inverse.astype(x.dtype)[:, None]
    out = _matmul(m.adjoint(vh), ufuncs.multiply(inverse, _matmul(m.adjoint(u), y)))
    left = ufuncs.subtract(y, _matmul(x, out))
    residuals = reduce.sum(ufuncs.square(ufuncs.abs(left)), axis=0)
    if numpy_resid and (rows <= columns or int(rank) < columns):
        residuals = residuals[:0]
    return (out[:, 0] if vector else out), residuals, rank, s


def _eps(x: Array) -> float:
    return float(finfo(x.dtype).eps)


@replayed("rtol", "rcond")
def pinv(a, rtol=None, hermitian=False, *, rcond=None):
    """The pseudo-inverses (Moore and Penrose) of matrices, by their singular values.

    Values up to `rtol` times the largest count as zero; by default 10 times the larger size times the
    rounding of the dtype. `rcond` is another name for it: ValueError for both. ShapeError for vectors.

    >>> jnp.linalg.pinv(jnp.array([[2.0, 0.0], [0.0, 0.0], [0.0, 4.0]])).shape
    (2, 3)
    >>> float(jnp.linalg.pinv(jnp.array([[2.0], [0.0]]))[0, 0].round(6))
    0.5
    """
    x = matrix_of("pinv", a)
    rtol = _one_of("pinv", "rcond", rcond, rtol)
    if rtol is None:
        rtol = 10.0 * max(x.shape[-2:]) * _eps(x)
    x = symmetrized(x) if hermitian else x
    u, s, vh = svd(ops.stop_gradient(x), full_matrices=False, hermitian=hermitian)
    cut = ufuncs.multiply(to_array(rtol)[..., None], s[..., :1])
    keep = ufuncs.greater(s, cut)
    inverse = ufuncs.where3(keep, ufuncs.divide(1.0, ufuncs.where3(keep, s, 1.0)), 0.0)
    scaled = ufuncs.multiply(convert(inverse, x.dtype)[..., None], m.adjoint(u))
    return prims.pseudo_inverse(x, _matmul(m.adjoint(vh), scaled))


def _one_of(name: str, other: str, given: Any, rtol: Any) -> Any:
    if given is not None and rtol is not None:
        raise InvalidValue(f"{name} with both rtol={rtol!r} and {other}={given!r}; expected one")
    return given if rtol is None else rtol


@replayed("rtol", "tol")
def matrix_rank(M, rtol=None, *, hermitian=False, tol=None):
    """The number of singular values above `tol`, or above `rtol` times the largest one.

    >>> jnp.linalg.matrix_rank(jnp.array([[1.0, 2.0], [2.0, 4.0]]))
    Array(1, dtype=int64)
    """
    x = to_array(M, "linalg.matrix_rank")
    if x.ndim < 2:
        return reduce.any(ufuncs.not_equal(x, 0)).astype("int32")
    x = matrix_of("matrix_rank", x)
    s = svd(x, compute_uv=False, hermitian=hermitian)
    if _one_of("matrix_rank", "tol", tol, rtol) is None:
        rtol = max(x.shape[-2:]) * _eps(x)
    cut = to_array(tol) if tol is not None else to_array(rtol) * reduce.max(s, axis=-1)
    return reduce.sum(ufuncs.greater(s, cut[..., None]), axis=-1)


def matrix_power(a, n):
    """Products of a square matrix with itself; of its inverse for negative n.

    ShapeError for matrices that are not square.

    >>> jnp.linalg.matrix_power(jnp.array([[1, 1], [1, 0]]), 10)
    Array([[89, 55],
           [55, 34]], dtype=int64)
    """
    x = to_array(a, "linalg.matrix_power")
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"linalg.matrix_power of shape {x.shape}; expected square matrices")
    n = integer(n, "n")
    if n == 0:
        return broadcast_to(eye(x.shape[-1], dtype=x.dtype), x.shape)
    if n < 0:
        x, n = inv(x), -n
    out = None
    while n:
        if n & 1:
            out = x if out is None else _matmul(out, x)
        n >>= 1
        if n:
            x = _matmul(x, x)
    return out


def multi_dot(arrays, *, precision=None):
    """The product of matrices in the cheapest order.

    ValueError for fewer than two; ShapeError for what are no matrices (the first and the last
    may be vectors).

    >>> jnp.linalg.multi_dot([jnp.ones((2, 9)), jnp.ones((9, 9)), jnp.ones(9)])
    Array([81., 81.], dtype=float64)
    """
    xs = [to_array(x, "linalg.multi_dot") for x in arrays]
    if len(xs) < 2:
        raise InvalidValue("multi_dot needs at least two arrays")
    letters = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    last = None
    terms = []
    for k, x in enumerate(xs):
        if x.ndim not in ((1, 2) if k in (0, len(xs) - 1) else (2,)):
            raise ShapeError(f"multi_dot: array {k} has shape {x.shape}; expected a matrix")
        first = last if last is not None else ("" if x.ndim == 1 else next(letters))
        last = next(letters) if x.ndim == 2 or k == 0 else ""
        terms.append(first + last)
    head = terms[0][0] if xs[0].ndim == 2 else ""
    tail = terms[-1][-1] if xs[-1].ndim == 2 else ""
    return einsum(f"{','.join(terms)}->{head}{tail}", *xs)


@replayed()
def cond(x, p=None):
    """The condition number.

    >>> jnp.linalg.cond(jnp.diag(jnp.array([8.0, 2.0])))
    Array(4., dtype=float64)
    """
    x = matrix_of("cond", x)
    if p in (None, 2, -2):
        s = svd(x, compute_uv=False)
        return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    out = norm(x, p, (-2, -1)) * norm(inv(x), p, (-2, -1))
    bad = ufuncs.logical_and(
        ufuncs.isnan(out), ufuncs.logical_not(reduce.any(ufuncs.isnan(x), axis=(-2, -1)))
    )
    return where(bad, math.inf, out)


def tensorsolve(a, b, axes=None):
    """x with tensordot(a, x, x.ndim) = b.

    >>> a = jnp.eye(6).reshape(2, 3, 6)
    >>> jnp.linalg.tensorsolve(a, jnp.arange(6.0).reshape(2, 3))
    Array([0., 1., 2., 3., 4., 5.], dtype=float64)
    """
    x, y = pair_of("tensorsolve", a, b)
    if axes is not None:
        order = [k for k in range(x.ndim) if k not in axes] + list(axes)
        x = transpose(x, order)
    shape = x.shape[y.ndim :]
    n = math.prod(shape)
    out = solve(reshape_to(x, (y.aval.size, n)), reshape_to(y, (y.aval.size,)))
    return reshape_to(out, shape)


def tensorinv(a, ind=2):
    """The inverse of `tensordot` with a.

    ValueError for `ind` below 1.

    >>> jnp.linalg.tensorinv(jnp.eye(6).reshape(2, 3, 6)).shape
    (6, 2, 3)
    """
    x = pair_of("tensorinv", a, 0.0)[0]
    if ind <= 0:
        raise InvalidValue(f"tensorinv with ind={ind}; expected at least 1")
    head, tail = x.shape[:ind], x.shape[ind:]
    out = inv(reshape_to(x, (math.prod(head), math.prod(tail))))
    return reshape_to(out, (*tail, *head))
