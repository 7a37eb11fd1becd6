"""fnx's native call wrapper, loaded into this process and bound to CPython's and NumPy's C APIs."""

import ctypes
import os
import sys
import threading
from functools import lru_cache
from typing import Any

import numpy as np

from fnx.core.array import ConcreteArray
from fnx.core.threads import at_exit
from fnx.lowering.cpu.jit import code_cache
from fnx.lowering.cpu.jit.session import once

from . import abi

_api = ctypes.pythonapi
_METH_O = 8


def _text() -> str:
    from . import call_wrapper

    return call_wrapper.text()


class _MethodDef(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("method", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class Wrapper:
    """The loaded wrapper: makes builtin functions that call programs."""

    def __init__(self) -> None:
        self.code = code_cache.code(_text, abi.EXPORTS, _c_api(), kind="glue", name="wrapper")
        code_cache.keep_forever(self.code.keep)  # capsules call it until the very end
        self.address = self.code.addresses
        self._definition = _MethodDef(b"call", self.address["fnx_call"], _METH_O, None)
        self._new = ctypes.PYFUNCTYPE(
            ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
        )(("PyCFunction_NewEx", _api))
        self._main_thread = self._cell("fnx_main_thread")
        self._note_main_thread()
        os.register_at_fork(after_in_child=self._note_main_thread)
        at_exit.watchers.append(lambda: setattr(self._cell("fnx_exiting"), "value", 1))
        self._cell("fnx_limit").value = memory_limit()
        code_cache.keep_forever(self)

    def _cell(self, name: str, kind: Any = ctypes.c_int64) -> Any:
        return kind.from_address(self.address[name])

    def _note_main_thread(self) -> None:
        self._main_thread.value = threading.main_thread().ident or 0

    def function(self, plan: np.ndarray, *keep: Any) -> Any:
        """A builtin function that runs a plan; it keeps the plan and what the plan points to."""
        return self._new(ctypes.addressof(self._definition), (plan, *keep), None)

    def trim(self) -> None:
        """Give memory that waits for its next use back to the system."""
        ctypes.PYFUNCTYPE(None)(self.address["fnx_trim"])()

    def held(self) -> tuple[int, int]:
        """Number and bytes of the blocks that wait for their next use."""
        pair = self._cell("fnx_held", ctypes.c_int64 * 2)
        return pair[0], pair[1]


def memory_limit() -> int:
    """Bytes of freed arrays that are kept for later ones: an eighth of the memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8


def get() -> Wrapper | None:
    """The wrapper, or None where objects are laid out in another way (then ctypes does its work)."""
    return loaded()


@once
def loaded() -> Wrapper | None:
    """The same, made when it is first asked for."""
    return Wrapper() if _layout_is_known() else None


def _layout_is_known() -> bool:
    """Whether the offsets of `wrapper` are those of this interpreter and this NumPy."""
    if sys.implementation.name != "cpython" or not sys.platform.startswith("linux"):
        return False
    # Builds without the GIL, and those that count references for debugging.
    if "t" in sys.abiflags or hasattr(sys, "getobjects"):
        return False
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    array, leaf = np.arange(6.0).reshape(2, 3), object()
    shape = ctypes.cast(_word(array, abi.DIMENSIONS), ctypes.POINTER(ctypes.c_int64))
    items, number = [leaf], 0.1
    return (
        _word(array, abi.TYPE) == id(np.ndarray)
        and _word(array, abi.DATA) == array.ctypes.data
        and _word(array, abi.NDIM) & 0xFFFFFFFF == 2
        and shape[:2] == [2, 3]
        and _word(array, abi.DESCRIPTOR) == id(array.dtype)
        and _word(array, abi.FLAGS) & 0xFFFFFFFF == array.flags.num
        and _word((leaf, leaf), abi.LENGTH) == 2
        and _word((leaf,), abi.TUPLE_ITEMS) == id(leaf)
        and ctypes.c_int64.from_address(_word(items, abi.ITEMS)).value == id(leaf)
        and ctypes.c_double.from_address(id(number) + abi.FLOAT).value == number
        and ctypes.c_int8.from_address(id(np.int8(-3)) + abi.FLOAT).value == -3
        and ctypes.c_double.from_address(id(np.complex128(2j)) + abi.FLOAT + 8).value == 2
        and _word(array.dtype, abi.SCALAR_TYPE) == id(np.float64)
        and ctypes.string_at(id(array.dtype) + abi.BYTE_ORDER, 1) == b"="
        and _numpy_api()[2] == id(np.ndarray)
    )


def _word(thing: Any, offset: int) -> int:
    return ctypes.c_int64.from_address(id(thing) + offset).value


def _numpy_api() -> Any:
    """NumPy's table of C functions."""
    from numpy._core import _multiarray_umath

    get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", _api)
    )
    address = get_pointer(_multiarray_umath._ARRAY_API, None)
    return ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))


def _c_api() -> dict[str, int]:
    """Addresses of all that the wrapper uses of CPython and NumPy."""
    table = _numpy_api()
    found = {name: table[k] for name, k in abi.NUMPY.items()}
    found |= {name: _address(getattr(_api, name)) for name in abi.PYTHON}
    objects = {"PyArray_Type": np.ndarray, "PyList_Type": list, "PyTuple_Type": tuple}
    objects |= {"PyFloat_Type": float, "PyLong_Type": int, "PyBool_Type": bool}
    objects |= {"_Py_NotImplementedStruct": NotImplemented, "_Py_TrueStruct": True}
    return found | {name: id(thing) for name, thing in objects.items()}


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value


@lru_cache(maxsize=1)
def slots() -> tuple[int, int]:
    """Offsets of `_value` and `weak_type` in fnx's array objects, found by looking for marks."""
    mark, flag = np.zeros(1), object()
    array = ConcreteArray(mark)
    array.weak_type = flag
    words = [_word(array, offset) for offset in range(0, ConcreteArray.__basicsize__, 8)]
    return 8 * words.index(id(mark)), 8 * words.index(id(flag))
