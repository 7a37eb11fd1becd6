"""Ranges and regular matrices: arange, linspace, eye, tri, meshgrid, indices of triangles."""

import math
from functools import partial
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray
from fnx.core.aval import ShapedArray, check_size, too_large
from fnx.core.errors import ConcretizationTypeError, InvalidValue, TypeMismatch
from fnx.core.interpreter import Tracer
from fnx.core.source import brief
from fnx.numpy.arrays.creation import array, as_type, cast
from fnx.numpy.arrays.traced_cache import replayed
from fnx.numpy.arrays.util import (
    INT,
    broadcast_arrays,
    canonical_axis,
    canonical_shape,
    convert,
    fit,
    integer,
    promote_inexact,
    result_dtype,
    strong,
    to_array,
    to_arrays,
    transformation,
)
from fnx.numpy.elementwise import ufuncs
from fnx.ops.base.broadcast import Broadcast, broadcast_axis, broadcast_to, insert_axes, scalar
from fnx.ops.base.broadcast import full as _full
from fnx.ops.base.permute import Reshape, move_axis
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.linalg import matrix
from fnx.ops.structure.join import Concatenate, Iota

# --- ranges and grids ---------------------------------------------------------------------------


class ZeroStep(InvalidValue, ZeroDivisionError):
    """A range that gets nowhere; a ValueError, and NumPy's ZeroDivisionError."""


def _iota(dtype: np.dtype, n: int) -> Array:
    return Iota(0, dtype, (n,))()


