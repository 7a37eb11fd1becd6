"""Arrays joined, and cut in parts, along axes."""

import operator
from itertools import pairwise
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.numpy.arrays.util import (
    canonical_axis,
    convert,
    no_out,
    promote,
    reshape_to,
    to_array,
    to_arrays,
)
from fnx.numpy.structure.shapes import atleast_1d, atleast_2d, atleast_3d, moveaxis, ndim, ravel
from fnx.ops.base.permute import Reshape
from fnx.ops.structure.join import Concatenate, Split


def _sequence(name: str, arrays: Any) -> list[Array]:
    if isinstance(arrays, (Array, np.ndarray)):
        if arrays.ndim == 0:
            raise TypeMismatch(f"{name} needs a sequence of arrays, not one of rank 0")
        arrays = list(to_array(arrays, name))
    arrays = list(arrays)
    if not arrays:
        raise InvalidValue(f"{name} needs at least one array")
    return to_arrays(name, *arrays)


def _joined(name: str, arrays: list[Array], dtype: Any) -> list[Array]:
    if dtype is not None:
        wanted = dtypes.canonical(dtype)
        return [convert(x, wanted) for x in arrays]
    return promote(name, *arrays)


def concatenate(arrays, axis=0, dtype=None):
    """Arrays joined along an axis that they have.

    ShapeError for shapes that differ along other axes; ValueError for arrays of rank 0.

    >>> jnp.concatenate([jnp.array([1, 2]), jnp.array([3])])
    Array([1, 2, 3], dtype=int64)
    """
    xs = _joined("concatenate", _sequence("concatenate", arrays), dtype)
    if axis is None:
        xs, axis = [ravel(x) for x in xs], 0
    if xs[0].ndim == 0:
        raise InvalidValue("concatenate of arrays of rank 0; use stack, or reshape them")
    k = canonical_axis(axis, xs[0].ndim)
    rest = [(*x.shape[:k], *x.shape[k + 1 :]) for x in xs]
    if any(x.ndim != xs[0].ndim for x in xs) or any(r != rest[0] for r in rest):
        raise ShapeError(
            f"concatenate along axis {k} of arrays of shapes {[x.shape for x in xs]}; expected shapes "
            "that are equal but for that axis"
        )
    return xs[0] if len(xs) == 1 else Concatenate(k)(*xs)


def concat(arrays, /, *, axis=0):
    """As `concatenate`.

    >>> jnp.concat([jnp.array([1, 2]), jnp.array([3])])
    Array([1, 2, 3], dtype=int64)
    """
    return concatenate(arrays, axis)


def stack(arrays, axis=0, out=None, dtype=None):
    """Arrays of one shape joined along a new axis.

    ShapeError for different shapes.

    >>> jnp.stack([jnp.zeros(2), jnp.ones(2)])
    Array([[0., 0.],
           [1., 1.]], dtype=float64)
    """
    no_out("stack", out)
    xs = _joined("stack", _sequence("stack", arrays), dtype)
    if any(x.shape != xs[0].shape for x in xs):
        raise ShapeError(
            f"stack of arrays of shapes {[x.shape for x in xs]}; expected equal shapes"
        )
    k = canonical_axis(axis, xs[0].ndim + 1)
    shape = (*xs[0].shape[:k], 1, *xs[0].shape[k:])
    if len(xs) == 1:
        return Reshape(shape)(xs[0])
    return Concatenate(k)(*[Reshape(shape)(x) for x in xs])


def unstack(x, /, *, axis=0):
    """The slices along an axis.

    >>> jnp.unstack(jnp.array([[1, 2], [3, 4]]), axis=1)
    (Array([1, 3], dtype=int64), Array([2, 4], dtype=int64))
    """
    x = moveaxis(to_array(x, "unstack"), axis, 0)
    return tuple([x[k] for k in range(x.shape[0])])


def vstack(tup, dtype=None):
    """Rows, or arrays joined along axis 0.

    >>> jnp.vstack([jnp.zeros(2), jnp.ones(2)])
    Array([[0., 0.],
           [1., 1.]], dtype=float64)
    """
    xs = atleast_2d(*_sequence("vstack", tup))
    return concatenate(xs if isinstance(xs, list) else [xs], 0, dtype)


def hstack(tup, dtype=None):
    """Arrays joined along axis 1, vectors along axis 0.

    >>> jnp.hstack([jnp.zeros(1), jnp.ones(2)])
    Array([0., 1., 1.], dtype=float64)
    """
    xs = atleast_1d(*_sequence("hstack", tup))
    xs = xs if isinstance(xs, list) else [xs]
    return concatenate(xs, 0 if xs[0].ndim == 1 else 1, dtype)


def dstack(tup, dtype=None):
    """Arrays joined along axis 2.

    >>> jnp.dstack([jnp.array([1, 2]), jnp.array([3, 4])])
    Array([[[1, 3],
            [2, 4]]], dtype=int64)
    """
    xs = atleast_3d(*_sequence("dstack", tup))
    return concatenate(xs if isinstance(xs, list) else [xs], 2, dtype)


