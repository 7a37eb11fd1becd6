"""Functions of shapes: reshape, transpose, moved and new axes, broadcasting."""

import math
import operator
from typing import Any

import numpy as np

from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.numpy.arrays.util import broadcast_arrays as _broadcast_arrays
from fnx.numpy.arrays.util import (
    canonical_axes,
    canonical_axis,
    canonical_shape,
    common_shape,
    reshape_to,
    to_array,
    to_arrays,
)
from fnx.ops.base.broadcast import broadcast_to as _broadcast_to
from fnx.ops.base.broadcast import insert_axes
from fnx.ops.base.permute import Reshape, Squeeze, Transpose

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

    ShapeError for another number of elements; ValueError for another `order` than 'C' or 'F'.

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
            f"cannot reshape array of shape {x.shape} (size {x.size}) into shape {tuple(sizes)}; "
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

    ValueError for axes that are no permutation.

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

    ValueError for different numbers of axes.

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
    """The array with two axes exchanged; AxisError, a ValueError, for one that is out of bounds.

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

    ShapeError for axes of other sizes.

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

    TypeError for None.

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

    ShapeError for a shape to which it does not broadcast.

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


__all__ = [
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "expand_dims",
    "matrix_transpose",
    "moveaxis",
    "ndim",
    "permute_dims",
    "ravel",
    "reshape",
    "rollaxis",
    "shape",
    "size",
    "squeeze",
    "swapaxes",
    "transpose",
]
