"""Diagonals of matrices; bits packed into bytes."""

import numpy as np

from fnx.core import dtypes
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.numpy.arrays.creation import array
from fnx.numpy.arrays.traced_cache import replayed
from fnx.numpy.arrays.util import INT, canonical_axis, constant, convert, integer, strong, to_array
from fnx.numpy.arrays.util import select as _select
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.structure.shapes import moveaxis, ravel, reshape
from fnx.ops.base.broadcast import broadcast_axis, scalar
from fnx.ops.base.broadcast import full as _full
from fnx.ops.base.permute import Reshape
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.structure.join import Iota
from fnx.ops.structure.slice import Pad, Slice


def diag(v, k=0):
    """The matrix with a vector on diagonal k, or the diagonal k of a matrix.

    ValueError for other ranks.

    >>> jnp.diag(jnp.array([1, 2]))
    Array([[1, 0],
           [0, 2]], dtype=int64)
    """
    x, k = to_array(v, "diag"), integer(k, "k of diag")
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise InvalidValue(f"diag of an array of shape {x.shape}; expected a vector or a matrix")
    n = x.shape[0] + abs(k)
    row, column = Iota(0, INT, (n, n))(), Iota(1, INT, (n, n))()
    on = ops.eq(ops.add(row, scalar(k, INT)), column)
    # Along the columns for k >= 0, the rows for k < 0: there the vector has its own places.
    zero = constant(0, x.dtype, x.weak_type)
    wide = Pad(((k, 0, 0) if k >= 0 else (0, -k, 0),))(x, zero)
    return _select(on, broadcast_axis(wide, n, 0), zero)


def diagflat(v, k=0):
    """The matrix with the elements of an array on diagonal k.

    >>> jnp.diagflat(jnp.array([[1, 2]]), 1)
    Array([[0, 1, 0],
           [0, 0, 2],
           [0, 0, 0]], dtype=int64)
    """
    return diag(strong(ravel(v)), k)


def diagonal(a, offset=0, axis1=0, axis2=1):
    """A diagonal of the matrices along two axes, as the last axis.

    >>> jnp.diagonal(jnp.array([[1, 2], [3, 4]]))
    Array([1, 4], dtype=int64)
    """
    x = to_array(a, "diagonal")
    i, j = canonical_axis(axis1, x.ndim), canonical_axis(axis2, x.ndim)
    x = moveaxis(strong(x), (i, j), (-2, -1))
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
    return Slice((*(0,) * lead, start), (*x.shape[:-2], stop), (*(1,) * lead, columns + 1))(flat)


@replayed()
def packbits(a, axis=None, bitorder="big"):
    """Bits packed into bytes.

    >>> jnp.packbits(jnp.array([1, 0, 0, 0, 0, 0, 1, 1]))
    Array([131], dtype=uint8)
    """
    bits = to_array(a, "packbits")
    if dtypes.kind(bits.dtype) not in "biu":
        raise TypeMismatch(f"packbits of dtype {bits.dtype}; expected bools or integers")
    x = ufuncs.truth(bits, "packbits")
    if axis is None:
        x, axis = ravel(x), 0
    x = moveaxis(x, axis, -1)
    extra = -x.shape[-1] % 8
    if extra:
        x = Pad((*((0, 0, 0),) * (x.ndim - 1), (0, extra, 0)))(x, scalar(False, dtypes.bool_))
    bits = convert(reshape(x, (*x.shape[:-1], -1, 8)), np.dtype("u1"))
    weights = 1 << np.arange(8) if bitorder == "little" else 1 << np.arange(8)[::-1]
    from fnx.ops.base.broadcast import Sum

    weighted = ufuncs.multiply(bits, array(weights.astype("u1")))
    return moveaxis(Sum((weighted.ndim - 1,))(weighted), -1, axis)


@replayed()
def unpackbits(a, axis=None, count=None, bitorder="big"):
    """Bytes as bits.

    TypeError for other dtypes than uint8.

    >>> jnp.unpackbits(jnp.array([131], dtype=jnp.uint8))
    Array([1, 0, 0, 0, 0, 0, 1, 1], dtype=uint8)
    """
    x = to_array(a, "unpackbits")
    if x.dtype != np.dtype("u1"):
        raise TypeMismatch(f"unpackbits needs uint8, not {x.dtype}")
    if axis is None:
        x, axis = ravel(x), 0
    x = moveaxis(x, axis, -1)
    shifts = np.arange(8) if bitorder == "little" else np.arange(8)[::-1]
    bits = ufuncs.right_shift(x[..., None], array(shifts.astype("u1"))) & np.uint8(1)
    out = reshape(bits, (*x.shape[:-1], -1))
    if count is not None and count > out.shape[-1]:
        out = Pad((*((0, 0, 0),) * (out.ndim - 1), (0, count - out.shape[-1], 0)))(
            out, scalar(0, out.dtype)
        )
    elif count is not None:
        out = out[..., :count]
    return moveaxis(out, -1, axis)


__all__ = ["diag", "diagflat", "diagonal", "packbits", "unpackbits"]
