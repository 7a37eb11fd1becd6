"""Sorting, searching, counting and sets: sort, searchsorted, nonzero, unique, bincount, histogram."""

from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray, as_placed
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.numpy.arrays.util import (
    canonical_axis,
    convert,
    eager,
    integer,
    integers,
    promote,
    promote_inexact,
    select,
    strong,
    to_array,
)
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.structure.selection import take, where
from fnx.numpy.structure.shapes import ravel
from fnx.numpy.structure.tiling import flip
from fnx.ops.base.broadcast import full as _full
from fnx.ops.base.broadcast import scalar
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.reduction.sorting import Sort, TopK
from fnx.ops.structure.join import Iota

# --- sorting ------------------------------------------------------------------------------------


def _sortable(a: Any, axis: Any, name: str) -> tuple[Array, int]:
    x = to_array(a, name)
    if axis is None:
        x, axis = ravel(x), 0
    return x, canonical_axis(axis, x.ndim)


def sort_keys(x: Array) -> list[Array]:
    """What complex numbers are sorted by: the real, then the imaginary part."""
    return [ops.real(x), ops.imag(x)] if dtypes.is_complex(x.dtype) else [x]


def sort(a, axis=-1, *, kind=None, order=None, stable=True, descending=False):
    """The elements in increasing order along an axis; nan last.

    >>> jnp.sort(jnp.array([3, 1, 2]))
    Array([1, 2, 3], dtype=int64)
    """
    _no_order(order)
    x, k = _sortable(a, axis, "sort")
    keys = sort_keys(x)
    if len(keys) == 1:
        out = Sort(k, stable, 1)(x)[0]
    else:
        out = Sort(k, stable, 2)(*keys, x)[2]
    return flip(out, k) if descending else out


def _no_order(order: Any) -> None:
    if order is not None:
        raise InvalidValue("order= names fields of structured arrays, which do not exist here")


def argsort(a, axis=-1, *, kind=None, order=None, stable=True, descending=False, dtype=None):
    """The positions that sort along an axis, nan last; of a flattened array for the axis None.

    AxisError, a ValueError, for an axis out of bounds; ValueError for `order`.

    >>> jnp.argsort(jnp.array([3.0, 1.0, 2.0]))
    Array([1, 2, 0], dtype=int64)
    """
    _no_order(order)
    x, k = _sortable(a, axis, "argsort")
    places = Iota(k, dtypes.default_for("i"), x.shape)()
    if descending:
        # Equal elements keep their order: sort the reversed array, and read it backwards.
        x, places = flip(x, k), flip(places, k)
    keys = sort_keys(x)
    out = Sort(k, stable, len(keys))(*keys, places)[-1]
    out = flip(out, k) if descending else out
    return out if dtype is None else convert(out, dtypes.canonical(dtype))


def lexsort(keys, axis=-1):
    """The positions that sort by several keys, the last one first.

    TypeError without keys; ShapeError for keys of different shapes.

    >>> jnp.lexsort((jnp.array([3, 1, 2]), jnp.array([0, 1, 0])))
    Array([2, 0, 1], dtype=int64)
    """
    xs = [to_array(k, "lexsort") for k in keys]
    if not xs:
        raise TypeMismatch("lexsort needs at least one key")
    if any(x.shape != xs[0].shape for x in xs):
        raise ShapeError(f"lexsort of shapes {[x.shape for x in xs]}; expected keys of one shape")
    index = dtypes.default_for("i")
    if not xs[0].ndim:
        return scalar(0, index)
    k = canonical_axis(axis, xs[0].ndim)
    places = Iota(k, index, xs[0].shape)()
    return Sort(k, True, len(xs))(*xs[::-1], places)[-1]


def sort_complex(a):
    """Complex numbers sorted by real, then imaginary part.

    >>> jnp.sort_complex(jnp.array([2 + 1j, 1 + 5j, 2 - 1j]))
    Array([1.+5.j, 2.-1.j, 2.+1.j], dtype=complex128)
    """
    (x,) = promote_inexact("sort_complex", a)
    return strong(sort(convert(x, dtypes.complex_of(x.dtype))))


def partition(a, kth, axis=-1):
    """The elements with the kth at its place, smaller ones before, larger ones after.

    >>> jnp.partition(jnp.array([7, 1, 5, 3]), 1)[1]
    Array(3, dtype=int64)
    """
    _check_kth("partition", a, kth, axis)
    return sort(a, axis)


