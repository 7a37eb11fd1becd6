"""The formats of numbers that dtypes stand for: kinds, parts, bytes; the numbers that they hold."""

import numpy as np

from fnx.core.dtypes import COMPUTED, of_name
from fnx.core.dtypes import byte as byte

REAL = ("bool", *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)))
REAL += ("float16", "bfloat16", "float32", "float64")
PART = {"complex64": "float32", "complex128": "float64"}
KIND = {d: "u" if d[0] == "u" else "i" if d[0] == "i" else "f" for d in REAL}
KIND |= {"bool": "b", "float16": "h", "bfloat16": "h", "complex64": "c", "complex128": "c"}
BYTES = {"bool": 1, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
KIND |= dict.fromkeys(COMPUTED, "s")  # kept as their byte, and computed as another dtype
BYTES |= dict.fromkeys(COMPUTED, 1)
BYTES |= {f"{u}int{n}": n // 8 for n in (8, 16, 32, 64) for u in ("", "u")}


def itemsize(dtype: str) -> int:
    """Bytes of an element in memory."""
    return 2 * BYTES[PART[dtype]] if dtype in PART else BYTES[dtype]


def rounded(value: float, dtype: str) -> float:
    """The number of a format nearest to `value`."""
    with np.errstate(all="ignore"):
        return float(np.asarray(value).astype(of_name(dtype)))


def wrapped(value: int, dtype: str) -> int:
    """An integer as the signed number of its bits."""
    width = 8 * BYTES[dtype]
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value
