"""Functions that make arrays: from data, of constants, of ranges and grids."""

import math
from array import array as python_array
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray, as_array, as_placed, is_placed
from fnx.core.buffer import received
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.core.interpreter import Tracer
from fnx.core.source import brief, warn_user
from fnx.interpreters.variation import like
from fnx.numpy.arrays.util import (
    PYTHON,
    canonical_shape,
    constant,
    convert,
    eager,
    result_dtype,
    strong,
    to_array,
)
from fnx.ops.base.broadcast import broadcast_axis, broadcast_to, given
from fnx.ops.base.broadcast import full as _full
from fnx.ops.base.permute import Reshape
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.structure.join import Concatenate

# --- from data ----------------------------------------------------------------------------------


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

    A copy outlives the deletion or donation of what it was made of. ValueError for another `order` than
    'C', 'K' or 'A'.

    >>> jnp.array([[1, 2], [3, 4]])
    Array([[1, 2],
           [3, 4]], dtype=int64)
    """
    del args, device, out_sharding
    if order not in (None, "K", "C", "A"):
        raise InvalidValue(f"order={order!r} is not supported; arrays are stored in order 'C'")
    wanted = None if dtype is None else dtypes.canonical(dtype)
    out = _from_data(object, wanted)
    if copy and out is object:
        out = out.copy()
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
    """As `array`.

    >>> jnp.asarray([1, 2])
    Array([1, 2], dtype=int64)
    """
    return array(a, dtype, order=order or "K", copy=bool(copy), device=device)


def _from_data(x: Any, dtype: np.dtype | None) -> Array:
    if issubclass(type(x), Array):
        return x if dtype is None else as_type(x, dtype)
    if type(x) in PYTHON:
        if dtype is None:
            return as_array(x)
        return given(constant(_fitting(x, dtype), dtype, weak=False))
    if isinstance(x, (np.ndarray, np.generic)):
        if x.dtype == object:
            return _from_data(x.tolist(), dtype)
        out = as_array(x)
        return out if dtype is None else as_type(out, dtype)
    if isinstance(x, (list, tuple, range)):
        return _from_list(list(x), dtype)
    if hasattr(x, "__jax_array__"):
        return _from_data(x.__jax_array__(), dtype)
    if x is None:
        raise NoValue("None is not a value of an array; expected numbers or arrays")
    if (
        hasattr(x, "__array__")
        or hasattr(x, "__array_interface__")
        or isinstance(x, (memoryview, bytearray, python_array))
    ):
        return _from_data(received(x), dtype)
    if isinstance(x, (bool, int, float, complex)):
        return _from_data(
            next(t(x) for t in (bool, int, float, complex) if isinstance(x, t)), dtype
        )
    if hasattr(x, "__dlpack__") or hasattr(x, "__cuda_array_interface__"):
        return _from_data(received(x), dtype)
    raise TypeMismatch(
        f"a value of type {type(x).__name__} cannot become an array: {brief(x, 80)}; expected numbers, "
        "arrays, or nested lists of them"
    )


class NoValue(TypeMismatch, ValueError):
    """None, or a ragged list, where an array was expected; a ValueError as in JAX."""


def _fitting(x: Any, dtype: np.dtype) -> Any:
    """A Python number for a dtype; raises where it does not fit."""
    if isinstance(x, complex) and not dtypes.is_complex(dtype) and dtype != dtypes.bool_:
        raise TypeMismatch(f"the complex number {x} has no value of dtype {dtype}")
    if type(x) is int and dtypes.is_integer(dtype):
        info = dtypes.iinfo(dtype)
        if not info.min <= x <= info.max:
            if dtype in dtypes.SMALL:  # these wrap, as in JAX
                return int(np.asarray(x).astype(dtype))
            raise OverflowError(f"Python integer {x} is out of bounds for {dtype}")
    if type(x) is float and dtypes.is_integer(dtype):
        return as_array(x)._value.astype(dtype).item() if math.isfinite(x) else 0
    return x


def as_type(x: Array, dtype: np.dtype) -> Array:
    if x.dtype != dtype:
        return convert(x, dtype)
    if getattr(x, "weak_type", False):
        return strong(x)
    return x


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
        try:
            out = np.asarray(x)
        except ValueError as error:
            raise NoValue(f"a ragged list cannot become an array: {brief(x, 80)}") from error
        if out.dtype == object:
            for y in leaves:
                dtypes.scalar_dtype(y)  # an OverflowError if it is too large
            raise NoValue(f"a ragged list cannot become an array: {brief(x, 80)}")
        if dtype is not None and dtypes.is_integer(dtype) and out.dtype.kind in "iu":
            for y in leaves if out.dtype != dtype else ():
                _fitting(y, dtype)
        if dtype is None:
            dtype = dtypes.default_for("f") if not leaves else dtypes.default_for(out.dtype.kind)
        return ConcreteArray(cast(out, dtype))
    if type(None) in kinds:
        raise NoValue("None is not a value of an array; expected numbers or arrays")
    if not any(
        issubclass(k, (Array, np.ndarray, np.generic, *PYTHON)) or hasattr(k, "__jax_array__")
        for k in kinds
    ):
        data = np.asarray(x)
        if data.dtype == object:
            raise TypeMismatch(
                f"a list of objects that are no numbers cannot become an array: {brief(x, 80)}"
            )
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


def cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
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
    """The same numbers in an array of its own, which outlives the deletion or donation of `a`.

    >>> jnp.copy(np.arange(3))
    Array([0, 1, 2], dtype=int64)
    """
    del order
    return to_array(a, "copy").copy()


def astype(x, dtype, /, *, copy=False, device=None):
    """The array in another dtype; floats become integers by truncation.

    >>> jnp.astype(jnp.array([1.7, -1.7]), int)
    Array([ 1, -1], dtype=int64)
    """
    del device
    x = to_array(x, "astype")
    wanted = dtypes.canonical(float if dtype is None else dtype)
    if dtypes.is_complex(x.dtype) and not dtypes.is_complex(wanted) and dtypes.kind(wanted) != "b":
        warn_user(
            f"astype of complex numbers to {wanted} drops their imaginary parts; take x.real first",
            DeprecationWarning,
        )
    out = as_type(x, wanted)
    return out.copy() if copy and out is x else out


def frombuffer(buffer, dtype=float, count=-1, offset=0):
    r"""An array of the bytes of a buffer.

    >>> jnp.frombuffer(b"\x01\x02", dtype=jnp.uint8)
    Array([1, 2], dtype=uint8)
    """
    return array(np.frombuffer(buffer, dtypes.canonical(dtype), count, offset))


def fromiter(*args, **kwargs):
    """An array of the numbers of an iterable (as numpy.fromiter).

    >>> jnp.fromiter((k * k for k in range(4)), dtype=int)
    Array([0, 1, 4, 9], dtype=int64)
    """
    return array(np.fromiter(*args, **kwargs))


def fromfile(*args, **kwargs):
    """An array of a file's bytes (as numpy.fromfile).

    >>> import tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "numbers")
    >>> np.arange(3.0).tofile(path)
    >>> jnp.fromfile(path)
    Array([0., 1., 2.], dtype=float64)
    """
    return array(np.fromfile(*args, **kwargs))


def fromstring(string, dtype=float, count=-1, *, sep):
    """An array of the numbers in a text (as numpy.fromstring).

    >>> jnp.fromstring("1 2 4", dtype=int, sep=" ")
    Array([1, 2, 4], dtype=int64)
    """
    return array(np.fromstring(string, dtypes.canonical(dtype), count, sep=sep))


def from_dlpack(x, /, *, device=None, copy=None):
    """An array of another library's.

    >>> jnp.from_dlpack(np.arange(3.0))
    Array([0., 1., 2.], dtype=float64)
    """
    found = received(x)
    return found if issubclass(type(found), Array) else array(found)


def _filled(shape: Any, value: Any, dtype: Any) -> Array:
    return _full(canonical_shape(shape), value, dtypes.canonical(float if dtype is None else dtype))


def zeros(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """Zeros of a shape; of the default float dtype, if none is given.

    ShapeError, a ValueError, for negative sizes; TypeError for sizes that are no integers.

    >>> jnp.zeros(2)
    Array([0., 0.], dtype=float64)
    """
    return _filled(shape, 0, dtype)


def ones(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """Ones of a shape; of the default float dtype, if none is given.

    ShapeError, a ValueError, for negative sizes; TypeError for sizes that are no integers.

    >>> jnp.ones((2, 3))
    Array([[1., 1., 1.],
           [1., 1., 1.]], dtype=float64)
    """
    return _filled(shape, 1, dtype)


def empty(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """Zeros of a shape, as `zeros`: there is no memory without values.

    >>> jnp.empty(2)
    Array([0., 0.], dtype=float64)
    """
    return _filled(shape, 0, dtype)


def full(
    shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None
) -> Array:
    """A value, or an array that is broadcast, everywhere in a shape; of its own dtype, if none is given.

    ShapeError, a ValueError, for a value that does not broadcast to the shape.

    >>> jnp.full(2, 7.0)
    Array([7., 7.], dtype=float64, weak_type=True)
    """
    if dtype is not None and type(fill_value) in PYTHON:
        value: Array = given(constant(fill_value, dtypes.canonical(dtype), weak=False))
    else:
        value = to_array(fill_value, "full")
        value = value if dtype is None else as_type(value, dtypes.canonical(dtype))
    return broadcast_to(value, canonical_shape(shape))


def _like(a: Any, value: Any, dtype: Any, shape: Any) -> Array:
    if not isinstance(a, Array) and hasattr(a, "shape") and hasattr(a, "dtype"):
        own = dtypes.taken(a.dtype) if isinstance(a, np.ndarray) else dtypes.canonical(a.dtype)
        old_shape, old_dtype, weak = tuple(a.shape), own, False
    else:
        a = to_array(a, "zeros_like")
        old_shape, old_dtype, weak = a.shape, a.dtype, bool(a.weak_type) and dtype is None
    new_shape = old_shape if shape is None else canonical_shape(shape)
    new_dtype = old_dtype if dtype is None else dtypes.canonical(dtype)
    known = not isinstance(value, Array)
    x = _full(new_shape, value, new_dtype) if known else as_type(value, new_dtype)
    out = _maybe_weak(x if known else broadcast_to(x, new_shape), weak)
    if new_shape and shape is None and is_placed(a) and type(out) is ConcreteArray:
        return as_placed(out.copy(), a)
    return like(out, a.aval) if isinstance(a, Array) else out


def _maybe_weak(x: Array, weak: bool) -> Array:
    if not weak:
        return x
    if type(x) is ConcreteArray:
        return x.with_weak_type(True)
    return ops.ConvertElementType(x.dtype, True)(x)


def zeros_like(
    a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None
) -> Array:
    """Zeros of the shape and dtype of a, or of those given.

    >>> jnp.zeros_like(jnp.arange(3))
    Array([0, 0, 0], dtype=int64)
    """
    return _like(a, 0, dtype, shape)


def ones_like(
    a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None
) -> Array:
    """Ones of the shape and dtype of a, or of those given.

    >>> jnp.ones_like(jnp.arange(3.0))
    Array([1., 1., 1.], dtype=float64)
    """
    return _like(a, 1, dtype, shape)


def empty_like(
    prototype: Any, dtype: Any = None, shape: Any = None, *, device: Any = None
) -> Array:
    """Zeros of the shape and dtype of a.

    >>> jnp.empty_like(jnp.ones((2, 3))).shape
    (2, 3)
    """
    return _like(prototype, 0, dtype, shape)


def full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    shape: Any = None,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Array:
    """A value everywhere in the shape and dtype of a, or in those given.

    >>> jnp.full_like(jnp.arange(3), 7)
    Array([7, 7, 7], dtype=int64)
    """
    out = _like(a, value := to_array(fill_value, "full_like"), dtype, shape)
    return strong(out) if value.ndim else out


__all__ = [
    "array",
    "asarray",
    "astype",
    "copy",
    "empty",
    "empty_like",
    "from_dlpack",
    "frombuffer",
    "fromfile",
    "fromiter",
    "fromstring",
    "full",
    "full_like",
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
]
