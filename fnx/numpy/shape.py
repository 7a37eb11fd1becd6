"""Functions that move elements: reshape, transpose, join, split, repeat, pad, roll, take, select."""

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.core.interpreter import Tracer
from fnx.numpy import indexing, ufuncs
from fnx.numpy.creation import arange, array, full
from fnx.numpy.indexing import Plan, wrap
from fnx.numpy.util import (
    PYTHON,
    canonical_axes,
    canonical_axis,
    canonical_shape,
    common_shape,
    convert,
    fit,
    no_out,
    promote,
    reshape_to,
    to_array,
    to_arrays,
)
from fnx.numpy.util import broadcast_arrays as _broadcast_arrays
from fnx.numpy.util import select as _select
from fnx.ops import elementwise as ops
from fnx.ops.broadcast import broadcast_axis, insert_axes, scalar
from fnx.ops.broadcast import broadcast_to as _broadcast_to
from fnx.ops.broadcast import full as _full
from fnx.ops.join import Concatenate, Iota, Split
from fnx.ops.permute import Reshape, Rev, Squeeze, Transpose
from fnx.ops.permute import move_axis as _move_axis
from fnx.ops.slice import Pad, Slice

INT = np.dtype(np.int64)


# --- what shape ---------------------------------------------------------------------------------------


def shape(a):
    """The sizes of the axes."""
    return tuple(a.shape) if hasattr(a, "shape") else to_array(a, "shape").shape


def ndim(a):
    """The number of axes."""
    return len(shape(a))


def size(a, axis=None):
    """The number of elements, or along axes."""
    sizes = shape(a)
    return math.prod([sizes[k] for k in canonical_axes(axis, len(sizes))])


def broadcast_shapes(*shapes):
    """The shape to which shapes broadcast."""
    return common_shape("broadcast_shapes", [canonical_shape(s) for s in shapes])


# --- reshape, transpose -------------------------------------------------------------------------------


def reshape(a, shape, order="C", *, copy=None, out_sharding=None):
    """The elements in another shape, one entry of which may be -1.

    >>> reshape(arange(4), (2, -1)).shape
    (2, 2)
    """
    del copy, out_sharding
    x = to_array(a, "reshape")
    new = infer_shape(x, shape)
    if order == "C":
        return reshape_to(x, new)
    if order != "F":
        raise InvalidValue(f"reshape with order={order!r}; expected 'C' or 'F'")
    flipped = Reshape(new[::-1])(Transpose(tuple(range(x.ndim))[::-1])(x))
    return Transpose(tuple(range(len(new)))[::-1])(flipped)


def infer_shape(x: Array, shape: Any) -> tuple[int, ...]:
    """A shape with -1 replaced by what is left of the size."""
    if isinstance(shape, (tuple, list)):
        sizes = [operator.index(n) for n in shape]
    elif isinstance(shape, (Array, np.ndarray)) and shape.ndim:
        sizes = [operator.index(n) for n in np.asarray(shape)]
    else:
        sizes = [operator.index(shape)]
    if sizes.count(-1) == 1:
        rest = math.prod([n for n in sizes if n != -1])
        if rest and x.size % rest == 0:
            sizes[sizes.index(-1)] = x.size // rest
    if math.prod(sizes) != x.size or any(n < 0 for n in sizes):
        raise ShapeError(
            f"cannot reshape an array of shape {x.shape} (size {x.size}) into shape {tuple(sizes)}; "
            "expected the same number of elements, and at most one -1"
        )
    return tuple(sizes)


def ravel(a, order="C", *, out_sharding=None):
    """The elements in one axis."""
    return reshape(a, (-1,) if size(a) else (0,), order)


def transpose(a, axes=None):
    """Axes in another order, by default reversed."""
    x = to_array(a, "transpose")
    n = x.ndim
    order = tuple(range(n))[::-1] if axes is None else tuple([canonical_axis(k, n) for k in axes])
    if sorted(order) != list(range(n)):
        raise InvalidValue(f"transpose: {axes} is no permutation of the axes of shape {x.shape}")
    return x if order == tuple(range(n)) else Transpose(order)(x)


permute_dims = transpose


def matrix_transpose(x, /):
    """Matrices with rows and columns exchanged."""
    return swapaxes(x, -1, -2)


