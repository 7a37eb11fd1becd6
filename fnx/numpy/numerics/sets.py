"""Sets of elements: unique, union1d, intersect1d, setdiff1d, isin."""

import math
from typing import Any, NamedTuple

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.numpy.arrays.creation import array
from fnx.numpy.arrays.util import INT, convert, integer, promote, reshape_to, to_array
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.reductions.cumulative import cumsum
from fnx.numpy.reductions.reduce import any as any_
from fnx.numpy.reductions.reduce import sum as sum_
from fnx.numpy.structure.joining import concatenate
from fnx.numpy.structure.nonzero import need_known, nonzero
from fnx.numpy.structure.ranges import arange
from fnx.numpy.structure.selection import take, where
from fnx.numpy.structure.shapes import expand_dims, moveaxis, ravel
from fnx.numpy.structure.sorting import argsort, searchsorted, sort, sort_keys
from fnx.ops.base.broadcast import full as _full
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.reduction.sorting import Sort

# --- sets ---------------------------------------------------------------------------------------


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
    """The different elements, sorted; `size` makes the length static.

    >>> jnp.unique(jnp.array([3, 1, 3, 2]), return_counts=True)
    (Array([1, 2, 3], dtype=int64), Array([1, 1, 2], dtype=int64))
    >>> jnp.unique(jnp.array([3, 1, 3]), size=4, fill_value=-1)
    Array([ 1,  3, -1, -1], dtype=int64)
    """
    del sorted
    x = to_array(ar, "unique")
    if size is None:
        known = need_known(x, "unique")
        if dtypes.NAME.get(x.dtype) == "bfloat16":
            known = known.astype(np.float32)
        found = np.unique(
            known, return_index, return_inverse, return_counts, axis, equal_nan=equal_nan
        )
        if not isinstance(found, tuple):
            return convert(array(found), x.dtype)
        return (convert(array(found[0]), x.dtype), *map(array, found[1:]))
    return _unique_static(
        x,
        axis,
        integer(size, "size"),
        fill_value,
        return_index,
        return_inverse,
        return_counts,
        equal_nan,
    )


def _unique_static(
    x: Array,
    axis: Any,
    size: int,
    fill: Any,
    index: bool,
    inverse: bool,
    counts: bool,
    equal_nan: bool,
) -> Any:
    shape = x.shape
    if axis is None:
        rows, axis = ravel(x), 0
    else:
        rows = moveaxis(x, axis, 0)
    n = rows.shape[0]
    columns = reshape_to(rows, (n, math.prod(rows.shape[1:])))
    width = columns.shape[1]
    number = dtypes.default_for("i")
    if n == 0 or width == 0:
        if size and width and fill is None:
            raise InvalidValue(
                f"unique with size={size} of an empty array of shape {shape} has nothing to repeat; "
                "expected a fill_value"
            )
        values = _full((size, *rows.shape[1:]), 0 if fill is None else fill, x.dtype)
        outs = [moveaxis(values, 0, axis)]
        back = _full((n,), 0, number)
        outs += [_full((size,), 0, number)] * index
        outs += [reshape_to(back, shape) if rows.ndim == 1 and len(shape) != 1 else back] * inverse
        # Rows without elements are all the same.
        outs += [where(arange(size) == 0, n, 0)] * counts
        return outs[0] if len(outs) == 1 else tuple(outs)
    keys = [key for j in range(width) for key in sort_keys(columns[:, j])]
    order = Sort(0, True, len(keys))(*keys, arange(n))[-1]
    ordered = take(rows, order, 0, mode="clip")
    flat = reshape_to(ordered, (n, width))
    differs = _differs(flat[1:], flat[:-1], equal_nan)
    first = concatenate([_full((1,), True, dtypes.bool_), differs])
    group = cumsum(convert(first, number)) - 1
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
        back = _full((n,), 0, number).at[order].set(group)
        outs.append(reshape_to(back, shape) if rows.ndim == 1 and len(shape) != 1 else back)
    if counts:
        ones = _full((n,), 1, number)
        outs.append(_full((size,), 0, number).at[group].add(ones, mode="drop"))
    return outs[0] if len(outs) == 1 else tuple(outs)


def _differs(x: Array, y: Array, equal_nan: bool) -> Array:
    other = ops.ne(x, y)
    if equal_nan and dtypes.is_inexact(x.dtype):
        other = ufuncs.logical_and(
            other, ufuncs.logical_not(ufuncs.logical_and(ops.ne(x, x), ops.ne(y, y)))
        )
    return any_(other, axis=1)


def unique_values(x, /, *, size=None, fill_value=None):
    """The different elements, sorted.

    >>> jnp.unique_values(jnp.array([3, 1, 3, 2]))
    Array([1, 2, 3], dtype=int64)
    """
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


