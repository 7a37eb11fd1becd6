"""Sorting, searching, counting and sets: sort, searchsorted, nonzero, unique, bincount, histogram."""

import builtins
import math
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import ConcretizationTypeError, InvalidValue, TypeMismatch
from fnx.core.interpreter import Tracer
from fnx.numpy import ufuncs
from fnx.numpy.creation import arange, array, linspace
from fnx.numpy.reduce import any as any_
from fnx.numpy.reduce import cumsum
from fnx.numpy.reduce import max as max_
from fnx.numpy.reduce import min as min_
from fnx.numpy.reduce import sum as sum_
from fnx.numpy.shape import concatenate, expand_dims, flip, moveaxis, ravel, stack, take, where
from fnx.numpy.util import (
    canonical_axis,
    convert,
    no_out,
    promote,
    promote_inexact,
    reshape_to,
    to_array,
    select,
)
from fnx.ops import elementwise as ops
from fnx.ops.broadcast import full as _full
from fnx.ops.broadcast import scalar
from fnx.ops.join import Iota
from fnx.ops.sorting import Sort, TopK

INT = np.dtype(np.int64)


# --- sorting ------------------------------------------------------------------------------------------


def _sortable(a: Any, axis: Any, name: str) -> tuple[Array, int]:
    x = to_array(a, name)
    if axis is None:
        x, axis = ravel(x), 0
    return x, canonical_axis(axis, x.ndim)


def _keys(x: Array) -> list[Array]:
    """What complex numbers are sorted by: the real, then the imaginary part."""
    return [ops.real(x), ops.imag(x)] if dtypes.is_complex(x.dtype) else [x]


def sort(a, axis=-1, *, kind=None, order=None, stable=True, descending=False):
    """The elements in increasing order along an axis; nan last.

    >>> sort(array([3, 1, 2]))
    Array([1, 2, 3], dtype=int64)
    """
    _no_order(order)
    x, k = _sortable(a, axis, "sort")
    keys = _keys(x)
    if len(keys) == 1:
        out = Sort(k, stable, 1)(x)[0]
    else:
        out = Sort(k, stable, 2)(*keys, x)[2]
    return flip(out, k) if descending else out


def _no_order(order: Any) -> None:
    if order is not None:
        raise InvalidValue("order= names fields of structured arrays, which do not exist here")


def argsort(a, axis=-1, *, kind=None, order=None, stable=True, descending=False, dtype=None):
    """The positions that sort along an axis."""
    _no_order(order)
    x, k = _sortable(a, axis, "argsort")
    places = Iota(k, dtypes.default_for("i"), x.shape)()
    if descending:
        # Equal elements keep their order: sort the reversed array, and read it backwards.
        x, places = flip(x, k), flip(places, k)
    keys = _keys(x)
    out = Sort(k, stable, len(keys))(*keys, places)[-1]
    out = flip(out, k) if descending else out
    return out if dtype is None else convert(out, dtypes.canonical(dtype))


def lexsort(keys, axis=-1):
    """The positions that sort by several keys, the last one first."""
    xs = [to_array(k, "lexsort") for k in keys]
    if not xs:
        raise TypeMismatch("lexsort needs at least one key")
    k = canonical_axis(axis, xs[0].ndim)
    places = Iota(k, INT, xs[0].shape)()
    return Sort(k, True, len(xs))(*xs[::-1], places)[-1]


def sort_complex(a):
    """Complex numbers sorted by real, then imaginary part."""
    x = to_array(a, "sort_complex")
    return sort(convert(x, dtypes.complex_of(x.dtype)))


def partition(a, kth, axis=-1):
    """The elements with the kth at its place, smaller ones before, larger ones after."""
    return sort(a, axis)


def argpartition(a, kth, axis=-1):
    """The positions that partition."""
    return argsort(a, axis)


