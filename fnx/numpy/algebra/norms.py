"""Norms of vectors and matrices."""

import math
from typing import Any

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.numpy.algebra.factorizations import svd
from fnx.numpy.arrays.util import canonical_axes, convert, promote_inexact, reshape_to, to_array
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.reductions import reduce
from fnx.numpy.structure.shapes import expand_dims, moveaxis
from fnx.ops.elementwise import arithmetic as ops


def norm(x, ord=None, axis=None, keepdims=False):
    """The norm of vectors or matrices; by default the square root of the sum of squares.

    ValueError for an unknown order, and for one over more than two axes.

    >>> jnp.linalg.norm(jnp.array([3.0, 4.0]))
    Array(5., dtype=float64)
    """
    (x,) = promote_inexact("linalg.norm", x)
    if axis is None:
        if ord is None:
            total = reduce.sum(_square(x), keepdims=keepdims)
            return ufuncs.sqrt(total)
        axis = tuple(range(x.ndim))
    axes = canonical_axes(axis, x.ndim)
    if len(axes) == 1:
        return _vector_norm(x, ord, axes[0], keepdims)
    if len(axes) == 2:
        return _matrix_norm(x, ord, axes, keepdims)
    if ord is None:
        return ufuncs.sqrt(reduce.sum(_square(x), axes, keepdims=keepdims))
    raise InvalidValue(f"norm over axes {axes}; expected one or two")


def _square(x: Array) -> Array:
    if dtypes.is_complex(x.dtype):
        return ops.real(ops.mul(x, ops.conj(x)))
    return ops.mul(x, x) if x.weak_type else ops.square(x)


def _vector_norm(x: Array, ord: Any, axis: int, keepdims: bool) -> Array:
    options: dict[str, Any] = {"axis": axis, "keepdims": keepdims}
    if ord is None or ord == 2:
        return ufuncs.sqrt(reduce.sum(_square(x), **options))
    size = ufuncs.abs(x)
    if ord == math.inf:
        return reduce.max(size, initial=0.0, **options)
    if ord == -math.inf:
        return reduce.min(size, **options)
    if ord == 0:
        return reduce.sum(convert(ufuncs.not_equal(x, 0), size.dtype), **options)
    if ord == 1:
        return reduce.sum(size, **options)
    if isinstance(ord, str):
        raise InvalidValue(f"norm of a vector with ord={ord!r}; expected a number")
    return ufuncs.power(reduce.sum(ufuncs.power(size, ord), **options), ufuncs.divide(1.0, ord))


def _largest(x: Array, axis: int, keepdims: bool = True) -> Array:
    return reduce.max(x, axis, keepdims=keepdims, initial=0.0)


def _matrix_norm(x: Array, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Array:
    if ord in (None, "f", "fro"):
        return ufuncs.sqrt(reduce.sum(_square(x), axes, keepdims=keepdims))
    row, column = axes
    if ord in (1, -1, math.inf, -math.inf):
        first, second = (row, column) if ord in (1, -1) else (column, row)
        sums = reduce.sum(ufuncs.abs(x), first, keepdims=True)
        out = _largest(sums, second) if ord > 0 else reduce.min(sums, second, keepdims=True)
    elif ord in (2, -2, "nuc"):
        s = svd(moveaxis(x, axes, (-2, -1)), compute_uv=False)
        fold = {2: _largest, -2: reduce.min, "nuc": reduce.sum}[ord]
        out = expand_dims(fold(s, axis=-1, keepdims=True)[..., 0], axes)
    else:
        raise InvalidValue(
            f"norm of a matrix with ord={ord!r}; expected 1, 2, inf, 'fro', 'nuc', ..."
        )
    if keepdims:
        return out
    return reshape_to(out, tuple([n for k, n in enumerate(out.shape) if k not in axes]))


def matrix_norm(x, /, *, keepdims=False, ord="fro"):
    """Norms of the matrices in the last two axes.

    >>> jnp.linalg.matrix_norm(jnp.array([[3.0, 0.0], [0.0, 4.0]]))
    Array(5., dtype=float64)
    >>> jnp.linalg.matrix_norm(jnp.array([[3.0, 0.0], [0.0, 4.0]]), ord=jnp.inf)
    Array(4., dtype=float64)
    """
    return norm(x, ord, (-2, -1), keepdims)


def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
    """Norms of vectors along axes, by default of all elements.

    >>> jnp.linalg.vector_norm(jnp.array([3.0, -4.0]))
    Array(5., dtype=float64)
    >>> jnp.linalg.vector_norm(jnp.array([3.0, -4.0]), ord=1)
    Array(7., dtype=float64)
    """
    x = to_array(x, "linalg.vector_norm")
    if axis is None or isinstance(axis, (tuple, list)):
        axes = canonical_axes(axis, x.ndim)
        rest = [k for k in range(x.ndim) if k not in axes]
        shape = [1 if k in axes else n for k, n in enumerate(x.shape)]
        x = moveaxis(x, axes, range(len(rest), x.ndim)) if axes else x
        x = reshape_to(x, (*x.shape[: len(rest)], math.prod(x.shape[len(rest) :])))
        out = norm(x, ord, -1)
        return reshape_to(out, tuple(shape)) if keepdims else out
    return norm(x, ord, axis, keepdims)
