"""The methods and properties of arrays, written with NumPy's functions."""

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray, is_array_like
from fnx.core.buffer import Buffer
from fnx.core.errors import ConcretizationTypeError, InvalidValue, TypeMismatch, entrance
from fnx.core.interpreter import Tracer
from fnx.core.source import brief
from fnx.numpy.algebra import products
from fnx.numpy.arrays import creation, indexing, protocols
from fnx.numpy.arrays.public_calls import retelling
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.operators import operand, operators
from fnx.numpy.reductions import averages, cumulative, reduce
from fnx.numpy.structure import diagonals, joining, nonzero, selection, shapes, sorting, tiling
from fnx.numpy.structure.at import At
from fnx.ops.elementwise import arithmetic as ops


class CpuDevice:
    """The processor that the arrays are on; under several numbers where a program wants several.

    >>> jnp.ones(2).device
    CpuDevice(id=0)
    """

    platform = device_kind = "cpu"

    def __init__(self, number: int = 0, process_index: int = 0):
        self.id, self.process_index = number, process_index

    host_id = property(lambda self: self.process_index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CpuDevice) and self.id == other.id

    def __hash__(self) -> int:
        return hash((CpuDevice, self.id))

    def __repr__(self) -> str:
        return f"CpuDevice(id={self.id})"


DEVICE = CpuDevice()


def _device(self):
    """The device that the numbers are on; the sharding, if they lie along a mesh."""
    value = self._value if type(self) is ConcreteArray else None
    place = getattr(self, "placed", None)
    if hasattr(place, "spec"):
        return place
    return (value.place if isinstance(value, Buffer) else None) or DEVICE


def _block_until_ready(self):
    """The array itself, when it is computed: a GPU's comes later than the call returns."""
    if type(self) is ConcreteArray and isinstance(self._value, Buffer):
        self._value.wait()
    return self


def _reshape(self, *args, order="C", shape=None, copy=None, out_sharding=None):
    """The elements in another shape: x.reshape(2, 3) or x.reshape((2, 3)); x.reshape() of one is ()."""
    del copy, out_sharding
    new = args[0] if len(args) == 1 else args
    if not args:
        if shape is None and self.aval.size != 1:
            raise TypeMismatch("reshape needs a shape: x.reshape(2, 3) or x.reshape((2, 3))")
        new = () if shape is None else shape
    elif shape is not None:
        raise TypeMismatch(f"reshape got the shapes {new} and {shape}; expected one")
    return shapes.reshape(self, new, order)


def _transpose(self, *axes):
    """Axes in another order: x.transpose(1, 0) or x.transpose((1, 0))."""
    if not axes or axes[0] is None:
        return shapes.transpose(self)
    return shapes.transpose(self, axes[0] if np.ndim(axes[0]) else axes)


def _astype(self, dtype=None, copy=False, device=None):
    """The array in another dtype."""
    return creation.astype(self, dtype, copy=copy)


