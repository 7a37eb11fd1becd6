"""Elements chosen by position or condition: where, take, select, put; positions as numbers."""

import math
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.core.source import indexing_by
from fnx.numpy.arrays import indexing
from fnx.numpy.arrays.creation import array
from fnx.numpy.arrays.index_plan import BadIndex, Plan, wrap
from fnx.numpy.arrays.traced_cache import replayed
from fnx.numpy.arrays.util import (
    INT,
    Unsupported,
    canonical_axis,
    canonical_shape,
    common_shape,
    convert,
    no_out,
    promote,
    to_array,
    to_arrays,
)
from fnx.numpy.arrays.util import broadcast_arrays as _broadcast_arrays
from fnx.numpy.arrays.util import select as _select
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.reductions.cumulative import cumsum
from fnx.numpy.structure.nonzero import need_known, nonzero
from fnx.numpy.structure.shapes import ravel, reshape
from fnx.ops.base.broadcast import broadcast_to as _broadcast_to
from fnx.ops.base.broadcast import full as _full
from fnx.ops.base.broadcast import scalar
from fnx.ops.base.permute import Reshape
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.structure.gather import Gather
from fnx.ops.structure.gather_dimension_numbers import GatherDimensionNumbers, GatherScatterMode
from fnx.ops.structure.join import Iota


def take_static(x: Array, places: np.ndarray, axis: int) -> Array:
    entries: list[Any] = [slice(0, n, 1) for n in x.shape]
    entries[axis] = places
    return indexing.read(x, Plan((), x.shape, tuple(entries)))


# --- take, put, choose -------------------------------------------------------------------------


@replayed("indices", "fill_value")
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

    TypeError for positions that are not integers; IndexError for elements of an empty axis;
    NotImplementedError for mode "raise".

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
    if dtypes.kind(at.dtype) not in "iu":
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
    with indexing_by(mode):
        return indexing.read(x, made, how, fill_value, (indices_are_sorted, unique_indices))


@replayed("fill_value")
def take_along_axis(
    arr, indices, axis=-1, mode=None, fill_value=None, *, wrap_negative_indices=None
):
    """Elements at positions along an axis, other axes in step.

    Negative positions count from the end, but for mode "promise_in_bounds"; `wrap_negative_indices`
    says so in so many words. Mode "one_hot" reads zeros out of bounds.

    TypeError for positions that are not integers; ValueError for different ranks.

    >>> x = jnp.array([[10, 30, 20], [60, 40, 50]])
    >>> jnp.take_along_axis(x, jnp.argmax(x, axis=1, keepdims=True), axis=1)
    Array([[30],
           [60]], dtype=int64)
    """
    x, at = to_arrays("take_along_axis", arr, indices)
    if mode == "one_hot":
        mode, fill_value = "fill", 0
    if dtypes.kind(at.dtype) not in "iu":
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
    with indexing_by(mode):
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

    ValueError for `inplace`.

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

    ValueError for `inplace`.

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
        at = ufuncs.remainder(at, x.size)
    elif mode == "clip":
        at = ufuncs.clip(at, 0, x.size - 1)  # as NumPy's, without counting from the end
    return reshape(ravel(x).at[at].set(values[: at.size], mode="clip"), x.shape)


def place(arr, mask, vals, *, inplace=True):
    """A copy with the elements where a mask holds replaced by values, in their order.

    ValueError for `inplace`, and without values.

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

    ValueError for one of x and y alone.

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

    ValueError for different numbers of conditions and choices, and for none.

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

    ValueError for numbers that are out of range, if they are known and the mode is "raise".

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


def unravel_index(indices, shape):
    """Flat positions as one position per axis.

    >>> jnp.unravel_index(jnp.array([2, 3]), (2, 3))
    (Array([0, 1], dtype=int64), Array([2, 0], dtype=int64))
    """
    at = array(indices)
    sizes = canonical_shape(shape)
    total = math.prod(sizes)
    whole = dtypes.is_integer(at.dtype)
    at = _holding(at, total)
    at = wrap(at, total) if whole else ufuncs.where3(at < 0, at + total, at)
    at = ufuncs.where3(at < total, ufuncs.maximum(at, 0), total - 1)
    outs = []
    for n in sizes[::-1]:
        outs.append(ufuncs.remainder(at, n))
        at = ufuncs.floor_divide(at, n)
    return tuple(outs[::-1])


def _holding(at: Array, size: int) -> Array:
    """Positions in a dtype that holds all positions of so many elements."""
    small = dtypes.is_integer(at.dtype) and size > dtypes.iinfo(at.dtype).max
    return convert(at, INT) if small else at


def ravel_multi_index(multi_index, dims, mode="raise", order="C", *, dtype=None):
    """Positions per axis as flat positions.

    ValueError for positions that are out of bounds, if they are known and the mode is "raise".

    >>> jnp.ravel_multi_index((jnp.array([0, 1]), jnp.array([2, 0])), (2, 3))
    Array([2, 3], dtype=int64)
    """
    sizes = canonical_shape(dims)
    parts = [_holding(array(p), max(math.prod(sizes), *sizes, 0)) for p in multi_index]
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
    "extract",
    "place",
    "put",
    "put_along_axis",
    "ravel_multi_index",
    "select",
    "take",
    "take_along_axis",
    "unravel_index",
    "where",
]
