"""Functions that make arrays: from data, of constants, of ranges and grids."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray, as_array
from fnx.core.errors import ConcretizationTypeError, InvalidValue, TypeMismatch
from fnx.core.interpreter import Tracer
from fnx.numpy import ufuncs
from fnx.numpy.util import (
    PYTHON,
    broadcast_arrays,
    canonical_axis,
    canonical_shape,
    constant,
    convert,
    eager,
    promote,
    promote_inexact,
    result_dtype,
    to_array,
    to_arrays,
)
from fnx.ops import elementwise as ops
from fnx.ops import matrix
from fnx.ops.broadcast import Broadcast, broadcast_axis, broadcast_to, insert_axes, scalar
from fnx.ops.broadcast import full as _full
from fnx.ops.join import Concatenate, Iota
from fnx.ops.permute import Reshape

INT = np.dtype(np.int64)


# --- from data ----------------------------------------------------------------------------------------


def array(
    object: Any,
    dtype: Any = None,
    *args: Any,
    copy: bool = True,
    order: str | None = "K",
    ndmin: int = 0,
    device: Any = None,
    out_sharding: Any = None,
) -> Array:
    """An array of numbers, nested lists, NumPy arrays or arrays.

    >>> array([[1, 2], [3, 4]])
    Array([[1, 2],
           [3, 4]], dtype=int64)
    """
    del args, copy, device, out_sharding
    if order not in (None, "K", "C", "A"):
        raise InvalidValue(f"order={order!r} is not supported; arrays are stored in order 'C'")
    wanted = None if dtype is None else dtypes.canonical(dtype)
    out = _from_data(object, wanted)
    if ndmin > out.ndim:
        out = Reshape((*(1,) * (ndmin - out.ndim), *out.shape))(out)
    return out


def asarray(
    a: Any,
    dtype: Any = None,
    order: str | None = None,
    *,
    copy: bool | None = None,
    device: Any = None,
    out_sharding: Any = None,
) -> Array:
    """As `array`."""
    return array(a, dtype, order=order or "K", copy=bool(copy), device=device)


def _from_data(x: Any, dtype: np.dtype | None) -> Array:
    if isinstance(x, Array):
        return x if dtype is None else _astype(x, dtype)
    if type(x) in PYTHON:
        if dtype is None:
            return as_array(x)
        return constant(_fitting(x, dtype), dtype, weak=False)
    if isinstance(x, (np.ndarray, np.generic)):
        if x.dtype == object:
            return _from_data(x.tolist(), dtype)
        out = as_array(x)
        return out if dtype is None else _astype(out, dtype)
    if isinstance(x, (list, tuple, range)):
        return _from_list(list(x), dtype)
    if hasattr(x, "__jax_array__"):
        return _from_data(x.__jax_array__(), dtype)
    if x is None:
        raise TypeMismatch("None is not a value of an array; expected numbers or arrays")
    if hasattr(x, "__array__") or hasattr(x, "__array_interface__") or isinstance(x, (memoryview, bytearray)):
        return _from_data(np.asarray(x), dtype)
    if isinstance(x, (bool, int, float, complex)):
        return _from_data(next(t(x) for t in (bool, int, float, complex) if isinstance(x, t)), dtype)
    if hasattr(x, "__dlpack__"):
        return _from_data(np.from_dlpack(x), dtype)
    raise TypeMismatch(
        f"a value of type {type(x).__name__} cannot become an array: {x!r:.80}; expected numbers, "
        "arrays, or nested lists of them"
    )


def _fitting(x: Any, dtype: np.dtype) -> Any:
    """A Python number for a dtype; raises where it does not fit."""
    if isinstance(x, complex) and not dtypes.is_complex(dtype) and dtype != dtypes.bool_:
        raise TypeMismatch(f"the complex number {x} has no value of dtype {dtype}")
    if type(x) is int and dtypes.is_integer(dtype):
        info = np.iinfo(dtype)
        if not info.min <= x <= info.max:
            raise OverflowError(f"Python integer {x} is out of bounds for {dtype}")
    if type(x) is float and dtypes.is_integer(dtype):
        return as_array(x)._value.astype(dtype).item() if math.isfinite(x) else 0
    return x


def _astype(x: Array, dtype: np.dtype) -> Array:
    if x.dtype != dtype:
        return convert(x, dtype)
    if getattr(x, "weak_type", False):
        return _strong(x)
    return x


def _strong(x: Array) -> Array:
    if type(x) is ConcreteArray:
        return ConcreteArray(x._value)
    return ops.ConvertElementType(x.dtype)(x)


def _leaves(x: Any, found: list) -> list:
    if isinstance(x, (list, tuple)):
        for y in x:
            _leaves(y, found)
    else:
        found.append(x)
    return found


def _from_list(x: list, dtype: np.dtype | None) -> Array:
    leaves = _leaves(x, [])
    kinds = set(map(type, leaves))
    if kinds <= PYTHON:
        out = np.asarray(x)
        if out.dtype == object:
            raise TypeMismatch(f"a ragged list or too large a number cannot become an array: {x!r:.80}")
        if dtype is None:
            dtype = dtypes.default_for("f") if not leaves else dtypes.default_for(out.dtype.kind)
        return ConcreteArray(_cast(out, dtype))
    if type(None) in kinds:
        raise TypeMismatch("None is not a value of an array; expected numbers or arrays")
    if not any(issubclass(k, (Array, np.ndarray, np.generic, *PYTHON)) or hasattr(k, "__jax_array__") for k in kinds):
        data = np.asarray(x)
        if data.dtype == object:
            raise TypeMismatch(f"a list of objects that are no numbers cannot become an array: {x!r:.80}")
        return _from_data(data, dtype)
    arrays = [y if type(y) in PYTHON else _from_data(y, None) for y in leaves]
    if dtype is None:
        dtype = result_dtype(*arrays)
    if not any(isinstance(y, Tracer) for y in arrays) and eager():
        return ConcreteArray(np.ascontiguousarray(_nested(x, dtype)).reshape(_shape_of(x)))
    return _stack_nested(x, dtype)


def _shape_of(x: Any) -> tuple[int, ...]:
    if isinstance(x, (list, tuple)):
        return (len(x), *(_shape_of(x[0]) if x else ()))
    return np.shape(x._value if isinstance(x, ConcreteArray) else x)


def _cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return x if x.dtype == dtype else ops.ConvertElementType(dtype).impl(x)


def _nested(x: Any, dtype: np.dtype) -> np.ndarray:
    if isinstance(x, (list, tuple)):
        return np.stack([_nested(y, dtype) for y in x]) if x else np.zeros((0,), dtype)
    y = _from_data(x, dtype)
    return y._value  # type: ignore[attr-defined]


def _stack_nested(x: Any, dtype: np.dtype) -> Array:
    if not isinstance(x, (list, tuple)):
        return _from_data(x, dtype)
    parts = [_stack_nested(y, dtype) for y in x]
    if not parts:
        return _full((0,), 0, dtype)
    if any(p.shape != parts[0].shape for p in parts):
        raise TypeMismatch(
            f"a list of arrays of shapes {[p.shape for p in parts]} cannot become an array; expected "
            "equal shapes"
        )
    return Concatenate(0)(*[broadcast_axis(p, 1, 0) for p in parts])


def copy(a, order=None):
    """The array; arrays are immutable, so that none is copied."""
    del order
    return to_array(a, "copy")


def astype(x, dtype, /, *, copy=False, device=None):
    """The array in another dtype; floats become integers by truncation."""
    del copy, device
    x = to_array(x, "astype")
    return _astype(x, dtypes.canonical(float if dtype is None else dtype))


def frombuffer(buffer, dtype=float, count=-1, offset=0):
    """An array of the bytes of a buffer."""
    return array(np.frombuffer(buffer, dtypes.canonical(dtype), count, offset))


def fromfunction(function, shape, *, dtype=float, **kwargs):
    """The array of a function of index grids."""
    return function(*indices(shape, dtype=dtype), **kwargs)


def fromiter(*args, **kwargs):
    """An array of the numbers of an iterable (as numpy.fromiter)."""
    return array(np.fromiter(*args, **kwargs))


def fromfile(*args, **kwargs):
    """An array of a file's bytes (as numpy.fromfile)."""
    return array(np.fromfile(*args, **kwargs))