def searchsorted(a, v, side="left", sorter=None, *, method="scan"):
    """Where to insert v into sorted a, before (left) or after (right) equal elements."""
    del method
    if side not in ("left", "right"):
        raise InvalidValue(f"searchsorted with side={side!r}; expected 'left' or 'right'")
    x, y = promote("searchsorted", a, v)
    if x.ndim != 1:
        raise InvalidValue(f"searchsorted in an array of shape {x.shape}; expected a vector")
    if sorter is not None:
        x = take(x, sorter)
    # By bisection, in as many steps as the length has bits, so that nothing depends on values.
    n = x.shape[0]
    low = _full(y.shape, 0, INT)
    if n == 0:
        return low
    high = _full(y.shape, n, INT)
    before = ops.lt if side == "left" else ops.le
    for _ in range(n.bit_length()):
        middle = ops.shift_right_logical(ops.add(low, high), scalar(1, INT))
        at = take(x, ops.min_(middle, scalar(n - 1, INT)), mode="clip")
        right = _nan_last(before, at, y)
        active = ops.lt(low, high)
        low, high = (
            select(ops.and_(active, right), ops.add(middle, scalar(1, INT)), low),
            select(ops.and_(active, ops.not_(right)), middle, high),
        )
    return low


def _nan_last(before: Any, x: Array, y: Array) -> Array:
    """The order in which nan is larger than all."""
    out = before(x, y)
    if not dtypes.is_inexact(x.dtype):
        return out
    x_nan, y_nan = ops.ne(x, x), ops.ne(y, y)
    with_nan = ops.not_(x_nan) if before is ops.lt else scalar(True, dtypes.bool_)
    return select(y_nan, with_nan if with_nan.shape == y.shape else _full(y.shape, True, dtypes.bool_), out)


def digitize(x, bins, right=False, *, method=None):
    """The bin of each x, for bins that increase or decrease."""
    del method
    edges = to_array(bins, "digitize")
    x = to_array(x, "digitize")
    if edges.ndim != 1:
        raise InvalidValue(f"digitize with bins of shape {edges.shape}; expected a vector")
    side = "right" if not right else "left"
    if edges.shape[0] == 0:
        return _full(x.shape, 0, INT)
    up = searchsorted(edges, x, side)
    other = "left" if side == "right" else "right"
    down = ufuncs.subtract(edges.shape[0], searchsorted(flip(edges), x, other))
    return where(ufuncs.greater_equal(edges[-1], edges[0]), up, down)


# --- places -------------------------------------------------------------------------------------------


def _need_known(x: Array, name: str, hint: str = "pass size=, the static length of the result") -> np.ndarray:
    if isinstance(x, Tracer) and x.owner.concrete(x) is None:
        raise ConcretizationTypeError(
            f"the length of the result of {name} depends on the values of a traced array of type "
            f"{x.aval.str_short()}; {hint}"
        )
    return np.asarray(x)


def nonzero(a, *, size=None, fill_value=None):
    """The positions of elements that are not 0, one array per axis; `size` makes the length static."""
    x = to_array(a, "nonzero")
    if size is None:
        known = _need_known(x, "nonzero")
        return tuple([array(p) for p in np.nonzero(np.atleast_1d(known))])
    x = reshape_to(x, x.shape or (1,))
    mask = ravel(ufuncs.truth(x))
    size = int(size)
    fills = fill_value if isinstance(fill_value, (tuple, list)) else (fill_value or 0,) * x.ndim
    total = mask.shape[0]
    if total == 0 or size == 0:
        return tuple([_full((size,), f, INT) for f in fills])
    # Where the k-th True stands: count those before, and scatter positions there.
    count = cumsum(convert(mask, INT))
    target = where(mask, count - 1, size)
    flat = _full((size,), 0, INT).at[target].set(arange(total), mode="drop", unique_indices=False)
    found = arange(size) < count[-1]
    outs = []
    for n in x.shape[::-1]:
        outs.append(ufuncs.remainder(flat, n))
        flat = ufuncs.floor_divide(flat, n)
    return tuple([where(found, p, convert(to_array(f), INT)) for p, f in zip(outs[::-1], fills)])


def flatnonzero(a, *, size=None, fill_value=None):
    """The flat positions of elements that are not 0."""
    return nonzero(ravel(a), size=size, fill_value=fill_value)[0]


def argwhere(a, *, size=None, fill_value=None):
    """The positions of elements that are not 0, as rows."""
    x = to_array(a, "argwhere")
    places = nonzero(x, size=size, fill_value=fill_value)
    if x.ndim == 0:
        return _full((places[0].shape[0], 0), 0, INT)
    return stack(places, axis=1)


