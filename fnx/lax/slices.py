"""Slices of fnx.lax: static ones, and dynamic ones, whose starts are values."""

from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.core.source import brief
from fnx.lax.elementwise import checked
from fnx.lax.shapes import Shape, expand_dims, ints, squeeze
from fnx.numpy.arrays.util import PYTHON, canonical_axis, constant, integer, to_array
from fnx.ops.elementwise.arithmetic import add
from fnx.ops.elementwise.select import lt, select
from fnx.ops.structure.basic import convert
from fnx.ops.structure.dynamic_slice import DynamicSlice
from fnx.ops.structure.dynamic_slice import dynamic_update_slice as _dynamic_update_slice
from fnx.ops.structure.slice import Slice

# --- static slices -----------------------------------------------------------------------------


def slice(
    operand: Any, start_indices: Shape, limit_indices: Shape, strides: Shape | None = None
) -> Array:
    """The elements from start to limit, with strides, of each axis.

    >>> lax.slice(jnp.arange(10), (1,), (8,), (3,))
    Array([1, 4, 7], dtype=int64)
    """
    x = to_array(operand, "slice")
    step = None if strides is None else ints(strides)
    return checked(Slice(ints(start_indices), ints(limit_indices), step), x)


def slice_in_dim(
    operand: Any, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0
) -> Array:
    """A slice along one axis, with Python's meaning of None and negative bounds.

    >>> lax.slice_in_dim(jnp.arange(6).reshape(2, 3), 1, None, axis=1)
    Array([[1, 2],
           [4, 5]], dtype=int64)
    """
    x = to_array(operand, "slice_in_dim")
    k = canonical_axis(axis, x.ndim)
    n = x.shape[k]

    def bound(i: int | None, default: int) -> int:
        if i is None:
            return default
        i = integer(i, "a bound of slice_in_dim")
        return i + n if i < 0 else i

    lo, hi = [0] * x.ndim, list(x.shape)
    lo[k], hi[k] = bound(start_index, 0), bound(limit_index, n)
    steps = [1] * x.ndim
    steps[k] = integer(stride, "stride")
    return slice(x, lo, hi, steps)


class IndexOutOfRange(InvalidValue, IndexError):
    """A static position that an axis does not have."""


def index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Array:
    """One static position of an axis.

    >>> lax.index_in_dim(jnp.arange(6).reshape(2, 3), -1, axis=1)
    Array([[2],
           [5]], dtype=int64)
    """
    x = to_array(operand, "index_in_dim")
    k = canonical_axis(axis, x.ndim)
    i, n = integer(index, "index"), x.shape[k]
    if not -n <= i < n:
        raise IndexOutOfRange(
            f"index_in_dim with index {i} of axis {k} of an operand of shape {x.shape}; expected -{n} <= "
            f"index < {n}"
        )
    i = i + n if i < 0 else i
    out = slice_in_dim(x, i, i + 1, axis=k)
    return out if keepdims else squeeze(out, (k,))


# --- dynamic slices ----------------------------------------------------------------------------


def _starts(x: Array, indices: Any, negative: Any) -> list[Array]:
    if isinstance(indices, (Array, np.ndarray)) and indices.ndim == 1:
        indices = [indices[k] for k in range(indices.shape[0])]
    indices = list(indices)
    if len(indices) != x.ndim:
        raise ShapeError(
            f"a dynamic slice of an operand of shape {x.shape} needs {x.ndim} start indices, got "
            f"{len(indices)}"
        )
    allowed = [negative] * x.ndim if isinstance(negative, bool) else list(negative)
    for i in indices:
        if isinstance(i, float) or (hasattr(i, "dtype") and not dtypes.is_integer(i.dtype)):
            raise TypeMismatch(f"a dynamic slice that starts at {brief(i)}; expected integers")
    dtype = _common_dtype(x, indices)
    return [_start(i, n, ok, dtype) for i, n, ok in zip(indices, x.shape, allowed)]


def _common_dtype(x: Array, indices: Any) -> np.dtype:
    """The one dtype of indices that are arrays, if it holds the others and the sizes; else int64."""
    found = {dtypes.canonical(i.dtype) for i in indices if hasattr(i, "dtype")}
    wide = np.dtype(np.int64)
    if len(found) != 1:
        return wide
    (dtype,) = found
    limits, known = dtypes.iinfo(dtype), [i for i in indices if isinstance(i, (int, np.integer))]
    fits = all([limits.min <= i <= limits.max for i in (*known, *x.shape)])
    return dtype if fits else wide


def _start(i: Any, n: int, negative: bool, dtype: np.dtype) -> Array:
    """A start index; negative ones count from the end."""
    if isinstance(i, (int, np.integer)):
        return constant(int(i) + n if i < 0 and negative else int(i), dtype, False)
    i = to_array(i, "dynamic_slice")
    i = convert(i, dtype)
    if not negative or dtypes.kind(dtype) == "u":
        return i
    return select(lt(i, constant(0, dtype, False)), add(i, constant(n, dtype, False)), i)