def _view(self, dtype=None, type=None):
    """The same bytes read as another dtype."""
    if dtype is None:
        return self
    wanted = dtypes.canonical(dtype)
    if wanted == self.dtype:
        return self
    if self.dtype == dtypes.bool_:  # its bytes are 0 and 1
        return _view(creation.astype(self, np.uint8), wanted)
    if wanted == dtypes.bool_:
        return creation.astype(_view(self, np.uint8), wanted)
    old, new = dtypes.bits(self.dtype), dtypes.bits(wanted)
    if min(old, new) < 8 < max(old, new) and "c" in (self.dtype.kind, wanted.kind):
        return _view(_view(self, np.uint8), wanted)
    if old == new:
        return ops.BitcastConvertType(wanted)(self)
    if not self.ndim or self.shape[-1] * old % new:
        raise InvalidValue(
            f"view of {self.dtype}, shape {self.shape}, as {wanted}: sizes do not fit"
        )
    if old > new:
        out = ops.BitcastConvertType(wanted)(self)
        return shapes.reshape(out, (*self.shape[:-1], -1))
    return ops.BitcastConvertType(wanted)(shapes.reshape(self, (*self.shape[:-1], -1, new // old)))


def _byteswap(self):
    """The same with the bytes of each number in reverse."""
    size = self.dtype.itemsize
    if dtypes.is_complex(self.dtype):
        return ops.complex_(_byteswap(ops.real(self)), _byteswap(ops.imag(self)))
    if size == 1:
        return self
    return ops.BitcastConvertType(self.dtype)(
        tiling.flip(ops.BitcastConvertType(np.dtype("u1"))(self), -1)
    )


def _numbers(self, use: str) -> np.ndarray:
    """The NumPy array; a traced one raises what int() and float() of it do."""
    if isinstance(self, Tracer):
        self = self._concrete(ConcretizationTypeError, use)
    return np.asarray(self)


def _item(self, *args):
    """One element as a Python number."""
    return _numbers(self, "item()").item(*args)


@entrance
def _iter(self) -> Iterator[Array]:
    if self.ndim == 0:
        raise TypeMismatch("iteration over an array of rank 0")
    if type(self) is ConcreteArray:
        return (self[k] for k in range(self.shape[0]))
    return iter(joining.unstack(self)) if self.shape[0] else iter(())


@entrance
def _contains(self, value) -> bool:
    if not is_array_like(value):
        raise TypeMismatch(f"{brief(value, 40)} in an array; expected a number to look for")
    return bool(reduce.any(ufuncs.equal(self, value)))


@entrance
def _setitem(self, index, value):
    place = brief(index, 30)
    raise TypeMismatch(
        f"arrays are immutable: x[{place}] = y is not possible. Use x = x.at[{place}].set(y), or .add, "
        ".multiply, .min, .max"
    )


def _round(self, ndigits=None):
    return (
        ufuncs.round(self, ndigits or 0) if ndigits is not None else ufuncs.round(self).astype(int)
    )


def _clip(self, min=None, max=None):
    """Values below min become min, above max become max."""
    return ufuncs.clip(self, min, max)


def _tolist(self):
    """Nested lists of Python numbers."""
    return _numbers(self, "tolist()").tolist()


def _flatten(self, order="C", *, out_sharding=None):
    """The elements in one axis."""
    return shapes.ravel(self, order)


def _cannot(name: str) -> Callable:
    def method(self, *args: Any, **options: Any) -> None:
        raise AttributeError(f"arrays have no method {name}: they are immutable")

    return method


@entrance
def _matmul(self, other):
    other = _factor(other)
    return other if other is NotImplemented else products.matmul(self, other)


def _factor(other: Any) -> Any:
    """The operand of @ as an array; what is no array, and has no operators itself, is refused."""
    if isinstance(
        other, (str, bytes, list, tuple, dict, set, bool, int, float, complex, type(None))
    ):
        raise TypeMismatch(
            f"matmul of an array and a {type(other).__name__}: {brief(other)}; expected an array. Make an "
            "array of it first: jnp.asarray(...), or multiply with *"
        )
    return operand(other)


@entrance
def _rmatmul(self, other):
    other = _factor(other)
    return other if other is NotImplemented else products.matmul(other, self)


def _named_methods() -> dict[str, Callable]:
    of = {
        reduce: "all any argmax argmin max min prod ptp sum",
        averages: "mean std var",
        cumulative: "cumprod cumsum",
        shapes: "ravel squeeze swapaxes",
        selection: "choose take",
        diagonals: "diagonal",
        nonzero: "nonzero",
        tiling: "repeat",
        ufuncs: "conj conjugate round",
        products: "dot trace",
        sorting: "argpartition argsort searchsorted sort",
    }
    return {name: getattr(module, name) for module, names in of.items() for name in names.split()}


def members() -> dict[str, Any]:
    """All operators, methods and properties of arrays."""
    found: dict[str, Any] = {**operators(), **_named_methods(), **protocols.members()}
    found |= {
        "__getitem__": indexing.getitem,
        "__setitem__": _setitem,
        "__iter__": _iter,
        "__contains__": _contains,
        "__matmul__": _matmul,
        "__rmatmul__": _rmatmul,
        "__round__": _round,
        "__complex__": getattr(Array, "__complex__", None)
        or (lambda self: complex(np.asarray(self))),
        "reshape": _reshape,
        "transpose": _transpose,
        "astype": _astype,
        "view": _view,
        "item": _item,
        "tolist": _tolist,
        "byteswap": _byteswap,
        "tobytes": lambda self, order="C": _numbers(self, "tobytes()").tobytes(order),
        "flatten": _flatten,
        "clip": _clip,
        "compress": lambda self, condition, axis=None, **kw: selection.compress(
            condition, self, axis, **kw
        ),
        "copy": lambda self, order=None: self,
        "clone": lambda self: self.copy(),
        "block_until_ready": _block_until_ready,
        "copy_to_host_async": lambda self: None,
        "is_deleted": lambda self: False,
        "is_ready": lambda self: True,
        "on_device_size_in_bytes": lambda self: self.nbytes,
        "unsafe_buffer_pointer": lambda self: np.asarray(self).ctypes.data,
        "at": property(At),
        "T": property(shapes.transpose),
        "mT": property(shapes.matrix_transpose),
        "real": property(ufuncs.real),
        "imag": property(ufuncs.imag),
        "flat": property(lambda self: iter(shapes.ravel(self))),
        "device": property(_device),
        "platform": lambda self: next(iter(self.devices())).platform,
        "committed": property(lambda self: True),
        "strides": property(lambda self: np.asarray(self).strides),
    }
    for name, member in found.items():
        if type(member) is FunctionType and name[0] != "_":
            found[name] = retelling(member, member.__module__)
    for name in ("fill", "put", "setflags", "resize", "itemset", "partition"):
        found[name] = _cannot(name)
    return found


__all__ = ["DEVICE", "members"]
