"""Shape functions of fnx.lax: broadcast, reshape, transpose, pad, concatenate, and kin."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, as_array
from fnx.core.errors import InvalidValue
from fnx.lax.elementwise import checked, same_kind
from fnx.numpy.arrays.util import (
    PYTHON,
    canonical_axis,
    canonical_shape,
    constant,
    integer,
    integers,
    to_array,
)
from fnx.ops.base.broadcast import Broadcast, broadcast_to
from fnx.ops.base.permute import Reshape, Rev, Squeeze, Transpose
from fnx.ops.structure.join import Concatenate, Iota, Split
from fnx.ops.structure.slice import Pad

Shape = Sequence[int]


def ints(xs: Any) -> tuple[int, ...]:
    """Sizes or positions as Python's integers."""
    if isinstance(xs, (int, np.integer)):
        xs = (xs,)
    return integers(xs, "sizes or positions")


def broadcast_shapes(*shapes: Shape) -> tuple[int, ...]:
    """The shape to which shapes broadcast.

    >>> lax.broadcast_shapes((2, 1), (1, 3))
    (2, 3)
    """
    from fnx.numpy.arrays.util import canonical_shape, common_shape

    return common_shape("broadcast_shapes", [canonical_shape(s) for s in shapes])


def broadcast_in_dim(
    operand: Any, shape: Shape, broadcast_dimensions: Sequence[int], *, out_sharding: Any = None
) -> Array:
    """The operand repeated: its axis k becomes axis `broadcast_dimensions[k]` of `shape`.

    >>> lax.broadcast_in_dim(jnp.array([1, 2]), (2, 3), (0,))
    Array([[1, 1, 1],
           [2, 2, 2]], dtype=int64)
    """
    del out_sharding
    x, dims = to_array(operand, "broadcast_in_dim"), ints(broadcast_dimensions)
    if len(dims) == x.ndim and list(dims) != sorted(dims):
        order = sorted(range(x.ndim), key=dims.__getitem__)
        x, dims = Transpose(tuple(order))(x), tuple(sorted(dims))
    return checked(Broadcast(ints(shape), dims), x)


def broadcast(operand: Any, sizes: Sequence[int], *, out_sharding: Any = None) -> Array:
    """The operand with new leading axes.

    >>> lax.broadcast(jnp.array([1, 2]), (3,)).shape
    (3, 2)
    """
    x = to_array(operand, "broadcast")
    sizes = ints(sizes)
    return Broadcast((*sizes, *x.shape), tuple(range(len(sizes), len(sizes) + x.ndim)))(x)


def broadcast_like(arr: Any, like_arr: Any) -> Array:
    """The array, broadcast to the shape of another one.

    >>> lax.broadcast_like(jnp.array([1, 2]), jnp.zeros((3, 2))).shape
    (3, 2)
    """
    return broadcast_to(to_array(arr, "broadcast_like"), to_array(like_arr, "broadcast_like").shape)


def broadcast_to_rank(x: Any, rank: int) -> Array:
    """The array with leading axes of size 1, up to `rank`.

    ValueError for a lower rank.

    >>> lax.broadcast_to_rank(jnp.array([1, 2]), 3).shape
    (1, 1, 2)
    """
    x = to_array(x, "broadcast_to_rank")
    if rank < x.ndim:
        raise InvalidValue(f"broadcast_to_rank: an array of rank {x.ndim} to the lower rank {rank}")
    return expand_dims(x, tuple(range(rank - x.ndim)))


def broadcasted_iota(
    dtype: Any, shape: Shape, dimension: int, *, out_sharding: Any = None
) -> Array:
    """0, 1, 2, ... along an axis of `shape`.

    >>> lax.broadcasted_iota(int, (2, 3), 1)
    Array([[0, 1, 2],
           [0, 1, 2]], dtype=int64)
    """
    shape = ints(shape)
    return Iota(canonical_axis(dimension, len(shape)), dtypes.canonical(dtype), shape)()


def iota(dtype: Any, size: int) -> Array:
    """0, 1, ..., size - 1.

    >>> lax.iota(jnp.float32, 3)
    Array([0., 1., 2.], dtype=float32)
    """
    return Iota(0, dtypes.canonical(dtype), (integer(size, "size"),))()


def reshape(
    operand: Any,
    new_sizes: Shape,
    dimensions: Sequence[int] | None = None,
    *,
    out_sharding: Any = None,
) -> Array:
    """The elements in row-major order (of `dimensions`, if given) in another shape.

    >>> lax.reshape(jnp.arange(4), (2, 2))
    Array([[0, 1],
           [2, 3]], dtype=int64)
    """
    x = to_array(operand, "reshape")
    if dimensions is not None:
        x = transpose(x, dimensions)
    sizes = canonical_shape(new_sizes, "new_sizes")
    return x if x.shape == sizes else Reshape(sizes)(x)


def collapse(operand: Any, start_dimension: int, stop_dimension: int | None = None) -> Array:
    """Consecutive axes made one.

    >>> lax.collapse(jnp.ones((2, 3, 4)), 1).shape
    (2, 12)
    """
    x = to_array(operand, "collapse")
    lo = start_dimension + x.ndim if start_dimension < 0 else start_dimension
    hi = x.ndim if stop_dimension is None else stop_dimension
    hi = hi + x.ndim if hi < 0 else hi
    size = math.prod(x.shape[lo:hi])
    return reshape(x, (*x.shape[:lo], size, *x.shape[hi:]))


