"""Products of arrays: dot, matmul, tensordot and their kin, all through dot_general."""

from functools import lru_cache
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import ShapeError, TypeMismatch
from fnx.numpy.arrays.util import (
    broadcast_arrays,
    canonical_axes,
    common_shape,
    convert,
    integer,
    no_out,
    of_one_dtype,
    promote,
    reshape_to,
    times_strong,
    to_arrays,
)
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.structure.diagonals import diagonal
from fnx.numpy.structure.shapes import moveaxis
from fnx.ops.base.broadcast import broadcast_to, scalar
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.linalg.contraction import DotGeneral


@lru_cache(maxsize=4096)
def _dot_general(dims: Any, dtype: np.dtype | None) -> DotGeneral:
    return DotGeneral(dims, dtype)


def contract(
    x: Array, y: Array, lc: tuple, rc: tuple, lb: tuple = (), rb: tuple = (), dtype: Any = None
) -> Array:
    """dot_general over contracted and batch axes."""
    wanted = None if dtype is None else dtypes.canonical(dtype)
    if x.dtype == dtypes.bool_ and wanted is None:
        narrow = _dot_general(((lc, rc), (lb, rb)), None)(
            convert(x, dtypes.int32), convert(y, dtypes.int32)
        )
        return ops.ne(narrow, scalar(0, narrow.dtype))
    return _dot_general(((lc, rc), (lb, rb)), None if wanted == x.dtype else wanted)(x, y)


def dot(a, b, *, precision=None, preferred_element_type=None, out_sharding=None):
    """Products of vectors and matrices; of more axes, sums over a's last and b's second-last axis.

    >>> jnp.dot(jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0]))
    Array(11., dtype=float64)
    """
    x, y = of_one_dtype("dot", a, b)
    if not x.ndim or not y.ndim:
        alike = x.ndim == y.ndim and dtypes.is_inexact(x.dtype)
        out = ops.mul(x, y) if alike else ufuncs.multiply(x, y)
        return (
            out
            if preferred_element_type is None
            else convert(out, dtypes.canonical(preferred_element_type))
        )
    rc = 0 if y.ndim == 1 else y.ndim - 2
    _check("dot", x, x.ndim - 1, y, rc)
    return contract(x, y, (x.ndim - 1,), (rc,), dtype=preferred_element_type)


def _check(name: str, x: Array, i: int, y: Array, j: int) -> None:
    if x.shape[i] != y.shape[j]:
        raise ShapeError(
            f"{name} of shapes {x.shape} and {y.shape}: axis {i} of the first, of size {x.shape[i]}, "
            f"meets axis {j} of the second, of size {y.shape[j]}; expected equal sizes. Transpose one?"
        )


def widened(x: Array, y: Array, wanted: np.dtype | None) -> list[Array]:
    """The operands of a product; one of a small dtype is of the other's dtype, or of the `wanted` one."""
    small = [v.dtype in dtypes.SMALL for v in (x, y)]
    if x.dtype == y.dtype or small == [False, False]:
        return [x, y]
    others = [v.dtype for v, s in zip((x, y), small) if not s]
    to = others[0] if others and wanted is None else wanted
    if to is None:
        return [x, y]
    return [convert(v, to) if s else v for v, s in zip((x, y), small)]


def matmul(a, b, *, precision=None, preferred_element_type=None, out_sharding=None):
    """The product of matrices, or of stacks of them.

    ShapeError for arrays of rank 0, and for sizes that differ.

    >>> jnp.matmul(jnp.eye(2), jnp.ones(2))
    Array([1., 1.], dtype=float64)
    """
    if preferred_element_type is not None:
        a, b = widened(*to_arrays("matmul", a, b), dtypes.canonical(preferred_element_type))
    x, y = of_one_dtype("matmul", a, b)
    if not x.ndim or not y.ndim:
        raise ShapeError(
            f"matmul of shapes {x.shape} and {y.shape}; expected at least one axis each: multiply by "
            "numbers with *"
        )
    n, m = x.ndim, y.ndim
    rc = 0 if m == 1 else m - 2
    _check("matmul", x, n - 1, y, rc)
    if n <= 2 and m <= 2:
        return contract(x, y, (n - 1,), (rc,), dtype=preferred_element_type)
    return _batched(x, y, preferred_element_type)


