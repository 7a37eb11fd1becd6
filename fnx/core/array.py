"""Arrays: the public type `Array`, and the concrete one, an immutable NumPy array.

Operators and methods are written with primitives, which live above the core: `fnx.numpy` installs
them with `install`, once, when it is imported.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any

import numpy as np

from fnx.core import dtypes, lazy_imports
from fnx.core.aval import ShapedArray
from fnx.core.buffer import Buffer, Deleted, on_host
from fnx.core.config import default_float32, rank_0_consts
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.core.source import brief


class DLDeviceType(IntEnum):
    """DLPack's kinds of devices that arrays are on."""

    kDLCPU = 1
    kDLCUDA = 2


class Array:
    """An immutable array of `shape` and `dtype`: concrete numbers, or a tracer that stands for them.

    >>> x = jnp.zeros(3)
    >>> x.at[1].set(5.0), x
    (Array([0., 5., 0.], dtype=float64), Array([0., 0., 0.], dtype=float64))
    """

    __slots__ = ()
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]  # == is elementwise

    aval: ShapedArray
    weak_type: Any
    _repr_html_ = lazy_imports.repr_html

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype:
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return self.aval.size

    @property
    def nbytes(self) -> int:
        return self.aval.nbytes

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    def __repr__(self) -> str:
        # Kinds of arrays have their own; IPython looks whether the class that a value says it has has one.
        return f"{type(self).__name__}({self.aval.str_short()})"


_withheld: set[str] = set()


def install(members: Mapping[str, Callable | property]) -> None:
    """Give the operators and methods to all arrays."""
    for name, member in members.items():
        if name not in _withheld:
            setattr(Array, name, member)


def withhold(names: Iterable[str]) -> None:
    """Let arrays be without members, which may be installed already or not yet."""
    for name in names:
        _withheld.add(name)
        if name in vars(Array):
            delattr(Array, name)


def kind_of(x: Any) -> str:
    """What messages call the type of a value; arrays of all kinds are arrays."""
    return f"an array of shape {x.shape}" if isinstance(x, Array) else type(x).__name__


def no_truth(x: Array) -> InvalidValue:
    """What the truth of an array of no or several elements ends in."""
    return InvalidValue(
        f"the truth of an array of shape {x.shape} and dtype {x.dtype}; expected one element. Use jnp.any "
        "or jnp.all, or jnp.where for a choice an element"
    )