# --- sets ---------------------------------------------------------------------------------------------


def unique(
    ar,
    return_index=False,
    return_inverse=False,
    return_counts=False,
    axis=None,
    *,
    equal_nan=True,
    size=None,
    fill_value=None,
    sorted=True,
):
    """The different elements, sorted; `size` makes the length static."""
    del sorted
    x = to_array(ar, "unique")
    if size is None:
        known = _need_known(x, "unique")
        if dtypes.NAME.get(x.dtype) == "bfloat16":
            known = known.astype(np.float32)
        found = np.unique(
            known, return_index, return_inverse, return_counts, axis, equal_nan=equal_nan
        )
        if not isinstance(found, tuple):
            return convert(array(found), x.dtype)
        return (convert(array(found[0]), x.dtype), *map(array, found[1:]))
    return _unique_static(x, axis, int(size), fill_value, return_index, return_inverse, return_counts, equal_nan)


def _unique_static(
    x: Array, axis: Any, size: int, fill: Any, index: bool, inverse: bool, counts: bool, equal_nan: bool
) -> Any:
    shape = x.shape
    if axis is None:
        rows, axis = ravel(x), 0
    else:
        rows = moveaxis(x, axis, 0)
    n = rows.shape[0]
    columns = reshape_to(rows, (n, math.prod(rows.shape[1:])))
    width = columns.shape[1]
    if n == 0 or width == 0:
        raise InvalidValue(f"unique with size= of an empty array of shape {shape}")
    keys = [key for j in range(width) for key in _keys(columns[:, j])]
    order = Sort(0, True, len(keys))(*keys, arange(n))[-1]
    ordered = take(rows, order, 0, mode="clip")
    flat = reshape_to(ordered, (n, width))
    differs = _differs(flat[1:], flat[:-1], equal_nan)
    first = concatenate([_full((1,), True, dtypes.bool_), differs])
    group = cumsum(convert(first, INT)) - 1
    (starts,) = nonzero(first, size=size, fill_value=0)
    values = take(ordered, starts, 0, mode="clip")
    total = group[-1] + 1
    used = arange(size) < total
    if fill is not None:
        mask = reshape_to(used, (size, *(1,) * (values.ndim - 1)))
        values = where(mask, values, convert(to_array(fill), values.dtype))
    outs = [moveaxis(values, 0, axis)]
    if index:
        outs.append(take(order, starts, mode="clip"))
    if inverse:
        back = _full((n,), 0, INT).at[order].set(group)
        outs.append(reshape_to(back, shape) if rows.ndim == 1 and len(shape) != 1 else back)
    if counts:
        ones = _full((n,), 1, INT)
        outs.append(_full((size,), 0, INT).at[group].add(ones, mode="drop"))
    return outs[0] if len(outs) == 1 else tuple(outs)


def _differs(x: Array, y: Array, equal_nan: bool) -> Array:
    other = ops.ne(x, y)
    if equal_nan and dtypes.is_inexact(x.dtype):
        other = ufuncs.logical_and(other, ufuncs.logical_not(ufuncs.logical_and(ops.ne(x, x), ops.ne(y, y))))
    return any_(other, axis=1)


def unique_values(x, /, *, size=None, fill_value=None):
    """The different elements, sorted."""
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


def union1d(ar1, ar2, *, size=None, fill_value=None):
    """The elements of either array, sorted."""
    return unique(concatenate([ravel(ar1), ravel(ar2)]), size=size, fill_value=fill_value)


def isin(element, test_elements, assume_unique=False, invert=False, *, method="auto"):
    """Whether elements are among others."""
    del assume_unique, method
    x, y = promote("isin", element, test_elements)
    y = ravel(y)
    if y.shape[0] == 0 or x.aval.size == 0:
        out = _full(x.shape, False, dtypes.bool_)
    elif x.aval.size * y.shape[0] <= 4096 or dtypes.is_complex(x.dtype):
        out = any_(ufuncs.equal(expand_dims(x, -1), y), axis=-1)
    else:
        y = sort(y)
        at = searchsorted(y, x)
        out = ufuncs.equal(take(y, at, mode="clip"), x)
    return ufuncs.logical_not(out) if invert else out


