"""Polynomials, as their coefficients, the highest first."""

from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError
from fnx.numpy import algebra
from fnx.numpy.algebra.products import dot
from fnx.numpy.arrays.creation import array
from fnx.numpy.arrays.traced_cache import replayed
from fnx.numpy.arrays.util import (
    convert,
    integer,
    promote,
    promote_inexact,
    reshape_to,
    strong,
    to_array,
)
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.numerics.calculus import convolve
from fnx.numpy.reductions import reduce
from fnx.numpy.reductions.cumulative import cumsum
from fnx.numpy.structure.joining import concatenate
from fnx.numpy.structure.ranges import vander
from fnx.numpy.structure.selection import where
from fnx.numpy.structure.shapes import ravel
from fnx.numpy.structure.sorting import argsort
from fnx.ops.base.broadcast import full as _full


@replayed("x")
def polyval(p, x, *, unroll=16):
    """The polynomial of coefficients p, highest first, at x, by Horner's rule.

    >>> jnp.polyval(jnp.array([1.0, 0.0, -1.0]), jnp.array([1.0, 3.0]))
    Array([0., 8.], dtype=float64)
    """
    del unroll
    p = array(p) if isinstance(p, (list, tuple)) else p
    p, x = promote("polyval", p, x)
    shape = np.broadcast_shapes(p.shape[1:], x.shape)
    out = _full(shape, 0, x.dtype)
    for k in range(p.shape[0]):
        out = ufuncs.add(ufuncs.multiply(out, x), p[k])
    return out


def _coefficients(name: str, a: Any, b: Any) -> list[Array]:
    a, b = (array(z) if isinstance(z, (list, tuple)) else z for z in (a, b))
    xs = promote(name, a, b)
    if not all([x.weak_type for x in xs]):
        xs = [strong(x) for x in xs]
    return [x if x.ndim else ravel(x) for x in xs]


def _two_polynomials(name: str, a: Any, b: Any) -> list[Array]:
    x, y = _coefficients(name, a, b)
    if x.ndim != 1 or y.ndim != 1:
        raise ShapeError(f"{name} of shapes {x.shape} and {y.shape}; expected two vectors")
    return [x, y]


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return all(n in (1, m) for n, m in zip(shape[::-1], to[::-1], strict=False))


def _sum(name: str, x: Array, y: Array) -> Array:
    """Aligned at their last rows; the shorter one's rows are broadcast to those of the longer one."""
    longer, shorter = (x, y) if y.shape[0] <= x.shape[0] else (y, x)
    rows = (shorter.shape[0], *longer.shape[1:])
    if shorter.ndim > longer.ndim or not _broadcasts(shorter.shape, rows):
        raise ShapeError(
            f"{name} of shapes {x.shape} and {y.shape}; expected rows of the shorter one that "
            f"broadcast to {rows}"
        )
    return longer.at[longer.shape[0] - shorter.shape[0] :].add(shorter)


def polyadd(a1, a2):
    """The sum of polynomials.

    >>> jnp.polyadd(jnp.array([1, 2]), jnp.array([1, 0, 0]))
    Array([1, 1, 2], dtype=int64)
    """
    return _sum("polyadd", *_coefficients("polyadd", a1, a2))


def polysub(a1, a2):
    """The difference of polynomials.

    >>> jnp.polysub(jnp.array([1, 2]), jnp.array([1, 0, 0]))
    Array([-1,  1,  2], dtype=int64)
    """
    x, y = _coefficients("polysub", a1, a2)
    return _sum("polysub", x, ufuncs.negative(y))


def _leading_zeros(x: Array) -> int:
    known = np.asarray(x)
    return known.size - np.trim_zeros(known, "f").size