def moveaxis(a, source, destination):
    """Axes moved to other places, the rest in their order."""
    x = to_array(a, "moveaxis")
    from_ = canonical_axes(source, x.ndim, "source")
    to = canonical_axes(destination, x.ndim, "destination")
    if len(from_) != len(to):
        raise InvalidValue(f"moveaxis: {source} and {destination} differ in length")
    order = [k for k in range(x.ndim) if k not in from_]
    for place, axis in sorted(zip(to, from_, strict=True)):
        order.insert(place, axis)
    return transpose(x, order)


def swapaxes(a, axis1, axis2):
    """Two axes exchanged."""
    x = to_array(a, "swapaxes")
    order = list(range(x.ndim))
    i, j = canonical_axis(axis1, x.ndim), canonical_axis(axis2, x.ndim)
    order[i], order[j] = order[j], order[i]
    return transpose(x, order)


def rollaxis(a, axis, start=0):
    """An axis moved before another."""
    x = to_array(a, "rollaxis")
    k = canonical_axis(axis, x.ndim)
    start = start + x.ndim if start < 0 else start
    return moveaxis(x, k, start - 1 if k < start else start)


def squeeze(a, axis=None):
    """Without axes of size 1."""
    x = to_array(a, "squeeze")
    if axis is None:
        axes = tuple([k for k, n in enumerate(x.shape) if n == 1])
    else:
        axes = canonical_axes(axis, x.ndim)
        if any(x.shape[k] != 1 for k in axes):
            raise ShapeError(f"squeeze of axes {axes} of shape {x.shape}; expected axes of size 1")
    return Squeeze(axes)(x) if axes else x


def expand_dims(a, axis):
    """New axes of size 1 at positions of the result."""
    x = to_array(a, "expand_dims")
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    axes = canonical_axes(axis, x.ndim + count)
    return insert_axes(x, tuple(sorted(axes)))


def atleast_1d(*arys):
    """Arrays with at least one axis."""
    outs = [reshape_to(x, x.shape or (1,)) for x in to_arrays("atleast_1d", *arys)]
    return outs[0] if len(outs) == 1 else outs


def atleast_2d(*arys):
    """Arrays with at least two axes, new ones first."""
    outs = [
        reshape_to(x, (*(1,) * (2 - x.ndim), *x.shape)) for x in to_arrays("atleast_2d", *arys)
    ]
    return outs[0] if len(outs) == 1 else outs


def atleast_3d(*arys):
    """Arrays with at least three axes."""
    outs = []
    for x in to_arrays("atleast_3d", *arys):
        s = {0: (1, 1, 1), 1: (1, *x.shape, 1), 2: (*x.shape, 1)}.get(x.ndim, x.shape)
        outs.append(reshape_to(x, s))
    return outs[0] if len(outs) == 1 else outs


def broadcast_to(array, shape, *, out_sharding=None):
    """Repeated along new axes and axes of size 1, to a shape."""
    x = to_array(array, "broadcast_to")
    new = canonical_shape(shape)
    ok = len(new) >= x.ndim and all(
        n in (1, m) for n, m in zip(x.shape, new[len(new) - x.ndim :], strict=True)
    )
    if not ok:
        raise ShapeError(
            f"an array of shape {x.shape} does not broadcast to shape {new}; axes are aligned at the "
            "end, and must be equal or 1"
        )
    return _broadcast_to(x, new)


def broadcast_arrays(*args):
    """Arrays in their common shape."""
    return _broadcast_arrays("broadcast_arrays", to_arrays("broadcast_arrays", *args))


# --- join and split -----------------------------------------------------------------------------------


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

    >>> concatenate([array([1, 2]), array([3])])
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
    """As `concatenate`."""
    return concatenate(arrays, axis)


def stack(arrays, axis=0, out=None, dtype=None):
    """Arrays of one shape joined along a new axis."""
    no_out("stack", out)
    xs = _joined("stack", _sequence("stack", arrays), dtype)
    if any(x.shape != xs[0].shape for x in xs):
        raise ShapeError(f"stack of arrays of shapes {[x.shape for x in xs]}; expected equal shapes")
    k = canonical_axis(axis, xs[0].ndim + 1)
    shape = (*xs[0].shape[:k], 1, *xs[0].shape[k:])
    if len(xs) == 1:
        return Reshape(shape)(xs[0])
    return Concatenate(k)(*[Reshape(shape)(x) for x in xs])


def unstack(x, /, *, axis=0):
    """The slices along an axis."""
    x = moveaxis(to_array(x, "unstack"), axis, 0)
    return tuple([x[k] for k in range(x.shape[0])])