def squeeze(array: Any, dimensions: Sequence[int] | None = None) -> Array:
    """Without axes of size 1 (all of them, if `dimensions` is None).

    >>> lax.squeeze(jnp.ones((1, 3, 1)), (2,)).shape
    (1, 3)
    """
    x = to_array(array, "squeeze")
    if dimensions is None:
        axes = tuple(k for k, n in enumerate(x.shape) if n == 1)
    else:
        axes = tuple(sorted(_distinct(dimensions, x.ndim)))
    return Squeeze(axes)(x) if axes else x


def _distinct(dimensions: Sequence[int], rank: int) -> list[int]:
    axes = [canonical_axis(k, rank) for k in dimensions]
    if len(set(axes)) < len(axes):
        raise InvalidValue(
            f"dimensions {tuple(dimensions)} name an axis twice; expected distinct axes"
        )
    return axes


def expand_dims(array: Any, dimensions: Sequence[int]) -> Array:
    """With axes of size 1 at these places of the result.

    >>> lax.expand_dims(jnp.ones(3), (0, 2)).shape
    (1, 3, 1)
    """
    x = to_array(array, "expand_dims")
    rank = x.ndim + len(tuple(dimensions))
    axes = set(_distinct(dimensions, rank))
    shape, rest = [], iter(x.shape)
    for k in range(rank):
        shape.append(1 if k in axes else next(rest))
    kept = tuple(k for k in range(rank) if k not in axes)
    return Broadcast(tuple(shape), kept)(x) if axes else x


def transpose(operand: Any, permutation: Sequence[int]) -> Array:
    """The axes in another order.

    >>> lax.transpose(jnp.array([[1, 2], [3, 4]]), (1, 0))
    Array([[1, 3],
           [2, 4]], dtype=int64)
    """
    x = to_array(operand, "transpose")
    perm = ints(permutation)
    return x if perm == tuple(range(x.ndim)) and x.ndim == len(perm) else Transpose(perm)(x)


def rev(operand: Any, dimensions: Sequence[int]) -> Array:
    """Reversed along axes.

    >>> lax.rev(jnp.arange(3), (0,))
    Array([2, 1, 0], dtype=int64)
    """
    x = to_array(operand, "rev")
    return Rev(tuple(canonical_axis(k, x.ndim) for k in dimensions))(x)


def concatenate(operands: Any, dimension: int) -> Array:
    """Arrays joined along an axis; dtypes must be equal.

    ValueError without arrays; ShapeError and TypeError for those that differ otherwise.

    >>> lax.concatenate([jnp.array([1, 2]), jnp.array([3])], 0)
    Array([1, 2, 3], dtype=int64)
    """
    xs = [to_array(x, "concatenate", k) for k, x in enumerate(operands)]
    if not xs:
        raise InvalidValue("concatenate needs at least one array")
    return checked(Concatenate(canonical_axis(dimension, xs[0].ndim)), *xs)


def stack(operands: Any, axis: int = 0) -> Array:
    """Arrays joined along a new axis.

    >>> lax.stack([jnp.array([1, 2]), jnp.array([3, 4])])
    Array([[1, 2],
           [3, 4]], dtype=int64)
    """
    return concatenate([expand_dims(x, (axis,)) for x in operands], axis)


def unstack(x: Any, axis: int = 0) -> tuple[Array, ...]:
    """The arrays that lie along an axis.

    >>> lax.unstack(jnp.array([[1, 2], [3, 4]]))
    (Array([1, 2], dtype=int64), Array([3, 4], dtype=int64))
    """
    x = to_array(x, "unstack")
    k = canonical_axis(axis, x.ndim)
    return tuple([squeeze(part, (k,)) for part in split(x, (1,) * x.shape[k], k)])


def split(operand: Any, sizes: Sequence[int], axis: int = 0) -> list[Array]:
    """Consecutive parts along an axis.

    >>> lax.split(jnp.arange(5), (2, 3))
    [Array([0, 1], dtype=int64), Array([2, 3, 4], dtype=int64)]
    """
    x = to_array(operand, "split")
    return list(checked(Split(canonical_axis(axis, x.ndim), ints(sizes)), x))


def tile(operand: Any, reps: Sequence[int]) -> Array:
    """Repeated along each axis.

    >>> lax.tile(jnp.array([1, 2]), (2,))
    Array([1, 2, 1, 2], dtype=int64)
    """
    from fnx.numpy.structure import tiling

    return tiling.tile(operand, tuple(reps))


def pad(operand: Any, padding_value: Any, padding_config: Sequence[tuple[int, int, int]]) -> Array:
    """In a field of `padding_value`: (low, high, interior) for each axis; negative ones crop.

    >>> lax.pad(jnp.array([1, 2, 3]), 0, [(2, 0, 1)])
    Array([0, 0, 1, 0, 2, 0, 3], dtype=int64)
    """
    x = to_array(operand, "pad")
    value = as_array(padding_value)
    if type(padding_value) in PYTHON:
        same_kind("pad", padding_value, x.dtype)
    if value.aval.weak_type and dtypes.kind(value.dtype) == dtypes.kind(x.dtype):
        value = constant(padding_value, x.dtype) if type(padding_value) in PYTHON else value
    config = tuple(integers(p, "padding_config") for p in padding_config)
    return checked(Pad(config), x, value)  # type: ignore[arg-type]


__all__ = [
    "broadcast",
    "broadcast_in_dim",
    "broadcast_like",
    "broadcast_shapes",
    "broadcast_to_rank",
    "broadcasted_iota",
    "collapse",
    "concatenate",
    "expand_dims",
    "iota",
    "pad",
    "reshape",
    "rev",
    "split",
    "squeeze",
    "stack",
    "tile",
    "transpose",
    "unstack",
]