def _batched(x: Array, y: Array, dtype: Any) -> Array:
    lone_x, lone_y = x.ndim == 1, y.ndim == 1
    if y.ndim <= 2 or lone_x and y.ndim == 2:
        return contract(x, y, (x.ndim - 1,), (0 if lone_y else y.ndim - 2,), dtype=dtype)
    if lone_x:
        return contract(x, y, (0,), (y.ndim - 2,), dtype=dtype)
    lead = common_shape("matmul", [x.shape[:-2], y.shape[:-2]])
    if x.ndim == 2 and y.ndim > 2:
        out = contract(x, y, (1,), (y.ndim - 2,), dtype=dtype)
        return moveaxis(out, 0, -2)
    x = broadcast_to(x, (*lead, *x.shape[-2:]))
    y = broadcast_to(y, (*lead, *y.shape[-2:]))
    k = len(lead)
    batch = tuple(range(k))
    return contract(x, y, (k + 1,), (k,), batch, batch, dtype)


def vdot(a, b, *, precision=None, preferred_element_type=None):
    """The inner product of all elements, of which the first are conjugated.

    >>> jnp.vdot(jnp.array([1j, 2.0]), jnp.array([1j, 3.0]))
    Array(7.+0.j, dtype=complex128)
    """
    x, y = of_one_dtype("vdot", a, b)
    x, y = (reshape_to(z, (z.aval.size,)) for z in (ufuncs.conj(x), y))
    return dot(x, y, preferred_element_type=preferred_element_type)


def vecdot(x1, x2, /, *, axis=-1, precision=None, preferred_element_type=None):
    """Inner products along an axis, of which the first is conjugated.

    >>> jnp.vecdot(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([1.0, 10.0]))
    Array([21., 43.], dtype=float64)
    """
    x, y = of_one_dtype("vecdot", x1, x2)
    x, y = moveaxis(x, axis, -1), moveaxis(y, axis, -1)
    _check("vecdot", x, x.ndim - 1, y, y.ndim - 1)
    x, y = broadcast_arrays("vecdot", [ufuncs.conj(x), y])
    n = x.ndim - 1
    batch = tuple(range(n))
    return contract(x, y, (n,), (n,), batch, batch, preferred_element_type)


def matvec(x1, x2, /):
    """Matrices times vectors.

    >>> jnp.matvec(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([1.0, 10.0]))
    Array([21., 43.], dtype=float64)
    """
    x, y = of_one_dtype("matvec", x1, x2)
    return matmul(x, reshape_to(y, (*y.shape, 1)))[..., 0]


def vecmat(x1, x2, /):
    """Conjugated vectors times matrices.

    >>> jnp.vecmat(jnp.array([1.0, 10.0]), jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    Array([31., 42.], dtype=float64)
    """
    x, y = of_one_dtype("vecmat", x1, x2)
    x = ufuncs.conj(x)
    return matmul(reshape_to(x, (*x.shape[:-1], 1, x.shape[-1])), y)[..., 0, :]


def inner(a, b, *, precision=None, preferred_element_type=None):
    """Sums of products over the last axes.

    >>> jnp.inner(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([1.0, 10.0]))
    Array([21., 43.], dtype=float64)
    """
    x, y = of_one_dtype("inner", a, b)
    if not x.ndim or not y.ndim:
        return ufuncs.multiply(x, y)
    _check("inner", x, x.ndim - 1, y, y.ndim - 1)
    return contract(x, y, (x.ndim - 1,), (y.ndim - 1,), dtype=preferred_element_type)


def outer(a, b, out=None):
    """All products of elements of two arrays.

    >>> jnp.outer(jnp.arange(2), jnp.arange(3))
    Array([[0, 0, 0],
           [0, 1, 2]], dtype=int64)
    """
    no_out("outer", out)
    x, y = promote("outer", a, b)
    x, y = reshape_to(x, (x.aval.size, 1)), reshape_to(y, (1, y.aval.size))
    return ufuncs.multiply(x, y)