def _known_pair(name: str, ar1: Any, ar2: Any, size: Any) -> tuple[Array, Array]:
    x, y = promote(name, ar1, ar2)
    if size is None:
        for z in (x, y):
            _need_known(z, name)
    return ravel(x), ravel(y)


def _set_result(values: Array, keep: Array, size: Any, fill_value: Any) -> Array:
    if size is None:
        return values[np.nonzero(np.asarray(keep))[0]]
    (at,) = nonzero(keep, size=size, fill_value=0)
    out = take(values, at, mode="clip")
    used = arange(int(size)) < sum_(convert(keep, INT))
    fill = values[0] if fill_value is None else convert(to_array(fill_value), out.dtype)
    return where(used, out, fill)


def setdiff1d(ar1, ar2, assume_unique=False, *, size=None, fill_value=None):
    """The elements of the first array that the second one lacks."""
    x, y = _known_pair("setdiff1d", ar1, ar2, size)
    if size is None:
        return array(np.setdiff1d(np.asarray(x), np.asarray(y), assume_unique))
    fill = 0 if fill_value is None else fill_value
    if not assume_unique:
        x = sort(x)
        fresh = concatenate([_full((1,), True, dtypes.bool_), x[1:] != x[:-1]])
    else:
        fresh = _full(x.shape, True, dtypes.bool_)
    return _set_result(x, ufuncs.logical_and(fresh, isin(x, y, invert=True)), size, fill)


def setxor1d(ar1, ar2, assume_unique=False, *, size=None, fill_value=None):
    """The elements of exactly one of two arrays."""
    x, y = _known_pair("setxor1d", ar1, ar2, size)
    if size is None:
        return array(np.setxor1d(np.asarray(x), np.asarray(y), assume_unique))
    both = concatenate([x, y])
    distinct = sort(both)
    fresh = concatenate([_full((1,), True, dtypes.bool_), distinct[1:] != distinct[:-1]])
    one = ufuncs.logical_xor(isin(distinct, x), isin(distinct, y))
    return _set_result(distinct, ufuncs.logical_and(fresh, one), size, fill_value)


def intersect1d(ar1, ar2, assume_unique=False, return_indices=False, *, size=None, fill_value=None):
    """The elements of both arrays, sorted."""
    x, y = _known_pair("intersect1d", ar1, ar2, size)
    if size is None:
        found = np.intersect1d(np.asarray(x), np.asarray(y), assume_unique, return_indices)
        return tuple(map(array, found)) if return_indices else array(found)
    places = argsort(x)
    ordered = take(x, places, mode="clip")
    fresh = concatenate([_full((1,), True, dtypes.bool_), ordered[1:] != ordered[:-1]])
    keep = ufuncs.logical_and(fresh, isin(ordered, y))
    out = _set_result(ordered, keep, size, fill_value)
    if not return_indices:
        return out
    (at,) = nonzero(keep, size=size, fill_value=x.shape[0])
    used = arange(int(size)) < sum_(convert(keep, INT))
    order_y = argsort(y)
    in_y = take(order_y, searchsorted(take(y, order_y, mode="clip"), out), mode="clip")
    first = where(used, take(places, at, mode="clip"), x.shape[0])
    return out, first, where(used, in_y, y.shape[0])


# --- counting -----------------------------------------------------------------------------------------


def bincount(x, weights=None, minlength=0, *, length=None, out_sharding=None):
    """How often each number 0, 1, 2, ... stands in x; `length` makes the length static."""
    at = to_array(x, "bincount")
    if not dtypes.is_integer(at.dtype) and at.dtype != dtypes.bool_:
        raise TypeMismatch(f"bincount of dtype {at.dtype}; expected integers")
    if at.ndim != 1:
        raise InvalidValue(f"bincount of shape {at.shape}; expected a vector")
    if length is None:
        known = _need_known(at, "bincount", "pass length=, the static length of the result")
        top = int(known.max()) + 1 if known.size else 0
        length = max(top, int(minlength))
    at = ufuncs.clip(convert(at, INT), 0, None)
    w = _full((), 1, INT) if weights is None else to_array(weights, "bincount")
    zeros = _full((int(length),), 0, w.dtype)
    return zeros.at[at].add(w, mode="drop")


