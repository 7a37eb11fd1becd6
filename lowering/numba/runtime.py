"""What printed Numba programs import: a fused multiply-add, and calls of native routines."""

import ctypes
import math
from fractions import Fraction
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic, overload


def fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once; exact fractions outside of compiled code."""
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if not exact:
        return a * b + c  # for the sign of the zero
    return _nearest(exact, type(a))


def _nearest(exact: Fraction, kind: type) -> Any:
    """A fraction, rounded to a float type once."""
    try:
        wide = float(exact)
    except OverflowError:
        return kind(math.copysign(math.inf, exact))
    if kind is not np.float32:
        return kind(wide)
    # to odd in double precision, so that the second rounding is right
    if wide != exact and np.float64(wide).view(np.int64) % 2 == 0:
        up = exact > Fraction(wide)
        wide = math.nextafter(wide, math.inf if up else -math.inf)
    return np.float32(wide)


@intrinsic
def _fused(typingctx, a, b, c):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.fma(*args)

    return a(a, a, a), codegen


@overload(fma)
def _fma(a, b, c):  # type: ignore[no-untyped-def]
    if isinstance(a, types.Float) and a == b == c:
        return lambda a, b, c: _fused(a, b, c)  # noqa: PLW0108 (Numba wants a Python function)
    return None


_C_TYPES = {
    "bool": ctypes.c_bool,
    **{f"{u}int{n}": getattr(ctypes, f"c_{u}int{n}") for n in (8, 16, 32, 64) for u in ("", "u")},
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}


def _address(array: np.ndarray, index: int) -> int:
    return array.ctypes.data + int(index) * array.itemsize


def library(symbol: str, by_reference: bool, result: str | None, *args: Any) -> Any:
    """Call a C routine; arguments are (array, index), a symbol, or NumPy scalars."""
    from fnx.lowering.cpu.loader import symbols as routines

    passed, kinds, keep = [], [], []
    for arg in args:
        if isinstance(arg, tuple):
            passed.append(_address(*arg))
        elif isinstance(arg, str):
            address, owner = routines.owned(arg)
            keep.append(owner)
            passed.append(address)
        elif by_reference:
            keep.append(np.array([arg]))
            passed.append(keep[-1].ctypes.data)
        else:
            passed.append(arg.item())
            kinds.append(_C_TYPES[arg.dtype.name])
            continue
        kinds.append(ctypes.c_void_p)
    returned = _C_TYPES[result] if result else None
    value = ctypes.CFUNCTYPE(returned, *kinds)(routines.resolve(symbol))(*passed)
    return np.dtype(result).type(value) if result else None


def special(name: str, part: int, *args: Any) -> Any:
    """A function of scipy.special, or one of its results."""
    from scipy import special as functions

    found = getattr(functions, name)(*args)
    return found[part] if isinstance(found, tuple) else found


def host(callback: Any, inputs: list, outputs: list) -> None:
    """Call Python with copies of its inputs; entries are (array, index, shape, dtype name)."""
    from fnx.core import dtypes

    def view(array: np.ndarray, index: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        part = array[index : index + math.prod(shape)]
        return part.view(dtypes.canonical(dtype)).reshape(shape)

    results = callback(*[view(*x).copy() for x in inputs])
    if not isinstance(results, tuple | list):
        results = (results,)
    for place, value in zip(outputs, results, strict=True):
        view(*place)[...] = np.asarray(value)