class ConcreteArray(Array):
    """Numbers that nobody writes to, in a C-contiguous NumPy array, or in a `Buffer` elsewhere."""

    # `written` is there, and True, where the numbers stand in the program's text, `x * 2.0` say.
    __slots__ = (
        "__weakref__",
        "_value",
        "mapped",
        "placed",
        "put_on",
        "python_number",
        "weak_type",
        "written",
    )
    written: bool
    python_number: Any  # of which a transformation made this array, see `boxed`
    mapped: Any  # the sharding of what pmap gave, which nothing is computed by
    placed: Any  # the sharding that was asked for, if one was
    put_on: Any  # the device that it was put on, and where that was asked for

    def __init__(self, value: np.ndarray, weak_type: bool = False):
        self._value = value
        self.weak_type = weak_type

    @property
    def aval(self) -> ShapedArray:  # type: ignore[override]
        v = self._value
        return ShapedArray(v.shape, v.dtype, self.weak_type)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._value.shape

    @property
    def dtype(self) -> np.dtype:
        return self._value.dtype

    @property
    def ndim(self) -> int:
        return self._value.ndim

    @property
    def size(self) -> int:
        return self._value.size

    @property
    def nbytes(self) -> int:
        return self._value.nbytes

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        value = self._value
        if copy or (dtype is not None and np.dtype(dtype) != value.dtype):
            return np.array(value, dtype=dtype)
        return expose(value)

    def __reduce__(self) -> tuple:
        return _unpickle, (np.asarray(self._value), self.weak_type)

    def with_weak_type(self, weak_type: bool) -> "ConcreteArray":
        """The same numbers, weakly typed or not."""
        out = as_placed(ConcreteArray(self._value, weak_type), self)
        return as_written(out) if hasattr(self, "written") else out

    def delete(self) -> None:
        """Drop the numbers; who reads them afterwards gets an error."""
        if not self.is_deleted():
            self._value = Deleted(self._value)  # type: ignore[assignment]

    def is_deleted(self) -> bool:
        """Whether the array was deleted, or donated to a function that took its memory."""
        return type(self._value) is Deleted

    def unsafe_buffer_pointer(self) -> int:
        """The address of the numbers."""
        return self._value.ctypes.data

    def copy(self, order: Any = None) -> "ConcreteArray":
        """The same numbers in an array of their own: it outlives the deletion or donation of this one."""
        if type(self._value) is Deleted:
            np.asarray(self._value)  # raises
        return as_placed(ConcreteArray(self._value, self.weak_type), self)

    def __copy__(self) -> "ConcreteArray":
        return self.copy()

    def __deepcopy__(self, memo: dict) -> "ConcreteArray":
        return self.copy()

    def __bool__(self) -> bool:
        try:
            return bool(self._value)
        except ValueError:
            raise no_truth(self) from None

    def __int__(self) -> int:
        return self._number(int)

    def __float__(self) -> float:
        return self._number(float)

    def __complex__(self) -> complex:
        return self._number(complex)

    def _number(self, kind: Any) -> Any:
        try:
            return kind(self._value)
        except TypeError:
            raise TypeMismatch(
                f"{kind.__name__}() of an array of shape {self.shape} and dtype {self.dtype}; expected "
                "one number, in an array of rank 0"
            ) from None

    def __index__(self) -> int:
        try:
            return self._value.__index__()
        except TypeError:
            raise TypeMismatch(
                f"an array of shape {self.shape} and dtype {self.dtype} as an integer (an index, an axis, "
                "a length); expected one integer, in an array of rank 0"
            ) from None

    def __format__(self, spec: str) -> str:
        return format(self._value[()] if self._value.ndim == 0 else self._value, spec)

    def __len__(self) -> int:
        if not self._value.ndim:
            raise TypeMismatch("len() of an array of rank 0")
        return len(self._value)

    def __str__(self) -> str:
        return repr(self) if self.is_deleted() else str(self._value)

    def __repr__(self) -> str:
        if self.is_deleted():
            return f"Array(<deleted>, shape={self.shape}, dtype={self.dtype})"
        if isinstance(self._value, Buffer) and (shown := self._value.shown()) is not None:
            return shown
        prefix = "Array("
        body = np.array2string(self._value, prefix=prefix, separator=", ", threshold=1000)
        weak = ", weak_type=True" if self.weak_type else ""
        name = dtypes.NAME.get(self._value.dtype, str(self._value.dtype))
        shape = f", shape={self.shape}" if self._value.size == 0 and self.shape != (0,) else ""
        return f"{prefix}{body}{shape}, dtype={name}{weak})"

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: Any = None,
    ) -> Any:
        value: Any = self._value
        there = isinstance(value, Buffer) and value.device != "cpu"
        if there and (dl_device is None or tuple(dl_device) == value.__dlpack_device__()):
            return value.__dlpack__(stream=stream, max_version=max_version)
        return value.view().__dlpack__(
            stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple["DLDeviceType", int]:
        kind, number = self._value.__dlpack_device__()
        return DLDeviceType(kind), number

    @property
    def __cuda_array_interface__(self) -> dict:
        """Of an array on a GPU: where it lies, for CuPy, Numba and torch."""
        if not isinstance(self._value, Buffer) or self._value.device == "cpu":
            raise AttributeError("__cuda_array_interface__")
        return self._value.__cuda_array_interface__

    def __buffer__(self, flags: int) -> memoryview:
        """For memoryview(x), which asks objects of Python since its version 3.12."""
        return memoryview(expose(self._value))  # type: ignore[arg-type]  # known to NumPy since 3.12

    @property
    def __array_interface__(self) -> dict:
        name = dtypes.NAME.get(self._value.dtype)
        if name in dtypes.FOREIGN:
            raise AttributeError(f"the array interface has no word for {name}")
        return expose(self._value).__array_interface__


some_placed: list[bool] = []  # not empty once an array lies on several devices, or on a GPU
_to_see: list[Callable[[], None]] = []


def when_placed(hook: Callable[[], None]) -> None:
    """Run `hook` before the first array lies elsewhere, for whom shorter ways are none."""
    if some_placed:
        hook()
    else:
        _to_see.append(hook)


def see_placed() -> None:
    """From now on arrays may lie on several devices, or on one that computes by itself."""
    if not some_placed:
        some_placed.append(True)
        for hook in _to_see:
            hook()


def is_placed(x: Any) -> bool:
    """Whether an array lies on several devices."""
    place = getattr(x, "placed", None)
    return place is not None and place.mesh.size > 1


def is_afar(x: Any) -> bool:
    """Whether operations on an array are computed by the device that it lies on."""
    value = getattr(x, "_value", None)
    return type(value) is not np.ndarray and isinstance(value, Buffer) and value.computes


def any_placed(xs: Iterable[Any]) -> bool:
    """Whether any of these, or of what tuples among them hold, lies elsewhere than in the host's memory."""
    for x in xs:  # asked before each operation
        if type(x) is ConcreteArray:
            place = getattr(x, "placed", None)
            if place is not None and place.mesh.size > 1 or is_afar(x):
                return True
        elif type(x) is tuple and any_placed(x):
            return True
    return False


def unless_placed(way: Callable) -> Callable:
    """A way to compute at once that is none, and gives None, for arrays that lie elsewhere."""
    return lambda *args: None if any_placed(args) else way(*args)


def as_placed(new: "ConcreteArray", old: Any) -> "ConcreteArray":
    """A new array, which lies as another does."""
    place = getattr(old, "placed", None)
    if place is not None:
        new.placed = place
    return new


def expose(value: np.ndarray | Buffer) -> np.ndarray:
    """The array for eyes outside fnx: without a copy, but read-only."""
    numbers: np.ndarray = on_host(value)
    if numbers.flags.writeable:
        numbers.setflags(write=False)
    return numbers


def _unpickle(value: np.ndarray, weak_type: bool) -> ConcreteArray:
    lazy_imports.bring(__name__)  # what arrays have their operators from
    if default_float32.value:  # as NumPy's arrays are taken
        value = as_array(value)._value  # type: ignore[attr-defined]
    return ConcreteArray(value, weak_type)


def as_written(x: ConcreteArray) -> ConcreteArray:
    """A new array of rank 0 that stands for a number in the program's text."""
    x.written = True
    return x


_SCALARS = (bool, int, float, complex)


def boxed(x: Any) -> Array:
    """An Array that remembers of which Python number a transformation made it, if of one."""
    out = as_array(x)
    if type(x) in _SCALARS:
        out.python_number = x  # type: ignore[attr-defined]
    return out


def unboxed(x: Any) -> Any:
    """The Python number that was `boxed`; all else as it is."""
    return getattr(x, "python_number", x) if type(x) is ConcreteArray else x


# Types of libraries whose values hold arrays that change: they have `__jax_array__`, and are none.
objects: set[type] = set()


def is_array_like(x: Any) -> bool:
    """What functions take for an array: arrays, NumPy's, Python scalars, `__jax_array__`."""
    return issubclass(type(x), (Array, np.ndarray, np.generic, *_SCALARS)) or (
        hasattr(x, "__jax_array__") and type(x) not in objects
    )


def contiguous(value: Any, dtype: np.dtype | None = None) -> np.ndarray:
    """A C-contiguous, aligned array in native byte order that no one else writes to."""
    out = np.asarray(value, dtype=dtype, order="C")
    if out.dtype.byteorder not in "=|" or not out.flags.aligned:
        out = np.array(out, dtype=out.dtype.newbyteorder("="), order="C")
    return out


_LARGE = 1 << 17  # bytes
_LINE = 64  # bytes of a cache line, and of the widest vectors


def _copied(x: Any, dtype: np.dtype) -> np.ndarray:
    """A copy; of a large array one that begins with a cache line, which compiled code reads faster.

    Vectors that lie across two lines made loops over three large arrays take a tenth longer.
    """
    if x.nbytes < _LARGE or dtype.hasobject:
        return np.array(x, dtype=dtype, order="C")
    room = np.empty(x.size * dtype.itemsize + _LINE, np.uint8)
    start = -room.ctypes.data % _LINE
    made = room[start : start + x.size * dtype.itemsize].view(dtype).reshape(x.shape)
    made[...] = x
    return made


# What makes a NumPy array of a value of some other type, where a program has said so.
conversions: dict[type, Callable[[Any], Any]] = {np.ndarray: np.asarray}


def as_array(x: Any) -> Array:
    """An Array from what is like one; Python scalars become weakly typed arrays of rank 0.

    NumPy arrays are copied, since their owner may write to them.
    """
    if issubclass(type(x), Array):  # unlike isinstance, no for keys
        return x
    if isinstance(x, _SCALARS) and not isinstance(x, np.generic):
        dtype = dtypes.scalar_dtype(x)
        if dtype.kind == "u":  # as in JAX, an array of a number is one of the default dtype
            raise OverflowError(
                f"Python integer {x} does not fit in int64; give it a dtype: uint64"
            )
        out = ConcreteArray(np.asarray(x, dtype), type(x) is not bool)
        return as_written(out) if rank_0_consts.get() else out
    if isinstance(x, (np.ndarray, np.generic)):
        if type(x) is not np.ndarray and hasattr(x, "filled"):
            raise InvalidValue("masked arrays are no arrays of fnx; expected x.filled(value)")
        dtype = dtypes.taken(x.dtype)
        out = ConcreteArray(contiguous(_copied(x, dtype)))
        return as_written(out) if rank_0_consts.get() else out
    if hasattr(x, "__jax_array__"):
        return as_array(x.__jax_array__())
    if type(x) in conversions:
        return as_array(conversions[type(x)](x))
    raise TypeMismatch(
        f"a value of type {type(x).__name__} is not an array: {brief(x, 80)}; expected an array, a NumPy "
        "array or a Python number. Pass other objects as static arguments, or convert them first."
    )
