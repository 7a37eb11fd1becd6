"""What printed Numba programs import: calls of the host, of native routines, and whether to stop."""

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.lowering.cpu.loader.progress import Record

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


def special(function: Any, part: int, args: tuple) -> Any:
    """A function of scipy.special, or one of its results."""
    found = function(*args)
    return found[part] if isinstance(found, tuple) else found


def calling(call: Any) -> Callable:
    """What plain Python calls for an entry of `calls`."""
    if isinstance(call, tuple):  # what is told, or shares loops out
        return Record(call[1]) if call[0] == "progress" else None  # type: ignore[return-value]
    if isinstance(call, str):
        from scipy import special as functions

        return getattr(functions, call.removeprefix("special:").partition("/")[0])
    return _python(call)


def _python(call: Any) -> Callable:
    """What plain Python calls for a `kernel.CallHost`: with array and index of inputs, then outputs."""
    from fnx.core import dtypes

    def view(place: tuple[np.ndarray, int], like: tuple) -> np.ndarray:
        (array, index), (_, shape, dtype) = place, like
        part = array[index : index + math.prod(shape)]
        return part.view(dtypes.canonical(dtype)).reshape(shape)

    def run(places: tuple) -> None:
        pairs = zip(places[::2], places[1::2], strict=True)
        views = [view(*x) for x in zip(pairs, (*call.inputs, *call.outputs), strict=True)]
        count = len(call.inputs)
        results = call.callback(*[x.copy() for x in views[:count]])
        if not isinstance(results, tuple | list):
            results = () if results is None and not call.outputs else (results,)
        for x, value in zip(views[count:], results, strict=True):
            x[...] = np.asarray(value)

    return run


def copy_bytes(places: tuple, count: int) -> None:
    """Copy so many bytes from (array, index) to (array, index): `places` are to, where, of, where."""
    to, i, of, j = places
    to[i:].view(np.uint8)[:count] = of[j:].view(np.uint8)[:count]


def host(call: Any, places: tuple) -> bool:
    """Call Python; whether an exception ends the program, which plain Python raises at once."""
    call(places)
    return False


def tell(record: Any, done: int, total: int, state: int) -> None:
    """Write to the record of a loop how far it is (lowering/cpu/loader/progress.py)."""
    record.tell(done, total, state)


def shared(run: Any, count: int, least: int) -> range:
    """The iterations of a loop that threads may share, at least so many at a time."""
    return range(count)


def share(run: Any, task: Callable, count: int, least: int, values: tuple) -> None:
    """What Numba gets for a loop over `shared`: task(first, end, *values) until all are done."""
    task(0, count, *values)


def stop(calls: Any, work: int) -> bool:
    """Whether Python has a signal that ends the program; plain Python sees to it by itself."""
    return False
