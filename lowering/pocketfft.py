"""PocketFFT, as NumPy ships it: the addresses of the C loops inside numpy.fft's universal functions.

A loop is `void (char **args, intptr *dims, intptr *steps, void *data)` with args = (input, factor,
output), dims = (transforms, length in, length out) and steps in bytes: those from transform to
transform of the three, then from element to element of input and output. It needs no GIL, keeps
plans under a lock of its own, and takes back the GIL only to raise MemoryError.
"""

import ctypes
from functools import lru_cache
from typing import NamedTuple

KINDS = ("fft", "ifft", "rfft_n_even", "rfft_n_odd", "irfft")
_FUNCTIONS, _DATA, _COUNT, _TYPES = 32, 40, 48, 64  # offsets in PyUFuncObject, a public struct
_CODES = {"f": 11, "d": 12, "F": 14, "D": 15}  # NumPy's numbers of float32, ... complex128


class Loop(NamedTuple):
    """A C function and its last argument."""

    address: int
    data: int


@lru_cache(maxsize=1)
def loops() -> dict[tuple[str, str], Loop] | None:
    """The loops by kind and dtype of the input ("float32", ...); None where NumPy has others."""
    try:
        from numpy.fft import _pocketfft_umath as module

        functions = {kind: getattr(module, kind) for kind in KINDS}
    except (ImportError, AttributeError):
        return None
    found = {}
    for kind, ufunc in functions.items():
        for dtype, signature in _signatures(kind).items():
            loop = _loop(ufunc, signature)
            if loop is None:
                return None
            found[kind, dtype] = loop
    return found


def _signatures(kind: str) -> dict[str, str]:
    """How NumPy writes the types of the loops that are wanted, by the dtype of the input."""
    if kind.startswith("rfft"):
        return {"float32": "ff->F", "float64": "dd->D"}
    out = "fd" if kind == "irfft" else "FD"
    return {"complex64": f"Ff->{out[0]}", "complex128": f"Dd->{out[1]}"}


def _loop(ufunc: object, signature: str) -> Loop | None:
    """The loop for these types, if the object is laid out as it should be."""
    types = getattr(ufunc, "types", ())
    if signature not in types:
        return None
    k = types.index(signature)
    at = id(ufunc)
    count = ctypes.c_int.from_address(at + _COUNT).value
    given = [ctypes.c_int.from_address(at + 16 + 4 * j).value for j in range(3)]
    if count != len(types) or given != [2, 1, 3]:
        return None
    codes = ctypes.string_at(_word(at + _TYPES) + 3 * k, 3)
    if list(codes) != [_CODES[c] for c in signature.replace("->", "")]:
        return None
    data = _word(at + _DATA)  # an array, or null
    return Loop(_word(_word(at + _FUNCTIONS) + 8 * k), _word(data + 8 * k) if data else 0)


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value
