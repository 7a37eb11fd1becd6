"""Arrays with elements inserted, deleted, cut off, or replaced on the diagonal."""

from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, as_array
from fnx.core.errors import ConcretizationTypeError, InvalidValue
from fnx.core.interpreter import Tracer
from fnx.numpy.arrays.creation import array
from fnx.numpy.arrays.index_plan import wrap
from fnx.numpy.arrays.util import INT, canonical_axes, canonical_axis, convert, reshape_to, to_array
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.reductions.reduce import sum as sum_
from fnx.numpy.structure.nonzero import need_known
from fnx.numpy.structure.ranges import arange
from fnx.numpy.structure.selection import take, take_static
from fnx.numpy.structure.shapes import moveaxis, ravel
from fnx.ops.base.broadcast import broadcast_to as _broadcast_to
from fnx.ops.reduction.sorting import Sort
from fnx.ops.structure.join import Concatenate


def insert(arr, obj, values, axis=None):
    """Values put in before positions that are known.

    >>> jnp.insert(jnp.array([1, 2, 3]), 1, 9)
    Array([1, 9, 2, 3], dtype=int64)
    """
    x = to_array(arr, "insert")
    obj = to_array(obj, "insert") if hasattr(obj, "__jax_array__") else obj
    if axis is None:
        x, axis = ravel(x), 0
    k = canonical_axis(axis, x.ndim)
    n = x.shape[k]
    v = to_array(values, "insert") if not isinstance(values, (list, tuple)) else array(values)
    v = convert(v, x.dtype)
    if isinstance(obj, Tracer) and obj.owner.concrete(obj) is None:
        return _insert_traced(x, obj, v, k)
    single = np.ndim(obj) == 0 and not isinstance(obj, slice)
    places = np.arange(n)[obj] if isinstance(obj, slice) else np.atleast_1d(np.asarray(obj))
    if places.dtype == bool:
        places = np.nonzero(places)[0]
    places = places.astype(np.int64)
    places = np.where(places < 0, places + n, places)
    if single:
        v = reshape_to(v, (1,) * (x.ndim - v.ndim) + v.shape)
        v = moveaxis(v, 0, k) if k else v
        count = v.shape[k]
        places = np.repeat(places, count)
    count = len(places)
    v = _broadcast_to(v, (*x.shape[:k], count, *x.shape[k + 1 :]))
    order = np.argsort(places, kind="stable")
    at = places[order] + np.arange(count)
    source = np.empty(n + count, int)
    mask = np.ones(n + count, bool)
    mask[at] = False
    source[mask], source[at] = np.arange(n), n + order
    return take_static(Concatenate(k)(x, v), source, k)


def _insert_traced(x: Array, at: Array, v: Array, axis: int) -> Array:
    """Before one position that is not known: each element of the result says where it comes from."""
    if at.size != 1 or dtypes.kind(at.dtype) not in "iu":
        raise ConcretizationTypeError(
            f"insert at traced positions of type {at.aval.str_short()}; expected one integer, or "
            "positions that are known"
        )
    n = x.shape[axis]
    v = reshape_to(v, (1,) * (x.ndim - v.ndim) + v.shape)
    v = moveaxis(v, 0, axis) if axis and not at.ndim else v
    count = v.shape[axis]
    v = _broadcast_to(v, (*x.shape[:axis], count, *x.shape[axis + 1 :]))
    first = wrap(convert(reshape_to(at, ()), INT), n)
    to = arange(n + count)
    source = ufuncs.where3(to < first + count, n + to - first, to - count)
    source = ufuncs.where3(to < first, to, source)
    return take(Concatenate(axis)(x, v), source, axis, mode="clip")


def delete(arr, obj, axis=None, *, assume_unique_indices=False):
    """Without the slices at positions that are known.

    >>> jnp.delete(jnp.array([1, 2, 3]), 1)
    Array([1, 3], dtype=int64)
    """
    x = to_array(arr, "delete")
    if axis is None:
        x, axis = ravel(x), 0
    k = canonical_axis(axis, x.ndim)
    if isinstance(obj, Tracer) and assume_unique_indices:
        return _delete_traced(x, ravel(obj), k)
    keep = np.ones(x.shape[k], bool)
    keep[obj if isinstance(obj, slice) else _known(obj)] = False
    return take_static(x, np.nonzero(keep)[0], k)


def _known(obj: Any) -> np.ndarray:
    """Positions that are known, as NumPy indexes by them."""
    at = np.asarray(as_array(obj) if hasattr(obj, "__jax_array__") else obj)
    return at if at.size else at.astype(np.int64)


def _delete_traced(x: Array, at: Array, axis: int) -> Array:
    """Of distinct positions that are not known: each later element moves down once per position."""
    places = Sort(0, True, 1)(wrap(at, x.shape[axis]))[0] - arange(at.shape[0])
    target = arange(x.shape[axis] - at.shape[0])
    moved = target + sum_(target[None] >= places[:, None], axis=0)
    return take(x, moved, axis, mode="clip")


def fill_diagonal(a, val, wrap=False, *, inplace=True):
    """A copy with the diagonal replaced.

    ValueError for `inplace`, for `wrap`, and for axes of different sizes or fewer than two.

    >>> jnp.fill_diagonal(jnp.zeros((2, 2)), 5.0, inplace=False)
    Array([[5., 0.],
           [0., 5.]], dtype=float64)
    """
    if inplace:
        raise InvalidValue("fill_diagonal cannot change an array in place; pass inplace=False")
    if wrap:
        raise InvalidValue("fill_diagonal with wrap=True is not supported")
    x = to_array(a, "fill_diagonal")
    if x.ndim < 2:
        raise InvalidValue(f"fill_diagonal of shape {x.shape}; expected at least 2 axes")
    if x.ndim > 2 and len(set(x.shape)) > 1:
        raise InvalidValue(f"fill_diagonal of shape {x.shape}; expected axes of one size")
    n = min(x.shape)
    values = ravel(to_array(val, "fill_diagonal"))
    if not n or not values.size:
        return x
    return x.at[(np.arange(n),) * x.ndim].set(values[np.arange(n) % values.size])


def trim_zeros(filt, trim="fb", axis=None):
    """Without zeros at the ends (of hyperplanes along `axis`, by default all), of known values.

    >>> jnp.trim_zeros(jnp.array([0, 0, 1, 0, 2, 0]))
    Array([1, 0, 2], dtype=int64)
    """
    x = to_array(filt, "trim_zeros") if not isinstance(filt, (list, tuple)) else array(filt)
    if not x.ndim:
        return x
    known = need_known(x, "trim_zeros", "it cannot be traced")
    kept = np.nonzero(known)
    axes = range(x.ndim) if axis is None else canonical_axes(axis, x.ndim)
    entries: list[Any] = [slice(None)] * x.ndim
    for k in axes:
        first, end = (int(kept[k].min()), int(kept[k].max()) + 1) if kept[k].size else (0, 0)
        front, back = "f" in trim.lower(), "b" in trim.lower() or not kept[k].size
        entries[k] = slice(first if front else 0, end if back else x.shape[k])
    return x[tuple(entries)]


__all__ = [
    "delete",
    "fill_diagonal",
    "insert",
    "trim_zeros",
]
