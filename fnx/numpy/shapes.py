"""Functions that move elements: reshape, transpose, join, split, repeat, pad, roll, take, select."""

import math
import operator
from itertools import pairwise
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.numpy.util import broadcast_arrays as _broadcast_arrays
from fnx.numpy.util import (
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
from fnx.ops.broadcast import broadcast_to as _broadcast_to
from fnx.ops.broadcast import insert_axes
from fnx.ops.join import Concatenate, Split
from fnx.ops.permute import Reshape, Squeeze, Transpose

# --- what shape ---------------------------------------------------------------------------------


def shape(a):
    """The sizes of the axes.

    >>> jnp.shape([[1, 2]])
    (1, 2)
    """
    if a is None or isinstance(a, (list, tuple)):
        return np.shape(a)
    return tuple(a.shape) if hasattr(a, "shape") else to_array(a, "shape").shape


def ndim(a):
    """The number of axes.

    >>> jnp.ndim([[1, 2]])
    2
    """
    return len(shape(a))


def size(a, axis=None):
    """The number of elements, or along axes.

    >>> jnp.size(jnp.ones((2, 3))), jnp.size(jnp.ones((2, 3)), axis=1)
    (6, 3)
    """
    sizes = shape(a)
    return math.prod([sizes[k] for k in canonical_axes(axis, len(sizes))])


def broadcast_shapes(*shapes):
    """The shape to which shapes broadcast.

    >>> jnp.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    return common_shape("broadcast_shapes", [canonical_shape(s) for s in shapes])


# --- reshape, transpose ------------------------------------------------------------------------


def reshape(a, shape, order="C", *, copy=None, out_sharding=None):
    """The elements in another shape, one entry of which may be -1.

    >>> jnp.reshape(jnp.arange(4), (2, -1)).shape
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
    """The elements in one axis.

    >>> jnp.ravel(jnp.array([[1, 2], [3, 4]]))
    Array([1, 2, 3, 4], dtype=int64)
    """
    return reshape(a, (-1,) if size(a) else (0,), order)


def transpose(a, axes=None):
    """Axes in another order, by default reversed.

    >>> jnp.transpose(jnp.zeros((2, 3))).shape
    (3, 2)
    """
    x = to_array(a, "transpose")
    n = x.ndim
    order = tuple(range(n))[::-1] if axes is None else tuple([canonical_axis(k, n) for k in axes])
    if sorted(order) != list(range(n)):
        raise InvalidValue(f"transpose: {axes} is no permutation of the axes of shape {x.shape}")
    return x if order == tuple(range(n)) else Transpose(order)(x)


permute_dims = transpose


def matrix_transpose(x, /):
    """Matrices with rows and columns exchanged.

    >>> jnp.matrix_transpose(jnp.ones((5, 2, 3))).shape
    (5, 3, 2)
    """
    return swapaxes(x, -1, -2)


def moveaxis(a, source, destination):
    """Axes moved to other places, the rest in their order.

    >>> jnp.moveaxis(jnp.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
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
    """Two axes exchanged.

    >>> jnp.swapaxes(jnp.zeros((2, 3)), 0, 1).shape
    (3, 2)
    """
    x = to_array(a, "swapaxes")
    order = list(range(x.ndim))
    i, j = canonical_axis(axis1, x.ndim), canonical_axis(axis2, x.ndim)
    order[i], order[j] = order[j], order[i]
    return transpose(x, order)


def rollaxis(a, axis, start=0):
    """An axis moved before another.

    >>> jnp.rollaxis(jnp.ones((2, 3, 4)), 2).shape
    (4, 2, 3)
    """
    x = to_array(a, "rollaxis")
    k = canonical_axis(axis, x.ndim)
    start = start + x.ndim if start < 0 else start
    return moveaxis(x, k, start - 1 if k < start else start)


def squeeze(a, axis=None):
    """Without axes of size 1.

    >>> jnp.squeeze(jnp.zeros((1, 3))).shape
    (3,)
    """
    x = to_array(a, "squeeze")
    if axis is None:
        axes = tuple([k for k, n in enumerate(x.shape) if n == 1])
    else:
        axes = canonical_axes(axis, x.ndim)
        if any(x.shape[k] != 1 for k in axes):
            raise ShapeError(f"squeeze of axes {axes} of shape {x.shape}; expected axes of size 1")
    return Squeeze(axes)(x) if axes else x


def expand_dims(a, axis):
    """New axes of size 1 at positions of the result.

    >>> jnp.expand_dims(jnp.arange(2), 0)
    Array([[0, 1]], dtype=int64)
    """
    x = to_array(a, "expand_dims")
    if axis is None:
        raise TypeMismatch("expand_dims with axis=None; expected an integer or integers")
    count = len(axis) if isinstance(axis, (tuple, list, range)) else 1
    axes = canonical_axes(axis, x.ndim + count)
    return insert_axes(x, tuple(sorted(axes)))


def atleast_1d(*arys):
    """Arrays with at least one axis.

    >>> jnp.atleast_1d(5)
    Array([5], dtype=int64, weak_type=True)
    """
    outs = [reshape_to(x, x.shape or (1,)) for x in to_arrays("atleast_1d", *arys)]
    return outs[0] if len(outs) == 1 else outs


def atleast_2d(*arys):
    """Arrays with at least two axes, new ones first.

    >>> jnp.atleast_2d(jnp.array([1, 2]))
    Array([[1, 2]], dtype=int64)
    """
    outs = [reshape_to(x, (*(1,) * (2 - x.ndim), *x.shape)) for x in to_arrays("atleast_2d", *arys)]
    return outs[0] if len(outs) == 1 else outs


def atleast_3d(*arys):
    """Arrays with at least three axes.

    >>> jnp.atleast_3d(jnp.array([1, 2])).shape
    (1, 2, 1)
    """
    outs = []
    for x in to_arrays("atleast_3d", *arys):
        s = {0: (1, 1, 1), 1: (1, *x.shape, 1), 2: (*x.shape, 1)}.get(x.ndim, x.shape)
        outs.append(reshape_to(x, s))
    return outs[0] if len(outs) == 1 else outs


def broadcast_to(array, shape, *, out_sharding=None):
    """Repeated along new axes and axes of size 1, to a shape.

    >>> jnp.broadcast_to(jnp.arange(2), (2, 2))
    Array([[0, 1],
           [0, 1]], dtype=int64)
    """
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
    """Arrays in their common shape.

    >>> [x.shape for x in jnp.broadcast_arrays(jnp.ones((2, 1)), jnp.ones(3))]
    [(2, 3), (2, 3)]
    """
    return _broadcast_arrays("broadcast_arrays", to_arrays("broadcast_arrays", *args))


# --- join and split ----------------------------------------------------------------------------


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

    >>> jnp.concatenate([jnp.array([1, 2]), jnp.array([3])])
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
    """As `concatenate`.

    >>> jnp.concat([jnp.array([1, 2]), jnp.array([3])])
    Array([1, 2, 3], dtype=int64)
    """
    return concatenate(arrays, axis)


def stack(arrays, axis=0, out=None, dtype=None):
    """Arrays of one shape joined along a new axis.

    >>> jnp.stack([jnp.zeros(2), jnp.ones(2)])
    Array([[0., 0.],
           [1., 1.]], dtype=float64)
    """
    no_out("stack", out)
    xs = _joined("stack", _sequence("stack", arrays), dtype)
    if any(x.shape != xs[0].shape for x in xs):
        raise ShapeError(
            f"stack of arrays of shapes {[x.shape for x in xs]}; expected equal shapes"
        )
    k = canonical_axis(axis, xs[0].ndim + 1)
    shape = (*xs[0].shape[:k], 1, *xs[0].shape[k:])
    if len(xs) == 1:
        return Reshape(shape)(xs[0])
    return Concatenate(k)(*[Reshape(shape)(x) for x in xs])


def unstack(x, /, *, axis=0):
    """The slices along an axis.

    >>> jnp.unstack(jnp.array([[1, 2], [3, 4]]), axis=1)
    (Array([1, 3], dtype=int64), Array([2, 4], dtype=int64))
    """
    x = moveaxis(to_array(x, "unstack"), axis, 0)
    return tuple([x[k] for k in range(x.shape[0])])


def vstack(tup, dtype=None):
    """Rows, or arrays joined along axis 0.

    >>> jnp.vstack([jnp.zeros(2), jnp.ones(2)])
    Array([[0., 0.],
           [1., 1.]], dtype=float64)
    """
    xs = atleast_2d(*_sequence("vstack", tup))
    return concatenate(xs if isinstance(xs, list) else [xs], 0, dtype)


def hstack(tup, dtype=None):
    """Arrays joined along axis 1, vectors along axis 0.

    >>> jnp.hstack([jnp.zeros(1), jnp.ones(2)])
    Array([0., 1., 1.], dtype=float64)
    """
    xs = atleast_1d(*_sequence("hstack", tup))
    xs = xs if isinstance(xs, list) else [xs]
    return concatenate(xs, 0 if xs[0].ndim == 1 else 1, dtype)


def dstack(tup, dtype=None):
    """Arrays joined along axis 2.

    >>> jnp.dstack([jnp.array([1, 2]), jnp.array([3, 4])])
    Array([[[1, 3],
            [2, 4]]], dtype=int64)
    """
    xs = atleast_3d(*_sequence("dstack", tup))
    return concatenate(xs if isinstance(xs, list) else [xs], 2, dtype)


def column_stack(tup):
    """Vectors as columns.

    >>> jnp.column_stack([jnp.array([1, 2]), jnp.array([3, 4])])
    Array([[1, 3],
           [2, 4]], dtype=int64)
    """
    xs = [reshape_to(x, (x.size, 1)) if x.ndim < 2 else x for x in _sequence("column_stack", tup)]
    return concatenate(xs, 1)


def block(arrays):
    """Nested lists of blocks joined, the innermost along the last axis.

    >>> jnp.block([[jnp.eye(2), jnp.zeros((2, 1))], [jnp.ones((1, 3))]])
    Array([[1., 0., 0.],
           [0., 1., 0.],
           [1., 1., 1.]], dtype=float64)
    """

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
    """Arrays joined, flat by default.

    >>> jnp.append(jnp.array([[1, 2]]), jnp.array([[3, 4]]), axis=0)
    Array([[1, 2],
           [3, 4]], dtype=int64)
    """
    return concatenate([to_array(arr, "append"), to_array(values, "append")], axis)


def split(ary, indices_or_sections, axis=0):
    """Equal parts, or parts that end at indices.

    >>> jnp.split(jnp.arange(4), 2)
    [Array([0, 1], dtype=int64), Array([2, 3], dtype=int64)]
    """
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
    """Parts that are nearly equal, or that end at indices.

    >>> jnp.array_split(jnp.arange(5), 2)
    [Array([0, 1, 2], dtype=int64), Array([3, 4], dtype=int64)]
    """
    x = to_array(ary, "array_split")
    k = canonical_axis(axis, x.ndim)
    n = x.shape[k]
    if np.ndim(indices_or_sections) == 0:
        parts = operator.index(indices_or_sections)
        if parts < 1:
            raise InvalidValue(f"array_split into {parts} parts; expected at least 1")
        sizes = tuple([n // parts + (i < n % parts) for i in range(parts)])
        return list(Split(k, sizes)(x))
    ends = [slice(operator.index(i)).indices(n)[1] for i in indices_or_sections]
    bounds = [0, *ends, n]
    if all(a <= b for a, b in pairwise(bounds)):
        return list(Split(k, tuple([b - a for a, b in pairwise(bounds)]))(x))
    lead = (slice(None),) * k
    return [x[(*lead, slice(a, b))] for a, b in pairwise(bounds)]


def hsplit(ary, indices_or_sections):
    """`split` along axis 1 (0 of vectors).

    >>> jnp.hsplit(jnp.arange(4), 2)
    [Array([0, 1], dtype=int64), Array([2, 3], dtype=int64)]
    """
    return split(ary, indices_or_sections, 0 if ndim(ary) == 1 else 1)


def vsplit(ary, indices_or_sections):
    """`split` along axis 0.

    >>> jnp.vsplit(jnp.array([[1, 2], [3, 4]]), 2)
    [Array([[1, 2]], dtype=int64), Array([[3, 4]], dtype=int64)]
    """
    return split(ary, indices_or_sections, 0)


def dsplit(ary, indices_or_sections):
    """`split` along axis 2.

    >>> [part.shape for part in jnp.dsplit(jnp.ones((2, 3, 4)), 2)]
    [(2, 3, 2), (2, 3, 2)]
    """
    return split(ary, indices_or_sections, 2)


__all__ = [
    "append",
    "array_split",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "block",
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "column_stack",
    "concat",
    "concatenate",
    "dsplit",
    "dstack",
    "expand_dims",
    "hsplit",
    "hstack",
    "matrix_transpose",
    "moveaxis",
    "ndim",
    "permute_dims",
    "ravel",
    "reshape",
    "rollaxis",
    "shape",
    "size",
    "split",
    "squeeze",
    "stack",
    "swapaxes",
    "transpose",
    "unstack",
    "vsplit",
    "vstack",
]