def arange(
    start: Any,
    stop: Any = None,
    step: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Array:
    """Numbers from start (0) up to stop, by steps.

    ValueError for complex numbers; TypeError for bools.

    >>> jnp.arange(3)
    Array([0, 1, 2], dtype=int64)
    """
    given = [_known(v, "arange") for v in (start, stop, step) if v is not None]
    wanted = result_dtype(*given) if dtype is None else dtypes.canonical(dtype)
    if any(isinstance(v, complex | np.complexfloating) for v in given):
        raise InvalidValue("arange of complex numbers, which have no order; expected real numbers")
    if wanted == dtypes.bool_:
        raise TypeMismatch("arange of bools; expected integers or floats")
    first, last = (0, given[0]) if stop is None else given[:2]
    by = given[-1] if step is not None else 1
    if by == 0:
        raise ZeroStep("arange with step=0; expected a step that leads from start to stop")
    numbers = [
        v.item() if isinstance(v, (np.ndarray, np.generic)) else v for v in (first, last, by)
    ]
    if by == 1 and type(numbers[0]) is int and numbers[0] == 0 and wanted.kind in "iuf":
        return _iota(wanted, max(math.ceil(numbers[1]), 0))
    try:
        return ConcreteArray(cast(np.asarray(np.arange(*numbers)), wanted))
    except MemoryError as error:
        raise too_large(_range_type(*numbers, dtype=wanted)) from error
    except ValueError as error:
        check_size(_range_type(*numbers, dtype=wanted))
        raise InvalidValue(f"arange of {numbers}: {error}") from error


def _range_type(first: Any, last: Any, by: Any, *, dtype: np.dtype) -> ShapedArray:
    return ShapedArray((max(math.ceil((last - first) / by), 0),), dtype)


def _known(v: Any, name: str) -> Any:
    if isinstance(v, Tracer):
        if v.owner.concrete(v) is None:
            raise ConcretizationTypeError(
                f"{name} got a traced value of type {v.aval.str_short()} inside {v.owner.what}; the "
                "length of its result must be known. Expected Python numbers: mark the argument that it "
                f"comes from static (static_argnums, static_argnames), or multiply a known {name}."
            )
    if isinstance(v, Array):
        value = np.asarray(v)
        return value.item() if v.weak_type else value[()]
    if isinstance(v, np.ndarray):
        return v[()]
    if isinstance(v, (bool, int, float, complex, np.generic)):
        return v
    raise TypeMismatch(f"{name} got {brief(v)}; expected numbers")


@replayed("start", "stop")
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Array:
    """`num` numbers from start to stop, evenly spaced.

    ValueError for negative `num`.

    >>> jnp.linspace(0.0, 1.0, 3)
    Array([0. , 0.5, 1. ], dtype=float64)
    """
    num = integer(num, "num")
    if num < 0:
        raise InvalidValue(f"linspace with num={num}; expected at least 0")
    wanted = None if dtype is None else dtypes.canonical(dtype)
    a, b = map(strong, promote_inexact("linspace", start, stop))
    a, b = broadcast_arrays("linspace", [a, b])
    out, step = _linspace(a, b, num, endpoint)
    if axis not in (0, -out.ndim):
        out = move_axis(out, 0, canonical_axis(axis, out.ndim))
    final = wanted or a.dtype
    if dtypes.is_integer(final):
        out = ops.floor(out)
    out = as_type(out, final)
    return (out, step) if retstep else out


def _linspace(a: Array, b: Array, num: int, endpoint: bool) -> tuple[Array, Array]:
    div = num - 1 if endpoint else num
    real = dtypes.real_of(a.dtype)
    shape = (num, *a.shape)
    delta = ops.sub(b, a)
    if div > 0:
        step = ops.div(delta, scalar(div, a.dtype))
    else:
        step = scalar(math.nan, a.dtype)
    count = num - 1 if endpoint and num > 1 else num
    t = ops.div(_iota(real, count), scalar(max(div, 1), real))
    t = convert(t, a.dtype)
    t = Broadcast((count, *a.shape), (0,))(t) if a.shape else t
    lead = broadcast_axis(a, count, 0) if a.shape else a
    tail = broadcast_axis(b, count, 0) if b.shape else b
    # a (1 - t) + b t is monotonic, and exact at both ends.
    out = ops.add(ops.mul(lead, ops.sub(scalar(1, a.dtype), t)), ops.mul(tail, t))
    if count < num:
        out = Concatenate(0)(out, broadcast_axis(b, 1, 0))
    return (out if out.shape == shape else broadcast_to(out, shape)), step


@replayed("start", "stop", "base")
def logspace(start, stop, num=50, endpoint=True, base=10.0, dtype=None, axis=0):
    """Numbers whose logarithms are evenly spaced: base ** linspace(start, stop, num, endpoint).

    ValueError for a negative `num`.

    >>> jnp.logspace(0, 2, 3)
    Array([  1.,  10., 100.], dtype=float64)
    """
    exponents = linspace(start, stop, num, endpoint, axis=axis)
    out = ufuncs.power(to_array(base, "logspace"), exponents)
    return out if dtype is None else as_type(out, dtypes.canonical(dtype))


@replayed("start", "stop")
def geomspace(start, stop, num=50, endpoint=True, dtype=None, axis=0):
    """Numbers from start to stop with a constant ratio.

    >>> jnp.geomspace(1.0, 8.0, 4)
    Array([1., 2., 4., 8.], dtype=float64)
    """
    a, b = map(strong, promote_inexact("geomspace", start, stop))
    a, b = broadcast_arrays("geomspace", [a, b])
    sign = ops.sign(a)  # of a complex number its direction, from which the logarithms start
    a, b = ops.div(a, sign), ops.div(b, sign)
    exponents = linspace(ops.log(a), ops.log(b), num, endpoint)
    out = ufuncs.multiply(ufuncs.exp(exponents), sign)
    out = move_axis(out, 0, canonical_axis(axis, out.ndim))
    return out if dtype is None else as_type(out, dtypes.canonical(dtype))


def eye(N, M=None, k=0, dtype=None, *, device=None):
    """Ones on diagonal k, zeros elsewhere.

    >>> jnp.eye(2)
    Array([[1., 0.],
           [0., 1.]], dtype=float64)
    """
    shape = canonical_shape((N, N if M is None else M))
    wanted = dtypes.canonical(float if dtype is None else dtype)
    row, column = Iota(0, INT, shape)(), Iota(1, INT, shape)()
    return as_type(ops.eq(ops.add(row, _diagonal(k, shape)), column), wanted)


def _diagonal(k: Any, shape: tuple[int, ...]) -> Array:
    """The number of a diagonal, which may be traced; numbers beyond the matrix are equal to its edges."""
    if isinstance(k, Array):
        if k.ndim or not dtypes.is_integer(k.dtype):
            raise TypeMismatch(f"a diagonal of type {k.aval.str_short()}; expected one integer")
        return convert(k, INT)
    return scalar(min(max(integer(k, "k"), -shape[0]), shape[1]), INT)


def identity(n, dtype=None):
    """The identity matrix.

    >>> jnp.identity(2)
    Array([[1., 0.],
           [0., 1.]], dtype=float64)
    """
    return eye(n, dtype=dtype)


def tri(N, M=None, k=0, dtype=None):
    """Ones at and below diagonal k, zeros above; float32 where no dtype is given, as in JAX.

    >>> jnp.tri(3)
    Array([[1., 0., 0.],
           [1., 1., 0.],
           [1., 1., 1.]], dtype=float32)
    """
    shape = canonical_shape((N, N if M is None else M))
    wanted = dtypes.canonical(dtypes.float32 if dtype is None else dtype)
    row, column = Iota(0, INT, shape)(), Iota(1, INT, shape)()
    return as_type(ops.ge(ops.add(row, _diagonal(k, shape)), column), wanted)


def _matrices(name: str, m: Any) -> Array:
    x = to_array(m, name)
    if x.ndim < 2:
        raise InvalidValue(f"{name} needs an array of at least 2 axes, not shape {x.shape}")
    return x


def tril(m, k=0):
    """The matrix with zeros above diagonal k.

    >>> jnp.tril(jnp.arange(1, 10).reshape(3, 3))
    Array([[1, 0, 0],
           [4, 5, 0],
           [7, 8, 9]], dtype=int64)
    """
    return matrix.tril(_matrices("tril", m), integer(k, "k"))


def triu(m, k=0):
    """The matrix with zeros below diagonal k.

    >>> jnp.triu(jnp.arange(1, 10).reshape(3, 3))
    Array([[1, 2, 3],
           [0, 5, 6],
           [0, 0, 9]], dtype=int64)
    """
    return matrix.triu(_matrices("triu", m), integer(k, "k"))


def meshgrid(*xi, copy=True, sparse=False, indexing="xy"):
    """Grids of coordinates of vectors.

    ValueError for another `indexing` than 'xy' or 'ij', and for what are no vectors.

    >>> [x.shape for x in jnp.meshgrid(jnp.arange(2), jnp.arange(3))]
    [(3, 2), (3, 2)]
    """
    del copy
    xs = to_arrays("meshgrid", *xi)
    if indexing not in ("xy", "ij"):
        raise InvalidValue(f"meshgrid with indexing={indexing!r}; expected 'xy' or 'ij'")
    if any(x.ndim > 1 for x in xs):
        raise InvalidValue(f"meshgrid needs vectors, not shapes {[x.shape for x in xs]}")
    n = len(xs)
    place = list(range(n))
    if indexing == "xy" and n >= 2:
        place[:2] = [1, 0]
    sizes = [0] * n
    for x, k in zip(xs, place):
        sizes[k] = x.aval.size
    outs = []
    for x, k in zip(xs, place):
        x = Reshape((x.aval.size,))(x) if x.ndim == 0 else x
        shape = [1] * n if sparse else sizes
        outs.append(Broadcast((*shape[:k], x.shape[0], *shape[k + 1 :]), (k,))(x))
    return outs


def indices(dimensions, dtype=None, sparse=False):
    """Grids of indices of an array of a shape.

    >>> jnp.indices((2, 3))[1]
    Array([[0, 1, 2],
           [0, 1, 2]], dtype=int64)
    """
    shape = canonical_shape(dimensions)
    wanted = dtypes.canonical(int if dtype is None else dtype)
    n = len(shape)
    if sparse:
        return tuple(
            [
                Iota(k, wanted, tuple([m if j == k else 1 for j, m in enumerate(shape)]))()
                for k in range(n)
            ]
        )
    if not n:
        return _full((0,), 0, wanted)
    return Concatenate(0)(*[insert_axes(Iota(k, wanted, shape)(), (0,)) for k in range(n)])


def tril_indices(n, k=0, m=None):
    """Row and column indices at and below diagonal k.

    >>> jnp.arange(9).reshape(3, 3)[jnp.tril_indices(3)]
    Array([0, 3, 4, 6, 7, 8], dtype=int64)
    """
    return tuple(map(array, np.tril_indices(n, k, m)))


def triu_indices(n, k=0, m=None):
    """Row and column indices at and above diagonal k.

    >>> jnp.arange(9).reshape(3, 3)[jnp.triu_indices(3)]
    Array([0, 1, 2, 4, 5, 8], dtype=int64)
    """
    return tuple(map(array, np.triu_indices(n, k, m)))


def tril_indices_from(arr, k=0):
    """`tril_indices` for a matrix.

    >>> m = jnp.arange(4).reshape(2, 2)
    >>> m[jnp.tril_indices_from(m)]
    Array([0, 2, 3], dtype=int64)
    """
    shape = _matrices("tril_indices_from", arr).shape
    return tril_indices(shape[-2], k, shape[-1])


def triu_indices_from(arr, k=0):
    """`triu_indices` for a matrix.

    >>> m = jnp.arange(4).reshape(2, 2)
    >>> m[jnp.triu_indices_from(m)]
    Array([0, 1, 3], dtype=int64)
    """
    shape = _matrices("triu_indices_from", arr).shape
    return triu_indices(shape[-2], k, shape[-1])


def diag_indices(n, ndim=2):
    """Indices of the diagonal.

    >>> jnp.zeros((2, 2)).at[jnp.diag_indices(2)].set(1.0)
    Array([[1., 0.],
           [0., 1.]], dtype=float64)
    """
    return (arange(n),) * ndim


def diag_indices_from(arr):
    """Indices of the diagonal of a hypercube.

    ValueError for axes of different sizes.

    >>> m = jnp.arange(9).reshape(3, 3)
    >>> m[jnp.diag_indices_from(m)]
    Array([0, 4, 8], dtype=int64)
    """
    arr = to_array(arr, "diag_indices_from")
    if len(set(arr.shape)) != 1 or arr.ndim < 2:
        raise InvalidValue(f"diag_indices_from needs axes of one size, not shape {arr.shape}")
    return diag_indices(arr.shape[0], arr.ndim)


@replayed()
def vander(x, N=None, increasing=False):
    """Powers of x, one per column.

    ValueError for a negative number of columns.

    >>> jnp.vander(jnp.array([1, 2, 3]))
    Array([[1, 1, 1],
           [4, 2, 1],
           [9, 3, 1]], dtype=int64)
    """
    x = strong(to_array(x, "vander"))
    n = x.shape[0] if N is None else integer(N, "N")
    if n < 0:
        raise InvalidValue(f"vander with N={n}; expected at least 0 columns")
    powers = arange(n) if increasing else arange(n - 1, -1, -1)
    x, powers = broadcast_axis(x, 1, 1), insert_axes(powers, (0,))
    if dtypes.is_inexact(x.dtype):
        return ops.pow_(*fit("vander", [x, powers]))
    return ufuncs.power(x, convert(powers, x.dtype))


def fromfunction(function, shape, *, dtype=float, **kwargs):
    """The array of a function of indices, which is mapped over each: it sees scalars.

    >>> jnp.fromfunction(lambda i, j: 10 * i + j, (2, 3), dtype=int)
    Array([[ 0,  1,  2],
           [10, 11, 12]], dtype=int64)
    """
    sizes, vmap = canonical_shape(shape), transformation("vmap")
    mapped = partial(function, **kwargs)
    for axis in reversed(range(len(sizes))):
        mapped = vmap(mapped, in_axes=[0 if k == axis else None for k in range(len(sizes))])
    return mapped(*[arange(n, dtype=dtype) for n in sizes])


__all__ = [
    "arange",
    "diag_indices",
    "diag_indices_from",
    "eye",
    "fromfunction",
    "geomspace",
    "identity",
    "indices",
    "linspace",
    "logspace",
    "meshgrid",
    "tri",
    "tril",
    "tril_indices",
    "tril_indices_from",
    "triu",
    "triu_indices",
    "triu_indices_from",
    "vander",
]
