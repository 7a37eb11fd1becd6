"""Calls of BLAS and LAPACK: arguments by reference, work arrays as long as they ask for."""

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from math import ceil
from typing import Any

import numpy as np

from fnx.core import scalar
from fnx.lowering.cpu.loader import symbols
from fnx.lowering.generate.generation import Generation
from fnx.lowering.ir.kernel import (
    Buffer,
    CallLibrary,
    Ref,
)
from fnx.lowering.routines.batched_matrices import i32

_NUMPY = {"float32": "f4", "float64": "f8", "complex64": "c8", "complex128": "c16", "int32": "i4"}


class Asked:
    """An argument for a work array and the next one, its length: as much as the routine asks for."""

    def __init__(self, dtype: str):
        self.dtype = dtype


def call(
    builder: Generation, symbol: str, args: Sequence[Any], writes: Sequence[Buffer]
) -> CallLibrary:
    """A call of a Fortran routine. Arguments: letters, ints (sizes), expressions, addresses, Asked."""
    spaces = [a for a in args if isinstance(a, Asked)]
    sizes = iter(_query(symbol, args) if spaces else ())
    passed: list[Any] = []
    used = list(writes)
    for a in args:
        if isinstance(a, Asked):
            n = next(sizes)
            buffer = builder.new_buffer(a.dtype, n)
            used.append(buffer)
            passed += [Ref(buffer, scalar.size(0)), i32(n)]
        else:
            passed.append(_argument(a))
    return CallLibrary(symbol, passed, used, by_reference=True, work=_multiplications(symbol, args))


_LEVEL_2 = ("gemv", "symv", "hemv", "trmv", "trsv")


def _multiplications(symbol: str, args: Sequence[Any]) -> int:
    """About how many a routine does, by its sizes; what is done to a matrix, once an order."""
    sizes = sorted({a for a in args if isinstance(a, int)}, reverse=True) or [1]
    large, small = sizes[0], sizes[1] if len(sizes) > 1 and sizes[1] > 1 else sizes[0]
    # Memory makes matrix times vector take as long as ten times the multiplications.
    return max(1, large * small * (8 if symbol.endswith(_LEVEL_2) else small))


def _argument(a: Any) -> Any:
    if isinstance(a, str):
        return scalar.const(ord(a), "int8")
    return i32(a) if isinstance(a, int) else a


def _query(symbol: str, args: Sequence[Any]) -> list[int]:
    """The lengths of work arrays that a routine asks for with these letters and sizes."""
    key = tuple(
        a if isinstance(a, (str, int)) else a.dtype if isinstance(a, Asked) else None for a in args
    )
    return _asked(symbol, key, tuple(k for k, a in enumerate(args) if isinstance(a, Asked)))


@lru_cache(maxsize=4096)
def _asked(symbol: str, key: tuple, spaces: tuple[int, ...]) -> list[int]:
    cells: list[Any] = []
    for k, value in enumerate(key):
        if k in spaces:
            cells += [np.zeros(2, _NUMPY[value]), np.array([-1], np.int32)]
        elif isinstance(value, str):
            cells.append(np.array([ord(value)], np.int8))
        else:
            cells.append(np.array([value or 0, 0, 0, 0], np.int32))
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(cells))
    kind(symbols.resolve(symbol))(*[c.ctypes.data for c in cells])
    found = [c[0].real for c in cells if c.size == 2]
    # A length in single precision may have been rounded down.
    return [max(1, ceil(float(n) * (1 + 1e-6))) if n > 1 << 20 else max(1, int(n)) for n in found]