def polymul(a1, a2, *, trim_leading_zeros=False):
    """The product of polynomials.

    >>> jnp.polymul(jnp.array([1, 1]), jnp.array([1, -1]))
    Array([ 1.,  0., -1.], dtype=float64)
    """
    x, y = promote_inexact("polymul", *_two_polynomials("polymul", a1, a2))
    if trim_leading_zeros:
        x, y = (z[min(_leading_zeros(z), z.shape[0] - 1) :] for z in (x, y))
    return convolve(x, y)


def polydiv(u, v, *, trim_leading_zeros=False):
    """Quotient and remainder of polynomials.

    >>> jnp.polydiv(jnp.array([1.0, 0.0, -1.0]), jnp.array([1.0, 1.0]))
    (Array([ 1., -1.], dtype=float64), Array([0., 0., 0.], dtype=float64))
    """
    a, b = _two_polynomials("polydiv", u, v)
    (a, b) = promote_inexact("polydiv", a, b)
    n, m = a.shape[0] - 1, b.shape[0] - 1
    steps = max(n - m + 1, 1)
    q = []
    for k in range(n - m + 1):
        d = a[k] / b[0]
        q.append(d)
        a = a.at[k : k + m + 1].add(-d * b)
    quotient = (
        strong(concatenate([reshape_to(d, (1,)) for d in q])) if q else _full((steps,), 0, a.dtype)
    )
    if trim_leading_zeros:
        a = array(np.trim_zeros(np.asarray(a), "f"))
    return quotient, a


def polyder(p, m=1):
    """The m-th derivative of a polynomial.

    >>> jnp.polyder(jnp.array([1.0, 2.0, 3.0]))
    Array([2., 2.], dtype=float64)
    """
    p = array(p) if isinstance(p, (list, tuple)) else to_array(p, "polyder")
    (p,) = promote_inexact("polyder", p)
    if integer(m, "m of polyder") < 0:
        raise InvalidValue(f"polyder with m={m}; expected at least 0")
    for _ in range(m):
        n = p.shape[0]
        p = ufuncs.multiply(p[:-1], array(np.arange(n - 1, 0, -1), p.dtype))
    return p


def polyint(p, m=1, k=None):
    """The m-th antiderivative of a polynomial, with constants k.

    >>> jnp.polyint(jnp.array([3.0, 2.0]))
    Array([1.5, 2. , 0. ], dtype=float64)
    """
    p = array(p) if isinstance(p, (list, tuple)) else to_array(p, "polyint")
    (p,) = promote_inexact("polyint", p)
    constants = [0] * m if k is None else list(np.broadcast_to(np.asarray(k), (m,)))
    for c in constants:
        n = p.shape[0]
        p = ufuncs.divide(p, array(np.arange(n, 0, -1), p.dtype))
        p = concatenate([p, _full((1,), float(c), p.dtype)])
    return p


@replayed()
def poly(seq_of_zeros):
    """The polynomial with these zeros, or the characteristic one of a matrix.

    >>> jnp.poly(jnp.array([1.0, -1.0]))
    Array([ 1.,  0., -1.], dtype=float64)
    """
    z = array(seq_of_zeros) if isinstance(seq_of_zeros, (list, tuple)) else to_array(seq_of_zeros)
    (z,) = promote_inexact("poly", z)
    if z.ndim == 2:
        z = algebra.factorizations.eigvals(z)
    z = ravel(z)
    p = _full((1,), 1, z.dtype)
    for k in range(z.shape[0]):
        p = concatenate([p, _full((1,), 0, z.dtype)]) - concatenate(
            [_full((1,), 0, z.dtype), p * z[k]]
        )
    return p