def column_stack(tup):
    """Vectors as columns.

    >>> jnp.column_stack([jnp.array([1, 2]), jnp.array([3, 4])])
    Array([[1, 3],
           [2, 4]], dtype=int64)
    """
    xs = [reshape_to(x, (x.size, 1)) if x.ndim < 2 else x for x in _sequence("column_stack", tup)]
    return concatenate(xs, 1)


def block(arrays):
    """Nested lists of blocks joined, the innermost along the last axis.

    >>> jnp.block([[jnp.eye(2), jnp.zeros((2, 1))], [jnp.ones((1, 3))]])
    Array([[1., 0., 0.],
           [0., 1., 0.],
           [1., 1., 1.]], dtype=float64)
    """

    def depth(x: Any) -> int:
        return 1 + max([depth(y) for y in x]) if isinstance(x, list) else 0

    levels = depth(arrays)

    def rank(x: Any) -> int:
        return max([rank(y) for y in x]) if isinstance(x, list) else to_array(x, "block").ndim

    n = max(rank(arrays), levels)

    def join(x: Any, level: int) -> Array:
        if not isinstance(x, list):
            x = to_array(x, "block")
            return reshape_to(x, (*(1,) * (n - x.ndim), *x.shape))
        return concatenate([join(y, level + 1) for y in x], axis=n - levels + level)

    return join(arrays, 0)


def append(arr, values, axis=None):
    """Arrays joined, flat by default.

    >>> jnp.append(jnp.array([[1, 2]]), jnp.array([[3, 4]]), axis=0)
    Array([[1, 2],
           [3, 4]], dtype=int64)
    """
    return concatenate([to_array(arr, "append"), to_array(values, "append")], axis)


def split(ary, indices_or_sections, axis=0):
    """Equal parts, or parts that end at indices.

    ValueError for a number that does not divide the axis.

    >>> jnp.split(jnp.arange(4), 2)
    [Array([0, 1], dtype=int64), Array([2, 3], dtype=int64)]
    """
    x = to_array(ary, "split")
    k = canonical_axis(axis, x.ndim)
    if np.ndim(indices_or_sections) == 0:
        parts = operator.index(indices_or_sections)
        if x.shape[k] % parts:
            raise InvalidValue(
                f"split of axis {k} of size {x.shape[k]} into {parts} equal parts; use array_split"
            )
    return array_split(x, indices_or_sections, k)


def array_split(ary, indices_or_sections, axis=0):
    """Parts that are nearly equal, or that end at indices.

    ValueError for less than one part.

    >>> jnp.array_split(jnp.arange(5), 2)
    [Array([0, 1, 2], dtype=int64), Array([3, 4], dtype=int64)]
    """
    x = to_array(ary, "array_split")
    k = canonical_axis(axis, x.ndim)
    n = x.shape[k]
    if np.ndim(indices_or_sections) == 0:
        parts = operator.index(indices_or_sections)
        if parts < 1:
            raise InvalidValue(f"array_split into {parts} parts; expected at least 1")
        sizes = tuple([n // parts + (i < n % parts) for i in range(parts)])
        return list(Split(k, sizes)(x))
    ends = [slice(operator.index(i)).indices(n)[1] for i in indices_or_sections]
    bounds = [0, *ends, n]
    if all(a <= b for a, b in pairwise(bounds)):
        return list(Split(k, tuple([b - a for a, b in pairwise(bounds)]))(x))
    lead = (slice(None),) * k
    return [x[(*lead, slice(a, b))] for a, b in pairwise(bounds)]


def hsplit(ary, indices_or_sections):
    """`split` along axis 1 (0 of vectors).

    >>> jnp.hsplit(jnp.arange(4), 2)
    [Array([0, 1], dtype=int64), Array([2, 3], dtype=int64)]
    """
    return split(ary, indices_or_sections, 0 if ndim(ary) == 1 else 1)


def vsplit(ary, indices_or_sections):
    """`split` along axis 0.

    >>> jnp.vsplit(jnp.array([[1, 2], [3, 4]]), 2)
    [Array([[1, 2]], dtype=int64), Array([[3, 4]], dtype=int64)]
    """
    return split(ary, indices_or_sections, 0)


def dsplit(ary, indices_or_sections):
    """`split` along axis 2.

    >>> [part.shape for part in jnp.dsplit(jnp.ones((2, 3, 4)), 2)]
    [(2, 3, 2), (2, 3, 2)]
    """
    return split(ary, indices_or_sections, 2)


__all__ = [
    "append",
    "array_split",
    "block",
    "column_stack",
    "concat",
    "concatenate",
    "dsplit",
    "dstack",
    "hsplit",
    "hstack",
    "split",
    "stack",
    "unstack",
    "vsplit",
    "vstack",
]
