"""The C loops inside universal functions, of NumPy and SciPy, for native code to call.

A loop is `void (char **args, intptr *dims, intptr *steps, void *data)`. It needs no GIL; SciPy's take
it only to report an error, if the user has asked for that (scipy.special.seterr).
"""

import ctypes
from functools import cache
from typing import NamedTuple

import numpy as np

from fnx.core.errors import CompileError

_FUNCTIONS, _DATA, _COUNT, _TYPES = 32, 40, 48, 64  # offsets in PyUFuncObject, a public struct
LETTER = {"float32": "f", "float64": "d", "complex64": "F", "complex128": "D"}
_CODES = {"f": 11, "d": 12, "F": 14, "D": 15}  # NumPy's numbers of these dtypes


class Loop(NamedTuple):
    """A C function and its last argument."""

    address: int
    data: int


def loop(ufunc: object, signature: str) -> Loop | None:
    """The loop for these types, "dd->d", if there is one and the object is laid out as expected."""
    types = getattr(ufunc, "types", ())
    if signature not in types:
        return None
    k, n, at = types.index(signature), len(signature) - 2, id(ufunc)
    count = ctypes.c_int.from_address(at + _COUNT).value
    arity = [ctypes.c_int.from_address(at + 16 + 4 * j).value for j in range(3)]
    if count != len(types) or arity != [signature.index("-"), n - signature.index("-"), n]:
        return None
    codes = ctypes.string_at(_word(at + _TYPES) + n * k, n)
    if list(codes) != [_CODES[c] for c in signature.replace("->", "")]:
        return None
    data = _word(at + _DATA)  # an array, or null
    return Loop(_word(_word(at + _FUNCTIONS) + 8 * k), _word(data + 8 * k) if data else 0)


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _special_ufunc(name: str) -> np.ufunc:
    """The universal function itself: scipy.special may show a function around it."""
    from scipy.special import _ufuncs

    for known in (name, "_" + name):
        found = getattr(_ufuncs, known, None)
        if isinstance(found, np.ufunc):
            return found
    raise CompileError(f"scipy.special has no universal function {name!r}")


@cache
def special_types(name: str, given: str) -> str:
    """How SciPy writes the types of a function of scipy.special on operands of types "dd"."""
    for signature in _special_ufunc(name).types:
        if signature.startswith(given + "->"):
            return signature
    raise CompileError(f"scipy.special.{name} has no loop for operands of types {given!r}")


@cache
def _record(name: str, signature: str) -> np.ndarray:
    found = loop(_special_ufunc(name), signature)
    if found is None:
        raise CompileError(f"scipy.special.{name} has no loop for the types {signature!r}")
    return np.array(found, np.uint64)


def special(name: str) -> int:
    """The address of the two words of a `Loop`, for "gammainc/dd->d"; it lives for good."""
    return _record(*name.split("/")).ctypes.data