@replayed("rcond")
def polyfit(x, y, deg, rcond=None, full=False, w=None, cov=False):
    """The polynomial of degree `deg` that fits points best, by least squares.

    ShapeError for points that are no vectors of one length; ValueError for `cov` of too few
    points.

    >>> jnp.polyfit(jnp.array([0.0, 1.0, 2.0]), jnp.array([1.0, 3.0, 5.0]), 1).round(6)
    Array([2., 1.], dtype=float64)
    """
    x, y = promote_inexact("polyfit", x, y)
    if x.ndim != 1 or y.ndim not in (1, 2) or x.shape[0] != y.shape[0] or deg < 0:
        raise ShapeError(f"polyfit of degree {deg} of points of shapes {x.shape} and {y.shape}")
    n = x.shape[0]
    rcond = n * float(np.finfo(x.dtype).eps) if rcond is None else rcond
    lhs, rhs = vander(x, deg + 1), y
    if w is not None:
        (w,) = promote_inexact("polyfit", w)
        lhs = lhs * w[:, None]
        rhs = rhs * (w[:, None] if rhs.ndim == 2 else w)
    scale = ufuncs.sqrt(reduce.sum(lhs * lhs, axis=0))
    lhs = lhs / scale
    c, residuals, rank, s = algebra.systems.lstsq(lhs, rhs, rcond)
    c = (c.T / scale).T
    if full:
        return c, residuals, rank, s, rcond
    if not cov:
        return c
    base = algebra.systems.inv(dot(lhs.T, lhs)) / ufuncs.multiply(scale[:, None], scale[None])
    factor: Any = 1.0
    if cov != "unscaled":
        if n <= deg + 1:
            raise InvalidValue("polyfit with cov needs more points than coefficients")
        factor = residuals / (n - deg - 1)
    return (c, base * factor) if y.ndim == 1 else (c, base[:, :, None] * factor)


def roots(p, *, strip_zeros=True):
    """The zeros of a polynomial, complex; leading zeros are stripped, or make nan at the end.

    Values that are traced cannot be stripped: pass strip_zeros=False.

    ValueError for what is no vector.

    >>> jnp.sort(jnp.roots(jnp.array([1.0, -3.0, 2.0])).real).round(6)
    Array([1., 2.], dtype=float64)
    """
    p = array(p) if isinstance(p, (list, tuple)) else to_array(p, "roots")
    (p,) = promote_inexact("roots", p)
    if p.ndim != 1:
        raise InvalidValue(f"roots of shape {p.shape}; expected a vector")
    if not strip_zeros:
        return _roots_and_nan(p)
    known = np.asarray(p)
    kept = np.nonzero(known)[0]
    if not len(kept):
        return _full((0,), 0, dtypes.complex_of(p.dtype))
    zeros = _full((len(known) - 1 - int(kept[-1]),), 0, dtypes.complex_of(p.dtype))
    return concatenate([_eigenvalues(p[int(kept[0]) : int(kept[-1]) + 1]), zeros])


def _eigenvalues(p: Array) -> Array:
    """The roots of a polynomial with a first coefficient that is not zero."""
    n = p.shape[0]
    if n <= 1:
        return _full((0,), 0, dtypes.complex_of(p.dtype))
    companion = concatenate(
        [reshape_to(-p[1:] / p[0], (1, n - 1)), convert(array(np.eye(n - 2, n - 1)), p.dtype)]
    )
    return algebra.factorizations.eigvals(companion)


def _roots_and_nan(p: Array) -> Array:
    """With as many nan at the end as there are leading zeros, whose number may be traced."""
    place = np.arange(p.shape[0])
    leading = reduce.sum(ufuncs.equal(cumsum(ufuncs.not_equal(p, 0)), 0))
    p = where(ufuncs.equal(leading, p.shape[0]), 1, p)
    roots = _eigenvalues(p[ufuncs.remainder(ufuncs.add(place, leading), p.shape[0])])
    roots = roots[argsort(ufuncs.equal(roots, 0))]  # what the zeros became lies at the end
    count = roots.shape[0]
    return where(ufuncs.less(place[:count], count - leading), roots, complex(np.nan, np.nan))


__all__ = [
    "poly",
    "polyadd",
    "polyder",
    "polydiv",
    "polyfit",
    "polyint",
    "polymul",
    "polysub",
    "polyval",
    "roots",
]