def vstack(tup, dtype=None):
    """Rows, or arrays joined along axis 0."""
    xs = atleast_2d(*_sequence("vstack", tup))
    return concatenate(xs if isinstance(xs, list) else [xs], 0, dtype)


def hstack(tup, dtype=None):
    """Arrays joined along axis 1, vectors along axis 0."""
    xs = atleast_1d(*_sequence("hstack", tup))
    xs = xs if isinstance(xs, list) else [xs]
    return concatenate(xs, 0 if xs[0].ndim == 1 else 1, dtype)


def dstack(tup, dtype=None):
    """Arrays joined along axis 2."""
    xs = atleast_3d(*_sequence("dstack", tup))
    return concatenate(xs if isinstance(xs, list) else [xs], 2, dtype)


def column_stack(tup):
    """Vectors as columns."""
    xs = [reshape_to(x, (x.size, 1)) if x.ndim < 2 else x for x in _sequence("column_stack", tup)]
    return concatenate(xs, 1)


def block(arrays):
    """Nested lists of blocks joined, the innermost along the last axis."""

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
    """Arrays joined, flat by default."""
    return concatenate([to_array(arr, "append"), to_array(values, "append")], axis)


def split(ary, indices_or_sections, axis=0):
    """Equal parts, or parts that end at indices."""
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
    """Parts that are nearly equal, or that end at indices."""
    x = to_array(ary, "array_split")
    k = canonical_axis(axis, x.ndim)
    n = x.shape[k]
    if np.ndim(indices_or_sections) == 0:
        parts = operator.index(indices_or_sections)
        sizes = tuple([n // parts + (i < n % parts) for i in range(parts)])
        return list(Split(k, sizes)(x))
    ends = [slice(operator.index(i)).indices(n)[1] for i in indices_or_sections]
    bounds = [0, *ends, n]
    if all(a <= b for a, b in zip(bounds, bounds[1:])):
        return list(Split(k, tuple([b - a for a, b in zip(bounds, bounds[1:])]))(x))
    lead = (slice(None),) * k
    return [x[(*lead, slice(a, b))] for a, b in zip(bounds, bounds[1:])]


def hsplit(ary, indices_or_sections):
    """`split` along axis 1 (0 of vectors)."""
    return split(ary, indices_or_sections, 0 if ndim(ary) == 1 else 1)


def vsplit(ary, indices_or_sections):
    """`split` along axis 0."""
    return split(ary, indices_or_sections, 0)


def dsplit(ary, indices_or_sections):
    """`split` along axis 2."""
    return split(ary, indices_or_sections, 2)


# --- repeat, pad, roll --------------------------------------------------------------------------------


def tile(A, reps):
    """Copies of the array side by side."""
    x = to_array(A, "tile")
    counts = tuple([operator.index(r) for r in reps]) if np.ndim(reps) else (operator.index(reps),)
    n = max(len(counts), x.ndim)
    counts = (1,) * (n - len(counts)) + counts
    sizes = (1,) * (n - x.ndim) + x.shape
    wide = _broadcast_to(
        Reshape(tuple([m for s in sizes for m in (1, s)]))(x),
        tuple([m for c, s in zip(counts, sizes, strict=True) for m in (c, s)]),
    )
    return Reshape(tuple([c * s for c, s in zip(counts, sizes, strict=True)]))(wide)


def repeat(a, repeats, axis=None, *, total_repeat_length=None, out_sharding=None):
    """Each element repeated."""
    x = to_array(a, "repeat")
    if axis is None:
        x, axis = ravel(x), 0
    if x.ndim == 0:
        x = Reshape((1,))(x)
    k = canonical_axis(axis, x.ndim)
    n = x.shape[k]
    if np.ndim(repeats) == 0 and not isinstance(repeats, Tracer) and total_repeat_length is None:
        count = operator.index(repeats)
        wide = broadcast_axis(x, count, k + 1)
        return Reshape((*x.shape[:k], n * count, *x.shape[k + 1 :]))(wide)
    if total_repeat_length is None:
        counts = np.broadcast_to(np.asarray(repeats), (n,))
        return take(x, np.repeat(np.arange(n), counts), k, mode="clip")
    return take(x, _repeat_places(repeats, n, total_repeat_length), k, mode="clip")


def _repeat_places(repeats: Any, n: int, total: int) -> Array:
    """The source of each of `total` elements, for counts that need not be known."""
    from fnx.numpy.reduce import cumsum

    counts = broadcast_to(to_array(repeats, "repeat"), (n,))
    starts = cumsum(counts) - counts
    marks = _full((total,), 0, INT).at[starts].add(1, mode="drop")
    return cumsum(marks) - 1


def pad(array, pad_width, mode="constant", **kwargs):
    """Elements put around, by mode: constant, edge, reflect, symmetric, wrap, empty, linear_ramp,
    maximum, mean, median, minimum, or a function.

    >>> pad(arange(2), 1)
    Array([0, 0, 1, 0], dtype=int64)
    """
    x = to_array(array, "pad")
    if isinstance(pad_width, dict):
        pad_width = [pad_width.get(k, pad_width.get(k - x.ndim, 0)) for k in range(x.ndim)]
        pad_width = [w if np.ndim(w) else (w, w) for w in pad_width]
    width = np.broadcast_to(np.asarray(pad_width, dtype=int), (x.ndim, 2)).tolist()
    if any(w < 0 for pair in width for w in pair):
        raise InvalidValue(f"pad_width {pad_width} has a negative entry; slice to crop")
    if callable(mode):
        return _pad_by_function(x, width, mode, kwargs)
    if mode not in _PADDING:
        raise InvalidValue(f"pad with mode={mode!r}; expected one of {', '.join(_PADDING)}")
    known = _PADDING[mode]
    if set(kwargs) - set(known):
        raise InvalidValue(f"pad with mode={mode!r} takes {known or 'no arguments'}, not {list(kwargs)}")
    if mode == "constant":
        return _pad_constant(x, width, kwargs.get("constant_values", 0))
    if mode == "empty":
        return _pad_constant(x, width, 0)
    if mode in ("reflect", "symmetric", "wrap", "edge"):
        for k, (lo, hi) in enumerate(width):
            if lo or hi:
                x = _pad_places(x, k, lo, hi, mode, kwargs.get("reflect_type", "even"))
        return x
    return _pad_statistic(x, width, mode, kwargs)


_PADDING: dict[str, tuple[str, ...]] = {
    "constant": ("constant_values",),
    "edge": (),
    "reflect": ("reflect_type",),
    "symmetric": ("reflect_type",),
    "wrap": (),
    "empty": (),
    "linear_ramp": ("end_values",),
    "maximum": ("stat_length",),
    "mean": ("stat_length",),
    "median": ("stat_length",),
    "minimum": ("stat_length",),
}


def _pad_constant(x: Array, width: list, values: Any) -> Array:
    if not isinstance(values, Array) and np.ndim(values) == 0 or getattr(values, "shape", None) == ():
        value = convert(to_array(values, "pad"), x.dtype)
        return Pad(tuple([(lo, hi, 0) for lo, hi in width]))(x, value)
    table = _broadcast_to(convert(array(values), x.dtype), (x.ndim, 2))
    for k, (lo, hi) in enumerate(width):
        sides = [(lo, 0), (0, hi)]
        for j, (a, b) in enumerate(sides):
            config = tuple([(a, b, 0) if i == k else (0, 0, 0) for i in range(x.ndim)])
            x = Pad(config)(x, table[k, j])
    return x


def _pad_places(x: Array, axis: int, lo: int, hi: int, mode: str, reflect_type: str) -> Array:
    n = x.shape[axis]
    if n == 0:
        raise InvalidValue(f"pad with mode={mode!r} of axis {axis}, which is empty")
    if reflect_type == "odd":
        return _pad_odd(x, axis, lo, hi, mode)
    places = np.arange(-lo, n + hi)
    if mode == "edge":
        source = np.clip(places, 0, n - 1)
    elif mode == "wrap":
        source = places % n
    else:
        period = max(2 * (n - 1), 1) if mode == "reflect" else 2 * n
        turned = places % period
        last = period if mode == "reflect" else period - 1
        source = np.minimum(turned, last - turned)
    return _take_static(x, source, axis)


def _pad_odd(x: Array, axis: int, lo: int, hi: int, mode: str) -> Array:
    """Reflections at the ends that continue the slope: 2 * end - reflected, as often as needed."""
    lead = (slice(None),) * axis
    skip = int(mode == "reflect")
    for count, before in ((lo, True), (hi, False)):
        while count > 0:
            n = x.shape[axis]
            if n <= skip:
                raise InvalidValue(f"pad with mode={mode!r} of axis {axis} of size {n}")
            take_now = min(count, n - skip)
            end = x[(*lead, slice(0, 1) if before else slice(n - 1, n))]
            inner = slice(skip, skip + take_now) if before else slice(n - skip - take_now, n - skip)
            turned = ufuncs.subtract(ufuncs.multiply(end, 2), flip(x[(*lead, inner)], axis))
            x = concatenate([turned, x] if before else [x, turned], axis)
            count -= take_now
    return x


def _take_static(x: Array, places: np.ndarray, axis: int) -> Array:
    entries: list[Any] = [slice(0, n, 1) for n in x.shape]
    entries[axis] = places
    return indexing.read(x, Plan((), x.shape, tuple(entries)))


def _pad_statistic(x: Array, width: list, mode: str, options: dict) -> Array:
    from fnx.numpy import reduce

    whole = {"maximum": reduce.max, "minimum": reduce.min, "mean": reduce.mean}
    ends = np.broadcast_to(np.asarray(options.get("end_values", 0)), (x.ndim, 2))
    lengths = options.get("stat_length")
    spans = None if lengths is None else np.broadcast_to(np.asarray(lengths), (x.ndim, 2))
    for k, (lo, hi) in enumerate(width):
        n = x.shape[k]
        lead = (slice(None),) * k
        if mode == "linear_ramp":
            sides = [
                _ramp(x[(*lead, slice(0, 1))], ends[k, 0], lo, k, False),
                _ramp(x[(*lead, slice(n - 1, n))], ends[k, 1], hi, k, True),
            ]
        else:
            if mode == "median":
                from fnx.numpy.statistics import median

                fn = median
            else:
                fn = whole[mode]
            a, b = (n, n) if spans is None else (min(spans[k, 0], n), min(spans[k, 1], n))
            stats = [x[(*lead, slice(0, a))], x[(*lead, slice(n - b, n))]]
            stats = [fn(s, axis=k, keepdims=True) for s in stats]
            if not dtypes.is_inexact(x.dtype):
                stats = [ufuncs.round(s) for s in stats]
            shape = [(*x.shape[:k], w, *x.shape[k + 1 :]) for w in (lo, hi)]
            sides = [_broadcast_to(convert(s, x.dtype), z) for s, z in zip(stats, shape)]
        x = concatenate([sides[0], x, sides[1]], k)
    return x


def _ramp(edge: Array, end: Any, count: int, axis: int, after: bool) -> Array:
    from fnx.numpy.creation import linspace

    along = squeeze(edge, axis)
    other = full(along.shape, end, along.dtype)
    out = linspace(other, along, count, endpoint=False, axis=axis, dtype=edge.dtype)
    return flip(out, axis) if after else out


def _pad_by_function(x: Array, width: list, fn: Any, options: dict) -> Array:
    from fnx.numpy.functional import apply_along_axis

    x = _pad_constant(x, width, 0)
    for k in range(x.ndim):
        x = apply_along_axis(lambda v, k=k: fn(v, tuple(width[k]), k, options), k, x)
    return x


def roll(a, shift, axis=None):
    """Elements moved along axes; those that leave come in at the other end."""
    x = to_array(a, "roll")
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    shifts = list(shift) if np.ndim(shift) else [shift] * len(axes)
    axes = list(axes) * len(shifts) if len(axes) == 1 else list(axes)
    for by, k in zip(shifts, axes, strict=True):
        x = _roll_axis(x, by, canonical_axis(k, x.ndim))
    return x


def _roll_axis(x: Array, by: Any, axis: int) -> Array:
    n = x.shape[axis]
    if n == 0:
        return x
    lead = (slice(None),) * axis
    if isinstance(by, ConcreteArray):
        by = int(by)
    if not isinstance(by, Array):
        k = operator.index(by) % n
        if k == 0:
            return x
        return Concatenate(axis)(x[(*lead, slice(n - k, n))], x[(*lead, slice(0, n - k))])
    from fnx.ops.dynamic_slice import DynamicSlice

    start = ufuncs.remainder(ufuncs.negative(by), n)
    twice = Concatenate(axis)(x, x)
    starts = [start if k == axis else scalar(0, INT) for k in range(x.ndim)]
    return DynamicSlice(x.shape)(twice, *starts)


def flip(m, axis=None):
    """Elements in reverse order along axes, by default all."""
    x = to_array(m, "flip")
    axes = canonical_axes(axis, x.ndim)
    return Rev(axes)(x) if axes else x


def fliplr(m):
    """Columns in reverse order."""
    return flip(m, 1)


def flipud(m):
    """Rows in reverse order."""
    return flip(m, 0)


def rot90(m, k=1, axes=(0, 1)):
    """Rotated by 90 degrees, k times, from the first axis toward the second."""
    x = to_array(m, "rot90")
    a, b = canonical_axes(tuple(axes), x.ndim)
    turns = k % 4
    if turns == 0:
        return x
    if turns == 2:
        return flip(x, (a, b))
    return swapaxes(flip(x, b), a, b) if turns == 1 else flip(swapaxes(x, a, b), b)


def resize(a, new_shape):
    """Elements repeated, or cut off, to fill a shape."""
    x = ravel(a)
    new = canonical_shape(new_shape)
    n = math.prod(new)
    if not x.size:
        return _full(new, 0, x.dtype)
    copies = tile(x, -(-n // x.size)) if n > x.size else x
    return reshape(copies[:n], new)


# --- take, put, choose --------------------------------------------------------------------------------


def take(a, indices, axis=None, out=None, mode=None, unique_indices=False, indices_are_sorted=False, fill_value=None):
    """Elements at positions along an axis; out of bounds is nan (mode "fill"), or "clip", "wrap"."""
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
    if mode == "wrap":
        at, mode = ufuncs.remainder(at, n), "promise_in_bounds"
    elif mode == "raise":
        raise InvalidValue("take with mode='raise' is not supported; use 'fill', 'clip' or 'wrap'")
    elif mode != "clip":
        at = wrap(at, n)
    entries: list[Any] = [slice(0, m, 1) for m in x.shape]
    entries[k] = at._value if type(at) is ConcreteArray and at.ndim else at
    if type(at) is ConcreteArray and at.ndim == 0:
        entries[k] = int(at)
    made = Plan((), x.shape, tuple(entries))
    how = "fill" if mode is None else mode
    return indexing.read(x, made, how, fill_value, (indices_are_sorted, unique_indices))


def take_along_axis(arr, indices, axis=-1, mode=None, fill_value=None, *, wrap_negative_indices=None):
    """Elements at positions along an axis, other axes in step."""
    x, at = to_arrays("take_along_axis", arr, indices)
    if at.dtype.kind not in "iu":
        raise TypeMismatch(f"take_along_axis needs integer positions, not dtype {at.dtype}")
    if axis is None:
        return take_along_axis(ravel(x), ravel(at), 0, mode, fill_value)
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
    return _gather_along(x, wrap(at, n), k, "fill" if mode is None else mode, fill_value)


def _gather_along(x: Array, at: Array, axis: int, mode: Any, fill_value: Any) -> Array:
    from fnx.ops.indexing import Gather
    from fnx.ops.windows import GatherDimensionNumbers, GatherScatterMode

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
    """A copy with elements at positions along an axis replaced."""
    x, at = to_arrays("put_along_axis", arr, indices)
    k = canonical_axis(axis, x.ndim)
    grids = [
        Iota(j, INT, at.shape)() if j != k else at for j in range(x.ndim)
    ]
    return x.at[tuple(grids)].set(values, mode=mode)


def put(a, ind, v, mode=None, *, inplace=True):
    """A copy with the elements at flat positions replaced."""
    if inplace:
        raise InvalidValue("put cannot change an array in place; pass inplace=False and use the result")
    x = to_array(a, "put")
    at = ravel(to_array(ind, "put"))
    values = ravel(to_array(v, "put"))
    if not at.size:
        return x
    if values.size < at.size:
        values = tile(values, -(-at.size // values.size))
    if mode == "wrap":
        at, mode = ufuncs.remainder(at, x.size), None
    return reshape(ravel(x).at[at].set(values[: at.size], mode=mode), x.shape)


def where(condition, x=None, y=None, /, *, size=None, fill_value=None):
    """x where the condition holds, else y; with one argument `nonzero`.

    >>> where(array([True, False]), 1, 2)
    Array([1, 2], dtype=int64, weak_type=True)
    """
    if x is None and y is None:
        from fnx.numpy.sorting import nonzero

        return nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise InvalidValue("where needs both x and y, or none of them")
    return ufuncs.where3(ufuncs.truth(condition, "where"), x, y)


def select(condlist, choicelist, default=0):
    """For each element the choice whose condition holds first."""
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
    """For each element the choice of that number."""
    no_out("choose", out)
    at = to_array(a, "choose")
    xs = _broadcast_arrays("choose", [at, *promote("choose", *choices)])
    n = len(xs) - 1
    if mode == "raise":
        known = np.asarray(at)
        if ((known < 0) | (known >= n)).any():
            raise InvalidValue(f"choose: a number outside of 0..{n - 1}; pass mode='clip' or 'wrap'")
    index = ufuncs.clip(xs[0], 0, n - 1) if mode != "wrap" else ufuncs.remainder(xs[0], n)
    out = xs[1]
    for k, value in enumerate(xs[2:], 1):
        out = _select(ops.eq(index, scalar(k, index.dtype)), value, out)
    return out


def compress(condition, a, axis=None, *, size=None, fill_value=0, out=None):
    """Slices along an axis where a condition holds."""
    no_out("compress", out)
    x = to_array(a, "compress")
    mask = ufuncs.truth(condition, "compress")
    if axis is None:
        x, axis = ravel(x), 0
    k = canonical_axis(axis, x.ndim)
    if size is None:
        places = np.nonzero(np.asarray(mask))[0]
        return take(x, places, k, mode="clip") if len(places) else x[(*(slice(None),) * k, slice(0, 0))]
    from fnx.numpy.sorting import nonzero

    (places,) = nonzero(mask, size=size, fill_value=x.shape[k])
    return take(x, places, k, mode="fill", fill_value=fill_value)


def extract(condition, arr, *, size=None, fill_value=0):
    """The elements where a condition holds."""
    return compress(ravel(condition), ravel(arr), size=size, fill_value=fill_value)


def insert(arr, obj, values, axis=None):
    """Values put in before positions that are known."""
    x = to_array(arr, "insert")
    if axis is None:
        x, axis = ravel(x), 0
    k = canonical_axis(axis, x.ndim)
    n = x.shape[k]
    v = to_array(values, "insert") if not isinstance(values, (list, tuple)) else array(values)
    v = convert(v, x.dtype)
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
    return _take_static(Concatenate(k)(x, v), source, k)


def delete(arr, obj, axis=None, *, assume_unique_indices=False):
    """Without the slices at positions that are known."""
    x = to_array(arr, "delete")
    if axis is None:
        x, axis = ravel(x), 0
    k = canonical_axis(axis, x.ndim)
    if isinstance(obj, Tracer) and assume_unique_indices:
        return _delete_traced(x, ravel(obj), k)
    keep = np.ones(x.shape[k], bool)
    keep[obj if isinstance(obj, slice) else np.asarray(obj)] = False
    return _take_static(x, np.nonzero(keep)[0], k)


def _delete_traced(x: Array, at: Array, axis: int) -> Array:
    """Of distinct positions that are not known: each later element moves down once per position."""
    from fnx.numpy.reduce import sum as sum_
    from fnx.numpy.sorting import sort

    places = sort(wrap(at, x.shape[axis])) - arange(at.shape[0])
    target = arange(x.shape[axis] - at.shape[0])
    moved = target + sum_(target[None] >= places[:, None], axis=0)
    return take(x, moved, axis, mode="clip")


def diag(v, k=0):
    """The matrix with a vector on diagonal k, or the diagonal k of a matrix."""
    x = to_array(v, "diag")
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise InvalidValue(f"diag of an array of shape {x.shape}; expected a vector or a matrix")
    n = x.shape[0] + abs(k)
    row, column = Iota(0, INT, (n, n))(), Iota(1, INT, (n, n))()
    on = ops.eq(ops.add(row, scalar(int(k), INT)), column)
    # Along the columns for k >= 0, the rows for k < 0: there the vector has its own places.
    wide = Pad(((k, 0, 0) if k >= 0 else (0, -k, 0),))(x, scalar(0, x.dtype))
    return _select(on, broadcast_axis(wide, n, 0), scalar(0, x.dtype))


def diagflat(v, k=0):
    """The matrix with the elements of an array on diagonal k."""
    return diag(ravel(v), k)


def diagonal(a, offset=0, axis1=0, axis2=1):
    """A diagonal of the matrices along two axes, as the last axis."""
    x = to_array(a, "diagonal")
    i, j = canonical_axis(axis1, x.ndim), canonical_axis(axis2, x.ndim)
    x = moveaxis(x, (i, j), (-2, -1))
    rows, columns = x.shape[-2:]
    first = (max(-offset, 0), max(offset, 0))
    n = max(min(rows - first[0], columns - first[1]), 0)
    if n == 0:
        return _full((*x.shape[:-2], 0), 0, x.dtype)
    # In the flat matrix the diagonal is a slice with stride columns + 1.
    flat = Reshape((*x.shape[:-2], rows * columns))(x)
    start = first[0] * columns + first[1]
    stop = start + (n - 1) * (columns + 1) + 1
    lead = len(x.shape) - 2
    return Slice(
        (*(0,) * lead, start), (*x.shape[:-2], stop), (*(1,) * lead, columns + 1)
    )(flat)


def fill_diagonal(a, val, wrap=False, *, inplace=True):
    """A copy with the diagonal replaced."""
    if inplace:
        raise InvalidValue("fill_diagonal cannot change an array in place; pass inplace=False")
    if wrap:
        raise InvalidValue("fill_diagonal with wrap=True is not supported")
    x = to_array(a, "fill_diagonal")
    if x.ndim < 2:
        raise InvalidValue(f"fill_diagonal of shape {x.shape}; expected at least 2 axes")
    n = min(x.shape)
    return x.at[(np.arange(n),) * x.ndim].set(val)


def trim_zeros(filt, trim="fb", axis=None):
    """Without zeros at the ends, of values that are known."""
    x = np.trim_zeros(np.asarray(filt), trim)
    return array(x)


def unravel_index(indices, shape):
    """Flat positions as one position per axis."""
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
    """Positions per axis as flat positions."""
    sizes = canonical_shape(dims)
    parts = [array(p) for p in multi_index]
    if mode == "raise":
        for p, n in zip(parts, sizes, strict=True):
            known = np.asarray(p)
            if ((known < 0) | (known >= n)).any():
                raise InvalidValue(f"ravel_multi_index: a position outside of an axis of size {n}")
    elif mode == "clip":
        parts = [ufuncs.clip(p, 0, n - 1) for p, n in zip(parts, sizes, strict=True)]
    elif mode == "wrap":
        parts = [ufuncs.remainder(p, n) for p, n in zip(parts, sizes, strict=True)]
    pairs = list(zip(parts, sizes, strict=True))
    total: Any = None
    for p, n in pairs if order == "C" else pairs[::-1]:
        total = p if total is None else total * n + p
    return total if dtype is None else convert(total, dtypes.canonical(dtype))


def packbits(a, axis=None, bitorder="big"):
    """Bits packed into bytes."""
    x = ufuncs.truth(a, "packbits")
    if axis is None:
        x, axis = ravel(x), 0
    x = moveaxis(x, axis, -1)
    extra = -x.shape[-1] % 8
    if extra:
        x = Pad((*((0, 0, 0),) * (x.ndim - 1), (0, extra, 0)))(x, scalar(False, dtypes.bool_))
    bits = convert(reshape(x, (*x.shape[:-1], -1, 8)), np.dtype("u1"))
    weights = 1 << np.arange(8) if bitorder == "little" else 1 << np.arange(8)[::-1]
    from fnx.ops.broadcast import Sum

    weighted = ufuncs.multiply(bits, array(weights.astype("u1")))
    return moveaxis(Sum((weighted.ndim - 1,))(weighted), -1, axis)


def unpackbits(a, axis=None, count=None, bitorder="big"):
    """Bytes as bits."""
    x = to_array(a, "unpackbits")
    if x.dtype != np.dtype("u1"):
        raise TypeMismatch(f"unpackbits needs uint8, not {x.dtype}")
    if axis is None:
        x, axis = ravel(x), 0
    x = moveaxis(x, axis, -1)
    shifts = np.arange(8) if bitorder == "little" else np.arange(8)[::-1]
    bits = ufuncs.right_shift(x[..., None], array(shifts.astype("u1"))) & np.uint8(1)
    out = reshape(bits, (*x.shape[:-1], -1))
    if count is not None:
        out = out[..., :count]
    return moveaxis(out, -1, axis)


__all__ = [
    "append", "array_split", "atleast_1d", "atleast_2d", "atleast_3d", "block", "broadcast_arrays",
    "broadcast_shapes", "broadcast_to", "choose", "column_stack", "compress", "concat", "concatenate", "delete",
    "diag", "diagflat", "diagonal", "dsplit", "dstack", "expand_dims", "extract", "fill_diagonal", "flip",
    "fliplr", "flipud", "hsplit", "hstack", "insert", "matrix_transpose", "moveaxis", "ndim", "packbits", "pad",
    "permute_dims", "put", "put_along_axis", "ravel", "ravel_multi_index", "repeat", "reshape", "resize", "roll",
    "rollaxis", "rot90", "select", "shape", "size", "split", "squeeze", "stack", "swapaxes", "take",
    "take_along_axis", "tile", "transpose", "trim_zeros", "unpackbits", "unravel_index", "unstack", "vsplit",
    "vstack", "where",
]  # fmt: skip
del PYTHON, Sequence, fit, _move_axis