def histogram_bin_edges(a, bins=10, range=None, weights=None):
    """The edges of bins of equal width."""
    del weights
    if isinstance(bins, str):
        raise InvalidValue(f"histogram with bins={bins!r}; expected a number or edges")
    if np.ndim(bins) == 1:
        return to_array(bins, "histogram") if not isinstance(bins, (list, tuple)) else array(bins)
    (x,) = promote_inexact("histogram", a)
    if range is None:
        low, high = (min_(x), max_(x)) if x.aval.size else (scalar(0, x.dtype), scalar(1, x.dtype))
    else:
        low, high = (convert(to_array(v), x.dtype) for v in range)
    same = ufuncs.equal(low, high)
    low, high = where(same, low - 0.5, low), where(same, high + 0.5, high)
    return linspace(low, high, int(bins) + 1, dtype=x.dtype)


def histogram(a, bins=10, range=None, weights=None, density=None):
    """How many elements lie in each bin, and the bins' edges."""
    x = ravel(to_array(a, "histogram"))
    edges = histogram_bin_edges(x, bins, range, weights)
    x, edges = promote_inexact("histogram", x, edges)
    w = _full(x.shape, 1, x.dtype) if weights is None else ravel(promote_inexact("histogram", weights)[0])
    n = edges.shape[0] - 1
    at = searchsorted(edges, x, "right")
    # The last bin holds its right edge too; bin 0 here is what lies before all, and is left out.
    at = where(ufuncs.equal(x, edges[-1]), n, at)
    counts = _full((n + 1,), 0, w.dtype).at[at].add(w, mode="drop")[1:]
    if density:
        width = edges[1:] - edges[:-1]
        counts = counts / width / sum_(counts)
    return counts, edges


def histogram2d(x, y, bins=10, range=None, weights=None, density=None):
    """`histogramdd` of pairs."""
    count = len(bins) if isinstance(bins, (list, tuple)) else 1
    if np.ndim(bins) == 1 and count not in (1, 2):
        bins = [bins, bins]
    sample = stack([ravel(x), ravel(y)], axis=1)
    counts, edges = histogramdd(sample, bins, range, weights, density)
    return counts, edges[0], edges[1]


def histogramdd(sample, bins=10, range=None, weights=None, density=None):
    """How many points lie in each box of a grid, and the grid's edges."""
    points = stack(list(sample), axis=-1) if isinstance(sample, (list, tuple)) else to_array(sample)
    (points,) = promote_inexact("histogramdd", points)
    n, dims = points.shape
    per_axis = bins if isinstance(bins, (list, tuple)) else [bins] * dims
    ranges = range if range is not None else [None] * dims
    edges = [histogram_bin_edges(points[:, k], per_axis[k], ranges[k]) for k in builtins.range(dims)]
    sizes = [e.shape[0] + 1 for e in edges]
    flat: Any = 0
    for k, e in enumerate(edges):
        at = searchsorted(e, points[:, k], "right")
        at = where(ufuncs.equal(points[:, k], e[-1]), at - 1, at)
        flat = flat * sizes[k] + at
    w = None if weights is None else to_array(weights)
    counts = reshape_to(bincount(flat, w, length=math.prod(sizes)), tuple(sizes))
    counts = counts[(slice(1, -1),) * dims]
    if density:
        counts = counts / sum_(counts)
        for k, e in enumerate(edges):
            width = e[1:] - e[:-1]
            shape = tuple([width.shape[0] if j == k else 1 for j in builtins.range(dims)])
            counts = counts / reshape_to(width, shape)
    return counts, edges


def top_k(x: Array, k: int, axis: int = -1) -> tuple[Array, Array]:
    """The k largest elements along an axis, and their positions."""
    return TopK(int(k), canonical_axis(axis, x.ndim))(x)


__all__ = [
    "argpartition", "argsort", "argwhere", "bincount", "digitize", "flatnonzero", "histogram",
    "histogram2d", "histogram_bin_edges", "histogramdd", "intersect1d", "isin", "lexsort", "nonzero", "partition",
    "searchsorted", "setdiff1d", "setxor1d", "sort", "sort_complex", "union1d", "unique", "unique_values",
]  # fmt: skip
del no_out
