"""DLPack's capsules: the structure that libraries hand each other, made and read with ctypes."""

import ctypes
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.errors import InvalidValue

CUDA = 2
ON_CUDA = (CUDA, 13)  # its own memory, and managed memory
_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "complex": 5, "bool": 6}
_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


def _function(name: str, result: Any, *arguments: Any) -> Any:
    kind = ctypes.PYFUNCTYPE(result, *arguments)
    return kind((name, ctypes.pythonapi))


_new = _function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Deleter)
_get = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_rename = _function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_is_named = _function("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
# Of a capsule that is being freed only the address may be used.
_dying_is_named = _function("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)


# --- given away -----------------------------------------------------------------------------------

_given: dict[int, tuple] = {}  # what lives until others have let go of it, by address


@_Deleter
def _let_go(address: int) -> None:
    _given.pop(address, None)


@_Deleter
def _capsule_ends(capsule: int) -> None:
    """Nobody has taken it, if it has its first name yet."""
    if _dying_is_named(capsule, _PLAIN):
        for address in [a for a, held in _given.items() if held[-1] == capsule]:
            del _given[address]


def capsule_of(buffer: Any, address: int) -> Any:
    """A capsule of an array on the first GPU, which keeps it alive."""
    name = dtypes.NAME[buffer.dtype]
    kind = name.rstrip("0123456789")
    if kind not in _CODES or name in dtypes.COMPUTED:
        raise InvalidValue(f"DLPack has no word for arrays of {name}; view it as uint8")
    shape = (ctypes.c_int64 * max(buffer.ndim, 1))(*buffer.shape)
    made = _Managed()
    made.tensor.data, made.tensor.device_type, made.tensor.device_id = address, CUDA, 0
    made.tensor.ndim, made.tensor.shape = buffer.ndim, shape
    made.tensor.code, made.tensor.lanes = _CODES[kind], 1
    made.tensor.bits = 8 * buffer.dtype.itemsize
    made.deleter = _let_go
    place = ctypes.addressof(made)
    capsule = _new(place, _PLAIN, _capsule_ends)
    _given[place] = made, shape, buffer, id(capsule)
    return capsule


# --- taken ----------------------------------------------------------------------------------------


class Capsule:
    """An array in a capsule of another library's, which is ours from now on until this goes."""

    def __init__(self, capsule: Any):
        versioned = bool(_is_named(capsule, _VERSIONED))
        name = _VERSIONED if versioned else _PLAIN
        if not versioned and not _is_named(capsule, _PLAIN):
            raise InvalidValue("a DLPack capsule that was used before; expected a new one")
        self._place = _get(capsule, name)
        kind = _ManagedVersioned if versioned else _Managed
        self._managed = kind.from_address(self._place)
        tensor = self._managed.tensor
        self.address = (tensor.data or 0) + tensor.byte_offset
        self.shape = tuple(tensor.shape[: tensor.ndim])
        self.strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
        self.dtype = _dtype(tensor)
        self._name = b"used_" + name
        _rename(capsule, self._name)  # its own end is then no concern of the capsule's

    def __del__(self) -> None:
        if hasattr(self, "_name") and self._managed.deleter:
            self._managed.deleter(self._place)


def _dtype(tensor: _Tensor) -> np.dtype:
    kinds = {code: name for name, code in _CODES.items()}
    kind = kinds.get(tensor.code)
    if kind is None or tensor.lanes != 1:
        raise InvalidValue(
            f"a DLPack array of type code {tensor.code}, {tensor.bits} bits and {tensor.lanes} lanes; "
            "expected numbers that NumPy has"
        )
    name = "bool" if kind == "bool" else f"{kind}{tensor.bits}"
    return dtypes.canonical(name)
