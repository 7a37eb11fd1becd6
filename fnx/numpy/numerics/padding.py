"""pad, in all modes."""

from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import FnxError, InvalidValue, ShapeError, TypeMismatch
from fnx.numpy.arrays.creation import array, full
from fnx.numpy.arrays.util import Unsupported, convert, to_array
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.numerics.statistics import median
from fnx.numpy.numerics.vectorize import apply_along_axis
from fnx.numpy.reductions import averages, reduce
from fnx.numpy.structure.joining import concatenate
from fnx.numpy.structure.ranges import linspace
from fnx.numpy.structure.selection import take_static
from fnx.numpy.structure.shapes import squeeze
from fnx.numpy.structure.tiling import flip
from fnx.ops.base.broadcast import broadcast_to as _broadcast_to
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.structure.slice import Pad


def pad(array, pad_width, mode="constant", **kwargs):
    """Elements put around, by mode: constant, edge, reflect, symmetric, wrap, empty, linear_ramp,
    maximum, mean, median, minimum, or a function.

    ValueError for negative widths, and for arguments that a mode does not take; ShapeError for
    widths that do not fit; NotImplementedError for other modes.

    >>> jnp.pad(jnp.arange(2), 1)
    Array([0, 0, 1, 0], dtype=int64)
    """
    x = to_array(array, "pad")
    if isinstance(pad_width, dict):
        pad_width = [pad_width.get(k, pad_width.get(k - x.ndim, 0)) for k in range(x.ndim)]
        pad_width = [w if np.ndim(w) else (w, w) for w in pad_width]
    try:
        given = np.asarray(pad_width)
        if given.size and given.dtype.kind not in "biu":
            raise TypeMismatch(
                f"pad_width {pad_width!r:.60} of dtype {given.dtype}; expected integers"
            )
        width = np.broadcast_to(given.astype(int), (x.ndim, 2)).tolist()
    except FnxError:
        raise
    except ValueError:
        raise ShapeError(
            f"pad_width {pad_width} of an array of shape {x.shape}; expected a number, a pair, or a "
            "pair an axis"
        ) from None
    if any(w < 0 for pair in width for w in pair):
        raise InvalidValue(f"pad_width {pad_width} has a negative entry; slice to crop")
    if callable(mode):
        return _pad_by_function(x, width, mode, kwargs)
    if mode not in _PADDING:
        raise Unsupported(f"pad with mode={mode!r}; expected one of {', '.join(_PADDING)}")
    known = _PADDING[mode]
    if set(kwargs) - set(known):
        raise InvalidValue(
            f"pad with mode={mode!r} takes {known or 'no arguments'}, not {list(kwargs)}"
        )
    if mode == "constant":
        return _pad_constant(x, width, kwargs.get("constant_values", 0))
    if mode == "empty":
        return _pad_constant(x, width, 0)
    if not any(map(any, width)):
        return x
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
    if (
        not isinstance(values, Array)
        and np.ndim(values) == 0
        or getattr(values, "shape", None) == ()
    ):
        value = convert(to_array(values, "pad"), x.dtype)
        value = ConvertElementType(x.dtype, True)(value) if x.weak_type else value
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
    if mode == "edge" or max(lo, hi) <= n - (mode == "reflect"):
        return _pad_pieces(x, axis, lo, hi, mode)
    places = np.arange(-lo, n + hi)
    if mode == "wrap":
        source = places % n
    else:
        period = max(2 * (n - 1), 1) if mode == "reflect" else 2 * n
        turned = places % period
        last = period if mode == "reflect" else period - 1
        source = np.minimum(turned, last - turned)
    return take_static(x, source, axis)


def _pad_pieces(x: Array, axis: int, lo: int, hi: int, mode: str) -> Array:
    """An axis between pieces of itself, none of which is needed twice."""
    n = x.shape[axis]
    lead = (slice(None),) * axis

    def piece(start: int, stop: int) -> Array:
        return x[(*lead, slice(start, stop))]

    if mode == "edge":
        ends = [
            _broadcast_to(end, (*x.shape[:axis], w, *x.shape[axis + 1 :]))
            for end, w in ((piece(0, 1), lo), (piece(n - 1, n), hi))
        ]
    elif mode == "wrap":
        ends = [piece(n - lo, n), piece(0, hi)]
    else:
        skip = int(mode == "reflect")
        ends = [piece(skip, skip + lo), piece(n - skip - hi, n - skip)]
        ends = [flip(end, axis) for end in ends]
    return concatenate([e for e in (ends[0], x, ends[1]) if e.shape[axis]], axis)


def _pad_odd(x: Array, axis: int, lo: int, hi: int, mode: str) -> Array:
    """Reflections at the ends that continue the slope: 2 * end - reflected, as often as needed."""
    lead = (slice(None),) * axis
    skip = int(mode == "reflect")
    for count, before in ((lo, True), (hi, False)):
        while count > 0:
            n = x.shape[axis]
            if n <= skip:  # a single element has nothing but itself to be mirrored
                return _pad_places(x, axis, lo, hi, "edge", "even")
            take_now = min(count, n - skip)
            end = x[(*lead, slice(0, 1) if before else slice(n - 1, n))]
            inner = slice(skip, skip + take_now) if before else slice(n - skip - take_now, n - skip)
            turned = ufuncs.subtract(ufuncs.multiply(end, 2), flip(x[(*lead, inner)], axis))
            x = concatenate([turned, x] if before else [x, turned], axis)
            count -= take_now
    return x


def _pad_statistic(x: Array, width: list, mode: str, options: dict) -> Array:
    whole = {"maximum": reduce.max, "minimum": reduce.min, "mean": averages.mean, "median": median}
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
            fn = whole[mode]
            a, b = (n, n) if spans is None else (min(spans[k, 0], n), min(spans[k, 1], n))
            stats = [x[(*lead, slice(0, a))], x[(*lead, slice(n - b, n))]]
            stats = [fn(s, axis=k, keepdims=True) for s in stats]
            if not dtypes.is_inexact(x.dtype):
                stats = [s if s.dtype == dtypes.bool_ else ufuncs.round(s) for s in stats]
            shape = [(*x.shape[:k], w, *x.shape[k + 1 :]) for w in (lo, hi)]
            sides = [_broadcast_to(convert(s, x.dtype), z) for s, z in zip(stats, shape)]
        if x.weak_type:
            sides = [ConvertElementType(x.dtype, True)(s) for s in sides]
        x = concatenate([sides[0], x, sides[1]], k)
    return x


def _ramp(edge: Array, end: Any, count: int, axis: int, after: bool) -> Array:
    along = squeeze(edge, axis)
    other = full(along.shape, end, along.dtype)
    out = linspace(other, along, count, endpoint=False, axis=axis, dtype=edge.dtype)
    return flip(out, axis) if after else out


def _pad_by_function(x: Array, width: list, fn: Any, options: dict) -> Array:
    x = _pad_constant(x, width, 0)
    for k in range(x.ndim):
        x = apply_along_axis(lambda v, k=k: fn(v, tuple(width[k]), k, options), k, x)
    return x


__all__ = ["pad"]
