"""Elements repeated and moved in cycles: tile, repeat, roll, flip, rot90, resize."""

import math
import operator
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray
from fnx.core.interpreter import Tracer
from fnx.numpy.arrays.traced_cache import replayed
from fnx.numpy.arrays.util import (
    INT,
    canonical_axes,
    canonical_axis,
    canonical_shape,
    convert,
    to_array,
)
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.structure.nonzero import need_known
from fnx.numpy.structure.selection import take
from fnx.numpy.structure.shapes import broadcast_to, ravel, reshape, swapaxes
from fnx.ops.base.broadcast import broadcast_axis, scalar
from fnx.ops.base.broadcast import broadcast_to as _broadcast_to
from fnx.ops.base.broadcast import full as _full
from fnx.ops.base.permute import Reshape, Rev
from fnx.ops.structure.join import Concatenate

# --- repeat, pad, roll --------------------------------------------------------------------------


def tile(A, reps):
    """Copies of the array side by side.

    >>> jnp.tile(jnp.arange(2), 2)
    Array([0, 1, 0, 1], dtype=int64)
    """
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
    """Each element, or slice along an axis, as often as `repeats` says: one number, or one for each.

    Traced `repeats` need `total_repeat_length`, at which the result is cut off or filled up with the last
    element; ConcretizationTypeError, a TypeError, without it. ValueError for negative numbers.

    >>> jnp.repeat(jnp.arange(2), 2)
    Array([0, 0, 1, 1], dtype=int64)
    """
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
        known = need_known(repeats, "repeat", "pass total_repeat_length=, the length of the result")
        counts = np.broadcast_to(known, (n,))
        return take(x, np.repeat(np.arange(n), counts), k, mode="clip")
    return take(x, _repeat_places(repeats, n, total_repeat_length), k, mode="clip")


def _repeat_places(repeats: Any, n: int, total: int) -> Array:
    """The source of each of `total` elements, for counts that need not be known."""
    from fnx.numpy.reductions.cumulative import cumsum

    counts = broadcast_to(to_array(repeats, "repeat"), (n,))
    starts = cumsum(counts) - counts
    marks = _full((total,), 0, INT).at[starts].add(1, mode="drop")
    return cumsum(marks) - 1


@replayed()
def roll(a, shift, axis=None):
    """Elements moved along axes; those that leave come in at the other end.

    >>> jnp.roll(jnp.arange(3), 1)
    Array([2, 0, 1], dtype=int64)
    """
    x = to_array(a, "roll")
    shift = to_array(shift, "roll") if hasattr(shift, "__jax_array__") else shift
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    axes = axis if isinstance(axis, (tuple, list, range)) else (axis,)
    many = isinstance(shift, (tuple, list)) or np.ndim(shift)
    shifts = list(shift) if many else [shift] * len(axes)
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
    from fnx.ops.structure.dynamic_slice import DynamicSlice

    if dtypes.kind(by.dtype) in "biu":  # which may hold neither the size nor negative numbers
        by = convert(by, INT)
    start = ufuncs.remainder(ufuncs.negative(by), n)
    twice = Concatenate(axis)(x, x)
    starts = [start if k == axis else scalar(0, INT) for k in range(x.ndim)]
    return DynamicSlice(x.shape)(twice, *starts)


def flip(m, axis=None):
    """Elements in reverse order along axes, by default all.

    >>> jnp.flip(jnp.array([[1, 2], [3, 4]]), axis=0)
    Array([[3, 4],
           [1, 2]], dtype=int64)
    """
    x = to_array(m, "flip")
    axes = canonical_axes(axis, x.ndim)
    return Rev(axes)(x) if axes else x


def fliplr(m):
    """Columns in reverse order.

    >>> jnp.fliplr(jnp.array([[1, 2], [3, 4]]))
    Array([[2, 1],
           [4, 3]], dtype=int64)
    """
    return flip(m, 1)


def flipud(m):
    """Rows in reverse order.

    >>> jnp.flipud(jnp.array([[1, 2], [3, 4]]))
    Array([[3, 4],
           [1, 2]], dtype=int64)
    """
    return flip(m, 0)


def rot90(m, k=1, axes=(0, 1)):
    """Rotated by 90 degrees, k times, from the first axis toward the second.

    >>> jnp.rot90(jnp.array([[1, 2], [3, 4]]))
    Array([[2, 4],
           [1, 3]], dtype=int64)
    """
    x = to_array(m, "rot90")
    a, b = canonical_axes(tuple(axes), x.ndim)
    turns = k % 4
    if turns == 0:
        return x
    if turns == 2:
        return flip(x, (a, b))
    return swapaxes(flip(x, b), a, b) if turns == 1 else flip(swapaxes(x, a, b), b)


def resize(a, new_shape):
    """Elements repeated, or cut off, to fill a shape.

    >>> jnp.resize(jnp.array([1, 2, 3]), (2, 4))
    Array([[1, 2, 3, 1],
           [2, 3, 1, 2]], dtype=int64)
    """
    x = ravel(a)
    new = canonical_shape(new_shape)
    n = math.prod(new)
    if not x.size:
        return _full(new, 0, x.dtype)
    copies = tile(x, -(-n // x.size)) if n > x.size else x
    return reshape(copies[:n], new)


__all__ = ["flip", "fliplr", "flipud", "repeat", "resize", "roll", "rot90", "tile"]