def _check_kth(name: str, a: Any, kth: Any, axis: int) -> None:
    shape = to_array(a, name).shape
    for k in integers(
        kth if np.iterable(kth) and not isinstance(kth, str) else (kth,), f"kth of {name}"
    ):
        canonical_axis(k, shape[canonical_axis(axis, len(shape))], f"kth of {name}")


def argpartition(a, kth, axis=-1):
    """The positions that partition, int32.

    >>> x = jnp.array([7, 1, 5, 3])
    >>> x[jnp.argpartition(x, 1)[1]]
    Array(3, dtype=int64)
    """
    _check_kth("argpartition", a, kth, axis)
    return argsort(a, axis, dtype=np.int32)


def searchsorted(a, v, side="left", sorter=None, *, method="scan"):
    """Where to insert v into sorted a, before (left) or after (right) equal elements.

    ValueError for another side than 'left' or 'right', and for an a that is no vector.

    >>> jnp.searchsorted(jnp.array([1.0, 2.0, 3.0]), 2.5)
    Array(2, dtype=int32)
    """
    del method
    if side not in ("left", "right"):
        raise InvalidValue(f"searchsorted with side={side!r}; expected 'left' or 'right'")
    x, y = promote("searchsorted", a, v)
    if x.ndim != 1:
        raise InvalidValue(f"searchsorted in an array of shape {x.shape}; expected a vector")
    if sorter is not None:
        x = take(x, sorter)
    n = x.shape[0]
    wide = _place_dtype(n)
    if type(x) is type(y) is ConcreteArray and eager() and x.dtype.kind in "iufb":
        found = np.asarray(np.searchsorted(x._value, y._value, side), wide)
        return as_placed(ConcreteArray(found), y)
    # By bisection, in as many steps as the length has bits, so that nothing depends on values.
    low = _full(y.shape, 0, wide)
    if n == 0:
        return low
    high = _full(y.shape, n, wide)
    before = ufuncs.less if side == "left" else ufuncs.less_equal
    for _ in range(n.bit_length()):
        half = ops.shift_right_logical(ops.sub(high, low), scalar(1, wide))
        middle = ops.add(low, half)
        at = take(x, ops.min_(middle, scalar(n - 1, wide)), mode="clip")
        right = _nan_last(before, at, y)
        active = ops.lt(low, high)
        low, high = (
            select(ops.and_(active, right), ops.add(middle, scalar(1, wide)), low),
            select(ops.and_(active, ops.not_(right)), middle, high),
        )
    return low


def _place_dtype(n: int) -> np.dtype:
    """The dtype of places among n elements: JAX's, int32 while they fit."""
    return dtypes.int32 if n < 1 << 31 else dtypes.int64


def _nan_last(before: Any, x: Array, y: Array) -> Array:
    """The order in which nan is larger than all."""
    out = before(x, y)
    if not dtypes.is_inexact(x.dtype):
        return out
    x_nan, y_nan = ops.ne(x, x), ops.ne(y, y)
    with_nan = ops.not_(x_nan) if before is ufuncs.less else scalar(True, dtypes.bool_)
    return select(
        y_nan, with_nan if with_nan.shape == y.shape else _full(y.shape, True, dtypes.bool_), out
    )


def digitize(x, bins, right=False, *, method=None):
    """The bin of each x, for bins that increase or decrease.

    ValueError for bins that are no vector.

    >>> jnp.digitize(jnp.array([0.5, 1.5, 9.0]), jnp.array([1.0, 2.0]))
    Array([0, 1, 2], dtype=int32)
    """
    del method
    edges = to_array(bins, "digitize")
    x = to_array(x, "digitize")
    if edges.ndim != 1:
        raise InvalidValue(f"digitize with bins of shape {edges.shape}; expected a vector")
    side = "right" if not right else "left"
    if edges.shape[0] == 0:
        return _full(x.shape, 0, _place_dtype(0))
    up = searchsorted(edges, x, side)
    down = ufuncs.subtract(edges.shape[0], searchsorted(flip(edges), x, side))
    return where(ufuncs.greater_equal(edges[-1], edges[0]), up, down)


def top_k(x: Array, k: int, axis: int = -1) -> tuple[Array, Array]:
    """The k largest elements along an axis, and their positions."""
    return TopK(integer(k, "k"), canonical_axis(axis, x.ndim))(x)


__all__ = [
    "argpartition",
    "argsort",
    "digitize",
    "lexsort",
    "partition",
    "searchsorted",
    "sort",
    "sort_complex",
]
