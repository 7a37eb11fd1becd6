"""Names under which kernels find their functions: Numba-CUDA's, or those of its simulator.

The simulator runs each thread as a thread of Python. What it lacks, or does otherwise than a GPU, is
given to the source by functions of NumPy's: casts that wrap, mathematics that gives NaN, bits of floats.
"""

import math
import os
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np


def is_simulated() -> bool:
    """Whether Numba was told, before it was imported, to simulate a GPU."""
    return os.environ.get("NUMBA_ENABLE_CUDASIM", "0") == "1"


@lru_cache
def names() -> dict[str, Any]:
    """What the source of a kernel refers to."""
    import numba
    from numba import cuda

    if not is_simulated():
        from numba.cuda import libdevice

        return {"cuda": cuda, "np": np, "math": math, "numba": numba, "libdevice": libdevice}
    _shuffles()
    return {
        "cuda": cuda,
        "np": _numbers(),
        "math": _mathematics(),
        "numba": numba,
        "libdevice": _libdevice(),
        "range": _range,
    }


def _shuffles() -> None:
    """Give the simulator the exchange between lanes, for blocks whose threads all take part."""
    import threading

    from numba.cuda.simulator.kernelapi import FakeCUDAModule

    def shfl_xor_sync(self: Any, mask: int, value: Any, distance: int) -> Any:
        thread: Any = threading.current_thread()
        seen = thread._manager.__dict__.setdefault("exchanged", {})
        mine = thread.threadIdx.x
        seen[mine] = value
        thread.syncthreads()
        found = seen[mine ^ distance]
        thread.syncthreads()
        return found

    def syncwarp(self: Any, mask: int) -> None:
        thread: Any = threading.current_thread()
        thread.syncthreads()  # those of other warps wait, too, but for those that have ended

    FakeCUDAModule.shfl_xor_sync = shfl_xor_sync
    FakeCUDAModule.syncwarp = syncwarp


def _range(*given: Any) -> range:
    return range(*map(int, given))


def _integer(name: str) -> Any:
    kind = np.dtype(name).type
    width, signed = 8 * np.dtype(name).itemsize, name[0] == "i"
    mask, top = (1 << width) - 1, 1 << (width - 1)

    def cast(x: Any) -> Any:
        value = int(x) & mask
        return kind(value - (1 << width) if signed and value >= top else value)

    return cast


def _numbers() -> SimpleNamespace:
    found: dict[str, Any] = {n: getattr(np, n) for n in ("nan", "inf", "conj")}
    for n in ("bool_", "float32", "float64", "complex64", "complex128"):
        found[n] = getattr(np, n)
    for width in (8, 16, 32, 64):
        for prefix in ("int", "uint"):
            found[f"{prefix}{width}"] = _integer(f"{prefix}{width}")
    return SimpleNamespace(**found)


def _quietly(f: Any) -> Any:
    def run(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return f(*args)

    return run


def _mathematics() -> SimpleNamespace:
    from scipy import special

    names = "sqrt exp expm1 log log1p log2 log10 sin cos tan sinh cosh tanh isfinite fmod".split()
    found = {n: getattr(np, n) for n in names}
    for short, long in (("asin", "arcsin"), ("acos", "arccos"), ("atan", "arctan")):
        found |= {short: getattr(np, long), short + "h": getattr(np, long + "h")}
    found |= {"atan2": np.arctan2, "pow": np.power, "erf": special.erf, "erfc": special.erfc}
    return SimpleNamespace(**{n: _quietly(f) for n, f in found.items()})


def _libdevice() -> SimpleNamespace:
    from fnx.lowering.numba.operations import fma

    found: dict[str, Any] = {}
    table = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint, "fma": fma}
    table |= {"dmul_rn": np.multiply, "fmul_rn": np.multiply, "exp2": np.exp2, "cbrt": np.cbrt}
    for name, f in table.items():
        found[name] = found[name + "f"] = _quietly(f)
    found["popcll"] = lambda x: (int(x) & (2**64 - 1)).bit_count()
    found["clzll"] = lambda x: 64 - (int(x) & (2**64 - 1)).bit_length()
    for name, source, target in (
        ("double_as_longlong", np.float64, np.int64),
        ("longlong_as_double", np.int64, np.float64),
        ("float_as_int", np.float32, np.int32),
        ("int_as_float", np.int32, np.float32),
    ):
        found[name] = lambda x, s=source, t=target: s(x).view(t)
    return SimpleNamespace(**found)
