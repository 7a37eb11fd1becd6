"""How LLVM writes the types and the numbers of scalar expressions.

In registers a bool is an i1, float16 and bfloat16 are floats that hold a number of the format, and a
complex value is a pair of floats. LLVM's integers have no sign.
"""

import struct
from functools import lru_cache
from typing import Any

import numpy as np

from fnx.lowering.ir.number_formats import KIND, PART, byte, rounded, wrapped

Operand = Any  # the text of a value, or a pair of texts for a complex one

REGISTER = {
    "bool": "i1",
    **{f"{u}int{n}": f"i{n}" for n in (8, 16, 32, 64) for u in ("", "u")},
    "float16": "float",
    "bfloat16": "float",
    "float32": "float",
    "float64": "double",
    **{name: "i8" for name, kind in KIND.items() if kind == "s"},
}
MEMORY = {**REGISTER, "bool": "i8", "float16": "half", "bfloat16": "i16"}
INTRINSIC_TYPE = {"float": "f32", "double": "f64", **{f"i{n}": f"i{n}" for n in (1, 8, 16, 32, 64)}}


def types(dtype: str) -> tuple[str, ...]:
    """The register types of a value: one, or two for a complex number."""
    if dtype in PART:
        return (REGISTER[PART[dtype]],) * 2
    return (REGISTER[dtype],)


def parts(operand: Operand) -> tuple[str, ...]:
    return operand if type(operand) is tuple else (operand,)


def whole(texts: list[str] | tuple[str, ...]) -> Operand:
    return texts[0] if len(texts) == 1 else tuple(texts)


def result_type(dtype: str) -> str:
    """What a function of an operation returns."""
    t = types(dtype)
    return t[0] if len(t) == 1 else f"{{ {t[0]}, {t[1]} }}"


def element(dtype: str) -> str:
    """The type of an element in memory."""
    if dtype in PART:
        t = REGISTER[PART[dtype]]
        return f"{{ {t}, {t} }}"
    return MEMORY[dtype]


# --- constants ---------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def float_text(text: str, dtype: str) -> str:
    """A float as LLVM writes it: the bits of a double, also for narrower types."""
    value = float.fromhex(text)
    if dtype != "float64":
        value = float(rounded(value, dtype))
    if value != value:
        return "0x7FF8000000000000"
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def constant(value: Any, dtype: str) -> Operand:
    """A number as text."""
    if dtype == "bool":
        return "true" if value else "false"
    if dtype in PART:
        re, im = value
        return float_text(re.hex(), PART[dtype]), float_text(im.hex(), PART[dtype])
    if KIND[dtype] == "s":
        return str(byte(value, dtype))
    if "float" in dtype:
        return float_text(value.hex(), dtype)
    return str(wrapped(value, dtype))


def bits(value: Any, dtype: str) -> int:
    """A number as the integer of its bits, which a parameter carries."""
    if KIND[dtype] == "s":
        return byte(value, dtype)
    if dtype == "float64":
        return struct.unpack("<q", struct.pack("<d", value))[0]
    if "float" in dtype:
        # a parameter is loaded as it is in registers: 16-bit formats as float
        return struct.unpack("<i", struct.pack("<f", rounded(value, dtype)))[0]
    return wrapped(value, dtype)


_SIMPLE = frozenset(x.hex() for y in (0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0) for x in (y, -y))


def is_simple(value: Any, dtype: str) -> bool:
    """Whether a literal is part of the code, not a parameter."""
    if dtype in PART:
        return all(is_simple(v, PART[dtype]) for v in value)
    if isinstance(value, float):
        return value.hex() in _SIMPLE or value in (np.inf, -np.inf) or value != value
    return dtype == "bool" or -16 <= value <= 16