class UniqueAll(NamedTuple):
    """The different elements, where each stands first, the way back, and how often it stands there."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """The different elements, and how often each stands there."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """The different elements, and the way back."""

    values: Array
    inverse_indices: Array


def unique_all(x, /, *, size=None, fill_value=None):
    """The different elements with positions, inverse and counts.

    >>> found = jnp.unique_all(jnp.array([3, 1, 3]))
    >>> found.values, found.indices, found.counts
    (Array([1, 3], dtype=int64), Array([1, 0], dtype=int64), Array([1, 2], dtype=int64))
    """
    return UniqueAll(
        *unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value)
    )


def unique_counts(x, /, *, size=None, fill_value=None):
    """The different elements with their counts.

    >>> found = jnp.unique_counts(jnp.array([3, 1, 3]))
    >>> found.values, found.counts
    (Array([1, 3], dtype=int64), Array([1, 2], dtype=int64))
    """
    found = unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value)
    return UniqueCounts(*found)


def unique_inverse(x, /, *, size=None, fill_value=None):
    """The different elements with the way back.

    >>> found = jnp.unique_inverse(jnp.array([3, 1, 3]))
    >>> found.values[found.inverse_indices]
    Array([3, 1, 3], dtype=int64)
    """
    found = unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value)
    return UniqueInverse(*found)


def union1d(ar1, ar2, *, size=None, fill_value=None):
    """The elements of either array, sorted.

    >>> jnp.union1d(jnp.array([1, 2]), jnp.array([5, 2]))
    Array([1, 2, 5], dtype=int64)
    """
    return unique(concatenate([ravel(ar1), ravel(ar2)]), size=size, fill_value=fill_value)


def isin(element, test_elements, assume_unique=False, invert=False, *, method="auto"):
    """Whether each element is among those of another array; or is not, with `invert`.

    >>> jnp.isin(jnp.array([1, 2, 3]), jnp.array([2, 4]))
    Array([False,  True, False], dtype=bool)
    """
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
            need_known(z, name)
    return ravel(x), ravel(y)


def _set_result(values: Array, keep: Array, size: Any, fill_value: Any) -> Array:
    if size is None:
        return values[np.nonzero(np.asarray(keep))[0]]
    if not values.size:
        return _full(
            (integer(size, "size"),), 0 if fill_value is None else fill_value, values.dtype
        )
    (at,) = nonzero(keep, size=size, fill_value=0)
    out = take(values, at, mode="clip")
    used = arange(integer(size, "size")) < sum_(convert(keep, INT))
    fill = values[0] if fill_value is None else convert(to_array(fill_value), out.dtype)
    return where(used, out, fill)


def setdiff1d(ar1, ar2, assume_unique=False, *, size=None, fill_value=None):
    """The elements of the first array that the second one lacks.

    >>> jnp.setdiff1d(jnp.array([1, 2, 3]), jnp.array([2]))
    Array([1, 3], dtype=int64)
    """
    own = to_array(ar1, "setdiff1d").dtype
    x, y = _known_pair("setdiff1d", ar1, ar2, size)
    if size is None:
        return convert(array(np.setdiff1d(np.asarray(x), np.asarray(y), assume_unique)), own)
    first = convert(x, own)
    fill = 0 if fill_value is None else fill_value
    if not assume_unique:
        x = sort(x)
        first = convert(x, own)
        fresh = concatenate([_full((min(x.size, 1),), True, dtypes.bool_), x[1:] != x[:-1]])
    else:
        fresh = _full(x.shape, True, dtypes.bool_)
    return _set_result(first, ufuncs.logical_and(fresh, isin(x, y, invert=True)), size, fill)


def setxor1d(ar1, ar2, assume_unique=False, *, size=None, fill_value=None):
    """The elements of exactly one of two arrays.

    >>> jnp.setxor1d(jnp.array([1, 2]), jnp.array([2, 3]))
    Array([1, 3], dtype=int64)
    """
    x, y = _known_pair("setxor1d", ar1, ar2, size)
    if size is None:
        return array(np.setxor1d(np.asarray(x), np.asarray(y), assume_unique))
    both = concatenate([x, y])
    distinct = sort(both)
    fresh = concatenate([_full((1,), True, dtypes.bool_), distinct[1:] != distinct[:-1]])
    one = ufuncs.logical_xor(isin(distinct, x), isin(distinct, y))
    return _set_result(distinct, ufuncs.logical_and(fresh, one), size, fill_value)


def intersect1d(ar1, ar2, assume_unique=False, return_indices=False, *, size=None, fill_value=None):
    """The elements that are in both arrays, each once, sorted; with `return_indices` also where they are.

    Under a trace `size`, the length of the result, is needed: ConcretizationTypeError, a TypeError,
    without it.

    >>> jnp.intersect1d(jnp.array([1, 2, 3]), jnp.array([3, 2, 7]))
    Array([2, 3], dtype=int64)
    """
    x, y = _known_pair("intersect1d", ar1, ar2, size)
    if size is None:
        found = np.intersect1d(np.asarray(x), np.asarray(y), assume_unique, return_indices)
        return tuple(map(array, found)) if return_indices else array(found)
    places = argsort(x)
    ordered = take(x, places, mode="clip")
    fresh = concatenate([_full((1,), True, dtypes.bool_), ordered[1:] != ordered[:-1]])
    keep = ufuncs.logical_and(fresh, isin(ordered, y))
    if fill_value is None and x.shape[0]:  # the least one of the result; 0 if there is none
        fill_value = sum_(where(keep & (cumsum(keep) == 1), ordered, convert(0, ordered.dtype)))
    out = _set_result(ordered, keep, size, fill_value)
    if not return_indices:
        return out
    (at,) = nonzero(keep, size=size, fill_value=x.shape[0])
    used = arange(integer(size, "size")) < sum_(convert(keep, INT))
    order_y = argsort(y)
    in_y = take(order_y, searchsorted(take(y, order_y, mode="clip"), out), mode="clip")
    first = where(used, take(places, at, mode="clip"), x.shape[0])
    return out, first, where(used, in_y, y.shape[0])


__all__ = [
    "intersect1d",
    "isin",
    "setdiff1d",
    "setxor1d",
    "union1d",
    "unique",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
]