def dynamic_slice(
    operand: Any, start_indices: Any, slice_sizes: Shape, *, allow_negative_indices: Any = True
) -> Array:
    """The slice of static sizes that begins at the start indices, moved inside the operand.

    >>> lax.dynamic_slice(jnp.arange(6), (jnp.array(5),), (3,))
    Array([3, 4, 5], dtype=int64)
    """
    x = to_array(operand, "dynamic_slice")
    starts = _starts(x, start_indices, allow_negative_indices)
    return checked(DynamicSlice(ints(slice_sizes)), x, *starts)


def dynamic_update_slice(
    operand: Any, update: Any, start_indices: Any, *, allow_negative_indices: Any = True
) -> Array:
    """The operand with the slice that begins at the start indices replaced.

    >>> lax.dynamic_update_slice(jnp.zeros(4), jnp.ones(2), (1,))
    Array([0., 1., 1., 0.], dtype=float64)
    """
    x = to_array(operand, "dynamic_update_slice")
    u = (
        constant(update, x.dtype)
        if type(update) in PYTHON
        else to_array(update, "dynamic_update_slice", 1)
    )
    if not isinstance(start_indices, (list, tuple, Array, np.ndarray)):
        start_indices = [start_indices]
    return checked(_dynamic_update_slice, x, u, *_starts(x, start_indices, allow_negative_indices))


def _at(x: Array, index: Any, axis: int) -> list:
    starts: list = [0] * x.ndim
    starts[canonical_axis(axis, x.ndim)] = index
    return starts


def dynamic_slice_in_dim(
    operand: Any,
    start_index: Any,
    slice_size: int,
    axis: int = 0,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """The slice of static size along one axis that begins at an index, moved inside the operand.

    Negative indices count from the end. ShapeError, a ValueError, for a size larger than the axis.

    >>> lax.dynamic_slice_in_dim(jnp.arange(6), 2, 3)
    Array([2, 3, 4], dtype=int64)
    """
    x = to_array(operand, "dynamic_slice_in_dim")
    sizes = list(x.shape)
    sizes[canonical_axis(axis, x.ndim)] = integer(slice_size, "slice_size")
    at = _at(x, start_index, axis)
    return dynamic_slice(x, at, sizes, allow_negative_indices=allow_negative_indices)


def dynamic_index_in_dim(
    operand: Any,
    index: Any,
    axis: int = 0,
    keepdims: bool = True,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """What lies at one index of an axis, moved inside the operand; the axis stays, unless not `keepdims`.

    Negative indices count from the end.

    >>> lax.dynamic_index_in_dim(jnp.arange(6).reshape(2, 3), 1, axis=0)
    Array([[3, 4, 5]], dtype=int64)
    """
    x = to_array(operand, "dynamic_index_in_dim")
    out = dynamic_slice_in_dim(x, index, 1, axis, allow_negative_indices=allow_negative_indices)
    return out if keepdims else squeeze(out, (canonical_axis(axis, x.ndim),))


def dynamic_update_slice_in_dim(
    operand: Any, update: Any, start_index: Any, axis: int, *, allow_negative_indices: bool = True
) -> Array:
    """A dynamic slice along one axis replaced.

    >>> lax.dynamic_update_slice_in_dim(jnp.zeros((2, 3)), jnp.ones((2, 1)), 1, axis=1)
    Array([[0., 1., 0.],
           [0., 1., 0.]], dtype=float64)
    """
    x = to_array(operand, "dynamic_update_slice_in_dim")
    at = _at(x, start_index, axis)
    return dynamic_update_slice(x, update, at, allow_negative_indices=allow_negative_indices)


def dynamic_update_index_in_dim(
    operand: Any, update: Any, index: Any, axis: int, *, allow_negative_indices: bool = True
) -> Array:
    """One dynamic position of an axis replaced.

    >>> lax.dynamic_update_index_in_dim(jnp.zeros(4), 7.0, 2, axis=0)
    Array([0., 0., 7., 0.], dtype=float64)
    """
    x = to_array(operand, "dynamic_update_index_in_dim")
    k = canonical_axis(axis, x.ndim)
    u = constant(update, x.dtype) if type(update) in PYTHON else to_array(update, "update", 1)
    if u.ndim != x.ndim:
        u = expand_dims(u, (k,))
    return dynamic_update_slice_in_dim(
        x, u, index, k, allow_negative_indices=allow_negative_indices
    )


__all__ = [
    "dynamic_index_in_dim",
    "dynamic_slice",
    "dynamic_slice_in_dim",
    "dynamic_update_index_in_dim",
    "dynamic_update_slice",
    "dynamic_update_slice_in_dim",
    "index_in_dim",
    "slice",
    "slice_in_dim",
]