def fromstring(string, dtype=float, count=-1, *, sep):
    """An array of the numbers in a text (as numpy.fromstring)."""
    return array(np.fromstring(string, dtypes.canonical(dtype), count, sep=sep))


def from_dlpack(x, /, *, device=None, copy=None):
    """An array of another library's."""
    del device, copy
    return array(np.from_dlpack(x))


# --- constants ----------------------------------------------------------------------------------------


def _filled(shape: Any, value: Any, dtype: Any) -> Array:
    return _full(canonical_shape(shape), value, dtypes.canonical(float if dtype is None else dtype))


def zeros(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """Zeros of a shape.

    >>> zeros(2)
    Array([0., 0.], dtype=float64)
    """
    return _filled(shape, 0, dtype)


def ones(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """Ones of a shape."""
    return _filled(shape, 1, dtype)


def empty(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """Zeros of a shape."""
    return _filled(shape, 0, dtype)


def full(shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """A value everywhere in a shape."""
    value = to_array(fill_value, "full")
    if dtype is not None:
        value = _astype(value, dtypes.canonical(dtype))
    return broadcast_to(value, canonical_shape(shape))


def _like(a: Any, value: Any, dtype: Any, shape: Any) -> Array:
    if not isinstance(a, Array) and hasattr(a, "shape") and hasattr(a, "dtype"):
        old_shape, old_dtype, weak = tuple(a.shape), dtypes.canonical(a.dtype), False
    else:
        x = to_array(a, "zeros_like")
        old_shape, old_dtype, weak = x.shape, x.dtype, x.weak_type
    new_shape = old_shape if shape is None else canonical_shape(shape)
    new_dtype = old_dtype if dtype is None else dtypes.canonical(dtype)
    if isinstance(value, Array):
        return broadcast_to(_astype(value, new_dtype), new_shape)
    del weak
    return _full(new_shape, value, new_dtype)


def zeros_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """Zeros of the shape and dtype of a."""
    return _like(a, 0, dtype, shape)


def ones_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """Ones of the shape and dtype of a."""
    return _like(a, 1, dtype, shape)


def empty_like(prototype: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Array:
    """Zeros of the shape and dtype of a."""
    return _like(prototype, 0, dtype, shape)


def full_like(
    a: Any, fill_value: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None
) -> Array:
    """A value everywhere in the shape of a."""
    return _like(a, to_array(fill_value, "full_like"), dtype, shape)


# --- ranges and grids ---------------------------------------------------------------------------------


def _iota(dtype: np.dtype, n: int) -> Array:
    return Iota(0, dtype, (n,))()


def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """Numbers from start (0) up to stop, by steps.

    >>> arange(3)
    Array([0, 1, 2], dtype=int64)
    """
    given = [_known(v, "arange") for v in (start, stop, step) if v is not None]
    wanted = result_dtype(*given) if dtype is None else dtypes.canonical(dtype)
    if dtype is None and wanted == dtypes.bool_:
        raise TypeMismatch("arange of bools; expected integers or floats")
    first, last = (0, given[0]) if stop is None else given[:2]
    by = given[-1] if step is not None else 1
    numbers = [v.item() if isinstance(v, (np.ndarray, np.generic)) else v for v in (first, last, by)]
    if by == 1 and type(numbers[0]) is int and numbers[0] == 0 and wanted.kind in "iuf":
        return _iota(wanted, max(math.ceil(numbers[1]), 0))
    return ConcreteArray(_cast(np.asarray(np.arange(*numbers)), wanted))


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
    raise TypeMismatch(f"{name} got {v!r:.60}; expected numbers")


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

    >>> linspace(0.0, 1.0, 3)
    Array([0. , 0.5, 1. ], dtype=float64)
    """
    num = int(num)
    if num < 0:
        raise InvalidValue(f"linspace with num={num}; expected at least 0")
    wanted = None if dtype is None else dtypes.canonical(dtype)
    a, b = broadcast_arrays("linspace", promote_inexact("linspace", start, stop))
    out, step = _linspace(a, b, num, endpoint)
    if axis not in (0, -out.ndim):
        from fnx.ops.permute import move_axis

        out = move_axis(out, 0, canonical_axis(axis, out.ndim))
    final = wanted or a.dtype
    if dtypes.is_integer(final):
        out = ops.floor(out)
    out = _astype(out, final)
    return (out, step) if retstep else out


def _linspace(a: Array, b: Array, num: int, endpoint: bool) -> tuple[Array, Array]:
    div = num - 1 if endpoint else num
    real = dtypes.real_of(a.dtype)
    shape = (num, *a.shape)
    delta = ops.sub(b, a)
    if div > 0:
        step = ops.div(delta, scalar(div, a.dtype))
    else:
        step = _full(a.shape, math.nan, a.dtype)
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


def logspace(start, stop, num=50, endpoint=True, base=10.0, dtype=None, axis=0):
    """base ** linspace(start, stop, num)."""
    exponents = linspace(start, stop, num, endpoint, axis=axis)
    out = ufuncs.power(to_array(base, "logspace"), exponents)
    return out if dtype is None else _astype(out, dtypes.canonical(dtype))


def geomspace(start, stop, num=50, endpoint=True, dtype=None, axis=0):
    """Numbers from start to stop with a constant ratio."""
    a, b = promote_inexact("geomspace", start, stop)
    if dtypes.is_complex(a.dtype):
        raise TypeMismatch("geomspace of complex numbers is not implemented")
    sign = ufuncs.sign(a)
    exponents = linspace(ops.log(ufuncs.abs(a)), ops.log(ufuncs.abs(b)), num, endpoint, axis=axis)
    out = ufuncs.multiply(ufuncs.exp(exponents), sign)
    return out if dtype is None else _astype(out, dtypes.canonical(dtype))


def eye(N, M=None, k=0, dtype=None, *, device=None):
    """Ones on diagonal k, zeros elsewhere.

    >>> eye(2)
    Array([[1., 0.],
           [0., 1.]], dtype=float64)
    """
    shape = canonical_shape((N, N if M is None else M))
    wanted = dtypes.canonical(float if dtype is None else dtype)
    row, column = Iota(0, INT, shape)(), Iota(1, INT, shape)()
    return _astype(ops.eq(ops.add(row, scalar(int(k), INT)), column), wanted)


def identity(n, dtype=None):
    """The identity matrix."""
    return eye(n, dtype=dtype)


def tri(N, M=None, k=0, dtype=None):
    """Ones at and below diagonal k, zeros above."""
    shape = canonical_shape((N, N if M is None else M))
    wanted = dtypes.canonical(float if dtype is None else dtype)
    row, column = Iota(0, INT, shape)(), Iota(1, INT, shape)()
    return _astype(ops.ge(ops.add(row, scalar(int(k), INT)), column), wanted)


def _matrices(name: str, m: Any) -> Array:
    x = to_array(m, name)
    if x.ndim < 2:
        raise InvalidValue(f"{name} needs an array of at least 2 axes, not shape {x.shape}")
    return x


def tril(m, k=0):
    """The matrix with zeros above diagonal k."""
    return matrix.tril(_matrices("tril", m), int(k))


def triu(m, k=0):
    """The matrix with zeros below diagonal k."""
    return matrix.triu(_matrices("triu", m), int(k))


def meshgrid(*xi, copy=True, sparse=False, indexing="xy"):
    """Grids of coordinates of vectors."""
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
    """Grids of indices of an array of a shape."""
    shape = canonical_shape(dimensions)
    wanted = dtypes.canonical(int if dtype is None else dtype)
    n = len(shape)
    if sparse:
        return tuple(
            [Iota(k, wanted, tuple([m if j == k else 1 for j, m in enumerate(shape)]))() for k in range(n)]
        )
    if not n:
        return _full((0,), 0, wanted)
    return Concatenate(0)(*[insert_axes(Iota(k, wanted, shape)(), (0,)) for k in range(n)])


def tril_indices(n, k=0, m=None):
    """Row and column indices at and below diagonal k."""
    return tuple(map(array, np.tril_indices(n, k, m)))


def triu_indices(n, k=0, m=None):
    """Row and column indices at and above diagonal k."""
    return tuple(map(array, np.triu_indices(n, k, m)))


def tril_indices_from(arr, k=0):
    """`tril_indices` for a matrix."""
    return tril_indices(arr.shape[-2], k, arr.shape[-1])


def triu_indices_from(arr, k=0):
    """`triu_indices` for a matrix."""
    return triu_indices(arr.shape[-2], k, arr.shape[-1])


def diag_indices(n, ndim=2):
    """Indices of the diagonal."""
    return (arange(n),) * ndim


def diag_indices_from(arr):
    """Indices of the diagonal of a hypercube."""
    if len(set(arr.shape)) != 1 or arr.ndim < 2:
        raise InvalidValue(f"diag_indices_from needs axes of one size, not shape {arr.shape}")
    return diag_indices(arr.shape[0], arr.ndim)


def mask_indices(n, mask_func, k=0, *, size=None):
    """Indices at which a mask function of a square matrix of ones is not 0."""
    from fnx.numpy.sorting import nonzero

    return nonzero(mask_func(ones((n, n)), k), size=size)


def ix_(*args):
    """Vectors as grids for indexing the outer product of positions."""
    xs = to_arrays("ix_", *args)
    outs = []
    for k, x in enumerate(xs):
        if x.ndim != 1:
            raise InvalidValue(f"ix_ needs vectors, not shape {x.shape}")
        if x.dtype == dtypes.bool_:
            x = array(np.nonzero(np.asarray(x))[0])
        outs.append(Reshape((*(1,) * k, x.shape[0], *(1,) * (len(xs) - k - 1)))(x))
    return tuple(outs)


def vander(x, N=None, increasing=False):
    """Powers of x, one per column."""
    x = to_array(x, "vander")
    n = x.shape[0] if N is None else int(N)
    powers = arange(n) if increasing else arange(n - 1, -1, -1)
    return ufuncs.power(broadcast_axis(x, 1, 1), insert_axes(powers, (0,)))


def _window(name: str, M: int, terms: Sequence[float]) -> Array:
    """A sum of cosines, as windows of signal processing are."""
    M = int(M)
    if M <= 1:
        return ones(max(M, 0))
    angle = linspace(0.0, 2 * math.pi, M)
    total = full((M,), terms[0], float)
    for k, weight in enumerate(terms[1:], 1):
        total = total + ufuncs.cos(angle * k) * weight
    return total


def hanning(M):
    """The Hann window."""
    return _window("hanning", M, (0.5, -0.5))


def hamming(M):
    """The Hamming window."""
    return _window("hamming", M, (0.54, -0.46))


def blackman(M):
    """The Blackman window."""
    return _window("blackman", M, (0.42, -0.5, 0.08))


def bartlett(M):
    """The triangular window."""
    M = int(M)
    if M <= 1:
        return ones(max(M, 0))
    return 1.0 - ufuncs.abs(linspace(-1.0, 1.0, M))


def kaiser(M, beta):
    """The Kaiser window."""
    from fnx.numpy.numerics import i0

    M = int(M)
    if M <= 1:
        return ones(max(M, 0))
    t = linspace(-1.0, 1.0, M)
    (beta,) = promote_inexact("kaiser", beta)
    inside = ufuncs.maximum(1.0 - t * t, 0.0)
    return i0(beta * ufuncs.sqrt(inside)) / i0(beta)


class _Grid:
    """np.mgrid, np.ogrid: grids by slices."""

    def __init__(self, sparse: bool):
        self.sparse = sparse

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        axes = [_range_of(s) for s in parts]
        if not isinstance(index, tuple):
            return axes[0]
        axes = promote("mgrid", *axes)
        grids = meshgrid(*axes, sparse=self.sparse, indexing="ij")
        if self.sparse:
            return grids
        return Concatenate(0)(*[broadcast_axis(g, 1, 0) for g in grids])


def _range_of(s: slice) -> Array:
    start = 0 if s.start is None else s.start
    step = 1 if s.step is None else s.step
    if isinstance(step, complex):
        return linspace(start, s.stop, int(abs(step)))
    return arange(start, s.stop, step)


class _Joined:
    """np.r_, np.c_: arrays by slices, joined."""

    def __init__(self, columns: bool):
        self.columns = columns

    def __getitem__(self, index: Any) -> Array:
        from fnx.numpy.shape import column_stack, concatenate

        parts = index if isinstance(index, tuple) else (index,)
        arrays = [_range_of(p) if isinstance(p, slice) else array(p) for p in parts]
        if self.columns:
            return column_stack(arrays)
        return concatenate([Reshape((1,))(a) if a.ndim == 0 else a for a in arrays])


mgrid, ogrid, r_, c_ = _Grid(False), _Grid(True), _Joined(False), _Joined(True)
s_, index_exp = np.s_, np.index_exp

__all__ = [
    "arange", "array", "asarray", "astype", "bartlett", "blackman", "c_", "copy", "diag_indices",
    "diag_indices_from", "empty", "empty_like", "eye", "from_dlpack", "frombuffer", "fromfile", "fromfunction",
    "fromiter", "fromstring", "full", "full_like", "geomspace", "hamming", "hanning", "identity", "index_exp",
    "indices", "ix_", "kaiser", "linspace", "logspace", "mask_indices", "meshgrid", "mgrid", "ogrid", "ones",
    "ones_like", "r_", "s_", "tri", "tril", "tril_indices", "tril_indices_from", "triu", "triu_indices",
    "triu_indices_from", "vander", "zeros", "zeros_like",
]  # fmt: skip
