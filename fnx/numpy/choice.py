"""Elements chosen by position or condition: where, nonzero, take, select, insert, delete, put."""

import math
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray
from fnx.core.errors import ConcretizationTypeError, InvalidValue, TypeMismatch
from fnx.core.interpreter import Tracer
from fnx.numpy import indexing, ufuncs
from fnx.numpy.creation import array
from fnx.numpy.cumulative import cumsum
from fnx.numpy.indexing import BadIndex, Plan, wrap
from fnx.numpy.places import need_known, nonzero
from fnx.numpy.ranges import arange
from fnx.numpy.reduce import sum as sum_
from fnx.numpy.shapes import moveaxis, ravel, reshape
from fnx.numpy.util import (
    INT,
    Unsupported,
    canonical_axes,
    canonical_axis,
    canonical_shape,
    common_shape,
    convert,
    no_out,
    promote,
    reshape_to,
    to_array,
    to_arrays,
)
from fnx.numpy.util import broadcast_arrays as _broadcast_arrays
from fnx.numpy.util import select as _select
from fnx.ops import elementwise as ops
from fnx.ops.broadcast import broadcast_to as _broadcast_to
from fnx.ops.broadcast import full as _full
from fnx.ops.broadcast import scalar
from fnx.ops.indexing import Gather
from fnx.ops.join import Concatenate, Iota
from fnx.ops.permute import Reshape
from fnx.ops.sorting import Sort
from fnx.ops.windows import GatherDimensionNumbers, GatherScatterMode


def take_static(x: Array, places: np.ndarray, axis: int) -> Array:
    entries: list[Any] = [slice(0, n, 1) for n in x.shape]
    entries[axis] = places
    return indexing.read(x, Plan((), x.shape, tuple(entries)))


# --- take, put, choose -------------------------------------------------------------------------


def take(
    a,
    indices,
    axis=None,
    out=None,
    mode=None,
    unique_indices=False,
    indices_are_sorted=False,
    fill_value=None,
):
    """Elements at positions along an axis; out of bounds is nan (mode "fill"), or "clip", "wrap".

    >>> jnp.take(jnp.arange(3) * 10, jnp.array([2, 0]))
    Array([20,  0], dtype=int64)
    """
    no_out("take", out)
    x = to_array(a, "take")
    if axis is None:
        x, axis = ravel(x), 0
    if x.ndim == 0:
        raise InvalidValue("take from an array of rank 0; expected an axis")
    k = canonical_axis(axis, x.ndim)
    at = to_array(indices, "take")
    if at.dtype.kind not in "iu":
        raise TypeMismatch(f"take needs integer positions, not dtype {at.dtype}")
    n = x.shape[k]
    if not n and at.size:
        raise BadIndex(
            f"take of {at.size} elements along an axis that is empty, of shape {x.shape}"
        )
    if mode == "wrap":
        at, mode = ufuncs.remainder(at, n), "promise_in_bounds"
    elif mode == "raise":
        raise Unsupported("take with mode='raise' is not supported; use 'fill', 'clip' or 'wrap'")
    elif mode != "clip":
        at = wrap(at, n)
    entries: list[Any] = [slice(0, m, 1) for m in x.shape]
    entries[k] = at._value if type(at) is ConcreteArray and at.ndim else at
    if type(at) is ConcreteArray and at.ndim == 0:
        entries[k] = int(at)
    made = Plan((), x.shape, tuple(entries))
    how = "fill" if mode is None else mode
    return indexing.read(x, made, how, fill_value, (indices_are_sorted, unique_indices))


def take_along_axis(
    arr, indices, axis=-1, mode=None, fill_value=None, *, wrap_negative_indices=None
):
    """Elements at positions along an axis, other axes in step.

    Negative positions count from the end, but for mode "promise_in_bounds"; `wrap_negative_indices`
    says so in so many words.

    >>> x = jnp.array([[10, 30, 20], [60, 40, 50]])
    >>> jnp.take_along_axis(x, jnp.argmax(x, axis=1, keepdims=True), axis=1)
    Array([[30],
           [60]], dtype=int64)
    """
    x, at = to_arrays("take_along_axis", arr, indices)
    if at.dtype.kind not in "iu":
        raise TypeMismatch(f"take_along_axis needs integer positions, not dtype {at.dtype}")
    if axis is None:
        return take_along_axis(
            ravel(x), ravel(at), 0, mode, fill_value, wrap_negative_indices=wrap_negative_indices
        )
    k = canonical_axis(axis, x.ndim)
    if x.ndim != at.ndim:
        raise InvalidValue(
            f"take_along_axis of shape {x.shape} by positions of shape {at.shape}; expected equal ranks"
        )
    others = common_shape(
        "take_along_axis",
        [tuple([1 if j == k else n for j, n in enumerate(s)]) for s in (x.shape, at.shape)],
    )
    n = x.shape[k]
    x = _broadcast_to(x, (*others[:k], n, *others[k + 1 :]))
    at = _broadcast_to(at, (*others[:k], at.shape[k], *others[k + 1 :]))
    if wrap_negative_indices is None:
        how = None if mode is None else GatherScatterMode.from_any(mode)
        wrap_negative_indices = how is not GatherScatterMode.PROMISE_IN_BOUNDS
    at = wrap(at, n) if wrap_negative_indices else at
    return _gather_along(x, at, k, "fill" if mode is None else mode, fill_value)