def tensordot(a, b, axes=2, *, precision=None, preferred_element_type=None, out_sharding=None):
    """Sums of products over axes: a number of last and first ones, or pairs.

    ShapeError for axes that differ in number or size; TypeError for `axes` of another kind.

    >>> jnp.tensordot(jnp.ones((2, 3)), jnp.ones((3, 4)), 1).shape
    (2, 4)
    """
    x, y = of_one_dtype("tensordot", a, b)
    if isinstance(axes, str) or (isinstance(axes, (tuple, list)) and str in map(type, axes)):
        raise TypeMismatch(
            f"tensordot with axes={axes!r}; expected a number, or axes of a and of b"
        )
    if isinstance(axes, (tuple, list)):
        if len(axes) == 2 and len(_many(axes[0])) != len(_many(axes[1])):
            raise ShapeError(f"tensordot with axes={axes}: expected as many of a as of b")
        if len(axes) != 2:
            raise ShapeError(
                f"tensordot with axes={axes}; expected a number, or axes of a and of b"
            )
        lc, rc = canonical_axes(_many(axes[0]), x.ndim), canonical_axes(_many(axes[1]), y.ndim)
    else:
        count = integer(axes, "axes")
        if count > min(x.ndim, y.ndim):
            raise ShapeError(f"tensordot over {count} axes of shapes {x.shape} and {y.shape}")
        lc, rc = tuple(range(x.ndim - count, x.ndim)), tuple(range(count))
    for i, j in zip(lc, rc):
        _check("tensordot", x, i, y, j)
    return contract(x, y, lc, rc, dtype=preferred_element_type)


def _many(axes: Any) -> Any:
    return tuple(axes) if isinstance(axes, (tuple, list)) else (axes,)


def kron(a, b):
    """The Kronecker product.

    >>> jnp.kron(jnp.array([1, 10]), jnp.array([1, 2, 3]))
    Array([ 1,  2,  3, 10, 20, 30], dtype=int64)
    """
    x, y = promote("kron", a, b)
    n = max(x.ndim, y.ndim)
    xs, ys = ((1,) * (n - z.ndim) + z.shape for z in (x, y))
    wide = reshape_to(x, tuple([m for s in xs for m in (s, 1)]))
    tall = reshape_to(y, tuple([m for s in ys for m in (1, s)]))
    return reshape_to(ufuncs.multiply(wide, tall), tuple([s * t for s, t in zip(xs, ys)]))


def cross(a, b, axisa=-1, axisb=-1, axisc=-1, axis=None):
    """The cross product of vectors of 2 or 3 components.

    ShapeError for other numbers of components.

    >>> jnp.cross(jnp.array([1.0, 0.0, 0.0]), jnp.array([0.0, 1.0, 0.0]))
    Array([0., 0., 1.], dtype=float64)
    """
    x, y = map(times_strong, promote("cross", a, b))
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = moveaxis(x, axisa, -1), moveaxis(y, axisb, -1)
    if x.shape[-1] not in (2, 3) or y.shape[-1] not in (2, 3):
        raise ShapeError(
            f"cross of vectors of {x.shape[-1]} and {y.shape[-1]} components; expected 2 or 3"
        )
    xs = [x[..., k] for k in range(x.shape[-1])]
    ys = [y[..., k] for k in range(y.shape[-1])]
    if len(xs) == len(ys) == 2:
        return xs[0] * ys[1] - xs[1] * ys[0]
    from fnx.numpy.structure.joining import stack

    zero = scalar(0, x.dtype)
    (x0, x1, x2), (y0, y1, y2) = ((*v, zero)[:3] for v in (xs, ys))
    parts = [x1 * y2 - x2 * y1, x2 * y0 - x0 * y2, x0 * y1 - x1 * y0]
    return stack(broadcast_arrays("cross", parts), axis=axisc)


def trace(a, offset=0, axis1=0, axis2=1, dtype=None, out=None):
    """The sums of the diagonals in two axes; `offset` counts diagonals above the main one.

    AxisError, a ValueError, for arrays that lack these axes.

    >>> jnp.trace(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    Array(5., dtype=float64)
    """
    no_out("trace", out)
    from fnx.numpy.reductions.reduce import sum

    return sum(diagonal(a, offset, axis1, axis2), -1, dtype)


# --- einsum ------------------------------------------------------------------------------------


__all__ = [
    "cross",
    "dot",
    "inner",
    "kron",
    "matmul",
    "matvec",
    "outer",
    "tensordot",
    "trace",
    "vdot",
    "vecdot",
    "vecmat",
]