def _gather_along(x: Array, at: Array, axis: int, mode: Any, fill_value: Any) -> Array:
    rank = x.ndim
    others = tuple([j for j in range(rank) if j != axis])
    dims = GatherDimensionNumbers((), (axis,), (axis,), others, others)
    how = GatherScatterMode.from_any(mode)
    if not at.size or not x.size:
        return _full(at.shape, 0, x.dtype)
    fill = None if fill_value is None else np.asarray(fill_value).item()
    gather = Gather(dims, fill, False, how, (1,) * rank, False)
    return gather(x, Reshape((*at.shape, 1))(at))


def put_along_axis(arr, indices, values, axis, inplace=True, *, mode=None):
    """A copy with elements at positions along an axis replaced.

    >>> x = jnp.array([[10, 30, 20], [60, 40, 50]])
    >>> jnp.put_along_axis(x, jnp.argmax(x, axis=1, keepdims=True), 0, axis=1, inplace=False)
    Array([[10,  0, 20],
           [ 0, 40, 50]], dtype=int64)
    """
    if inplace:
        raise InvalidValue("put_along_axis cannot change an array in place; pass inplace=False")
    x, at = to_arrays("put_along_axis", arr, indices)
    if axis is None:
        return put_along_axis(ravel(x), at, values, 0, False, mode=mode).reshape(x.shape)
    k = canonical_axis(axis, x.ndim)
    grids = [Iota(j, INT, at.shape)() if j != k else at for j in range(x.ndim)]
    return x.at[tuple(grids)].set(values, mode=mode)


def put(a, ind, v, mode=None, *, inplace=True):
    """A copy with the elements at flat positions replaced.

    >>> jnp.put(jnp.zeros(4), jnp.array([0, 2]), jnp.array([1.0, 5.0]), inplace=False)
    Array([1., 0., 5., 0.], dtype=float64)
    """
    if inplace:
        raise InvalidValue(
            "put cannot change an array in place; pass inplace=False and use the result"
        )
    x = to_array(a, "put")
    at = ravel(to_array(ind, "put"))
    values = ravel(to_array(v, "put"))
    if not at.size or not values.size:
        return x
    if values.size < at.size:
        values = values[np.arange(at.size) % values.size]
    if mode == "wrap":
        at, mode = ufuncs.remainder(at, x.size), None
    elif mode == "clip":
        at = ufuncs.clip(at, 0, x.size - 1)  # as NumPy's, without counting from the end
    return reshape(ravel(x).at[at].set(values[: at.size], mode=mode), x.shape)


def place(arr, mask, vals, *, inplace=True):
    """A copy with the elements where a mask holds replaced by values, in their order.

    >>> mask = jnp.array([True, False, True, False])
    >>> jnp.place(jnp.arange(4), mask, jnp.array([7, 8]), inplace=False)
    Array([7, 1, 8, 3], dtype=int64)
    """
    if inplace:
        raise InvalidValue(
            "place cannot change an array in place; pass inplace=False and use the result"
        )
    x, keep = to_array(arr, "place"), ufuncs.truth(mask, "place")
    values = ravel(to_array(vals, "place"))
    if not values.size:
        raise InvalidValue("place needs at least one value")
    count = cumsum(convert(ravel(keep), INT)) - 1
    source = values[ufuncs.remainder(count, values.size)]
    return ufuncs.where3(keep, convert(reshape(source, x.shape), x.dtype), x)


def where(condition, x=None, y=None, /, *, size=None, fill_value=None):
    """x where the condition holds, else y; with one argument `nonzero`.

    >>> jnp.where(jnp.array([True, False]), 1, 2)
    Array([1, 2], dtype=int64, weak_type=True)
    """
    if x is None and y is None:
        return nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise InvalidValue("where needs both x and y, or none of them")
    return ufuncs.where3(ufuncs.truth(condition, "where"), x, y)


def select(condlist, choicelist, default=0):
    """For each element the choice whose condition holds first.

    >>> x = jnp.arange(5)
    >>> jnp.select([x < 2, x > 3], [x, x**2], default=-1)
    Array([ 0,  1, -1, -1, 16], dtype=int64)
    """
    if len(condlist) != len(choicelist) or not len(condlist):
        raise InvalidValue(
            f"select of {len(condlist)} conditions and {len(choicelist)} choices; expected equal "
            "numbers, at least one"
        )
    values = promote("select", *choicelist, default)
    out = values[-1]
    for mask, value in zip(list(condlist)[::-1], values[-2::-1], strict=True):
        out = ufuncs.where3(ufuncs.truth(mask, "select"), value, out)
    return out


def choose(a, choices, out=None, mode="raise"):
    """For each element the choice of that number.

    >>> jnp.choose(jnp.array([0, 1, 1]), [jnp.array([1, 2, 3]), jnp.array([10, 20, 30])])
    Array([ 1, 20, 30], dtype=int64)
    """
    no_out("choose", out)
    at = to_array(a, "choose")
    xs = _broadcast_arrays("choose", [at, *promote("choose", *choices)])
    n = len(xs) - 1
    if mode == "raise":
        known = need_known(at, "choose", "pass mode='clip' or 'wrap'")
        if ((known < 0) | (known >= n)).any():
            raise InvalidValue(
                f"invalid entry of choose: a number outside of 0..{n - 1}; pass mode='clip' or 'wrap'"
            )
    index = ufuncs.clip(xs[0], 0, n - 1) if mode != "wrap" else ufuncs.remainder(xs[0], n)
    out = xs[1]
    for k, value in enumerate(xs[2:], 1):
        out = _select(ops.eq(index, scalar(k, index.dtype)), value, out)
    return out


def compress(condition, a, axis=None, *, size=None, fill_value=0, out=None):
    """Slices along an axis where a condition holds.

    >>> jnp.compress(jnp.array([True, False, True]), jnp.array([[1, 2, 3], [4, 5, 6]]), axis=1)
    Array([[1, 3],
           [4, 6]], dtype=int64)
    """
    no_out("compress", out)
    x = to_array(a, "compress")
    mask = ufuncs.truth(condition, "compress")
    if axis is None:
        x, axis = ravel(x), 0
    k = canonical_axis(axis, x.ndim)
    if size is None:
        places = np.nonzero(need_known(mask, "compress"))[0]
        return (
            take(x, places, k, mode="clip")
            if len(places)
            else x[(*(slice(None),) * k, slice(0, 0))]
        )
    (places,) = nonzero(mask, size=size, fill_value=x.shape[k])
    return take(x, places, k, mode="fill", fill_value=fill_value)


def extract(condition, arr, *, size=None, fill_value=0):
    """The elements where a condition holds.

    >>> x = jnp.arange(6)
    >>> jnp.extract(x % 2 == 1, x)
    Array([1, 3, 5], dtype=int64)
    """
    return compress(ravel(condition), ravel(arr), size=size, fill_value=fill_value)


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
    keep[obj if isinstance(obj, slice) else np.asarray(obj)] = False
    return take_static(x, np.nonzero(keep)[0], k)


def _delete_traced(x: Array, at: Array, axis: int) -> Array:
    """Of distinct positions that are not known: each later element moves down once per position."""
    places = Sort(0, True, 1)(wrap(at, x.shape[axis]))[0] - arange(at.shape[0])
    target = arange(x.shape[axis] - at.shape[0])
    moved = target + sum_(target[None] >= places[:, None], axis=0)
    return take(x, moved, axis, mode="clip")


def fill_diagonal(a, val, wrap=False, *, inplace=True):
    """A copy with the diagonal replaced.

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


def unravel_index(indices, shape):
    """Flat positions as one position per axis.

    >>> jnp.unravel_index(jnp.array([2, 3]), (2, 3))
    (Array([0, 1], dtype=int64), Array([2, 0], dtype=int64))
    """
    at = array(indices)
    sizes = canonical_shape(shape)
    total = math.prod(sizes)
    at = ufuncs.clip(wrap(at, total), 0, total - 1)
    outs = []
    for n in sizes[::-1]:
        outs.append(ufuncs.remainder(at, n))
        at = ufuncs.floor_divide(at, n)
    return tuple(outs[::-1])


def ravel_multi_index(multi_index, dims, mode="raise", order="C", *, dtype=None):
    """Positions per axis as flat positions.

    >>> jnp.ravel_multi_index((jnp.array([0, 1]), jnp.array([2, 0])), (2, 3))
    Array([2, 3], dtype=int64)
    """
    sizes = canonical_shape(dims)
    parts = [array(p) for p in multi_index]
    if mode == "raise":
        for p, n in zip(parts, sizes, strict=True):
            known = need_known(p, "ravel_multi_index", "pass mode='clip' or 'wrap'")
            if ((known < 0) | (known >= n)).any():
                raise InvalidValue(
                    f"invalid entry of ravel_multi_index: a position outside of an axis of size {n}; "
                    "pass mode='clip' or 'wrap'"
                )
    elif mode == "clip":
        parts = [ufuncs.clip(p, 0, n - 1) for p, n in zip(parts, sizes, strict=True)]
    elif mode == "wrap":
        parts = [ufuncs.remainder(p, n) for p, n in zip(parts, sizes, strict=True)]
    pairs = list(zip(parts, sizes, strict=True))
    total: Any = None
    for p, n in pairs if order == "C" else pairs[::-1]:
        total = p if total is None else total * n + p
    return total if dtype is None else convert(total, dtypes.canonical(dtype))


__all__ = [
    "choose",
    "compress",
    "delete",
    "extract",
    "fill_diagonal",
    "insert",
    "place",
    "put",
    "put_along_axis",
    "ravel_multi_index",
    "select",
    "take",
    "take_along_axis",
    "trim_zeros",
    "unravel_index",
    "where",
]
