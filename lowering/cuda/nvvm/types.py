"""Types of the values of a kernel, as Numba-CUDA infers them, and what LLVM calls them."""

import struct
from typing import NamedTuple


class Unsupported(Exception):
    """A source has what is not translated; Numba-CUDA compiles it."""


class Type(NamedTuple):
    """A number: its kind (boolean, signed, unsigned, floating, complex), and its bits, of both parts."""

    kind: str
    bits: int

    @property
    def llvm(self) -> str:
        if self.kind == "f":
            return _FLOATS[self.bits]
        if self.kind == "c":
            part = _FLOATS[self.bits // 2]
            return f"{{{part}, {part}}}"
        return f"i{self.bits}"

    @property
    def stored(self) -> "Type":
        """The type in which it lies in memory."""
        return Type("u", 8) if self.kind == "b" else self

    @property
    def part(self) -> "Type":
        """The type of a complex number's parts."""
        return Type("f", self.bits // 2)


class Value(NamedTuple):
    """What an expression gives: a register or a number in LLVM's words.

    `bound`: an integer that is not negative is less; 0 where that is not known.
    """

    type: Type
    text: str
    bound: int = 0

    def below(self, bound: int) -> "Value":
        """The same, known not to be negative and to be less."""
        return self._replace(bound=bound if bound < 1 << 63 else 0)


_FLOATS = {32: "float", 64: "double"}
BOOL, INT32, INT64 = Type("b", 1), Type("i", 32), Type("i", 64)
FLOAT32, FLOAT64 = Type("f", 32), Type("f", 64)
_KINDS = {"int": "i", "uint": "u", "float": "f", "complex": "c"}
TYPES = {"bool_": BOOL, "boolean": BOOL} | {
    f"{name}{bits}": Type(kind, bits)
    for name, kind in _KINDS.items()
    for bits in ((8, 16, 32, 64) if kind in "iu" else (32, 64) if kind == "f" else (64, 128))
}


def joined(a: Type, b: Type) -> Type:
    """The type of arithmetic on two numbers: integers have 64 bits, signed if one of them is."""
    kinds = {a.kind, b.kind}
    if "c" in kinds:
        return Type("c", max(2 * x.bits if x.kind == "f" else x.bits for x in _wide(a, b)))
    if "f" in kinds:
        return Type("f", max(x.bits for x in _wide(a, b)))
    return INT64 if kinds & set("ib") else Type("u", 64)


def _wide(a: Type, b: Type) -> list[Type]:
    """Two types of which one is no integer, which counts as float32 if it is short, else as float64."""
    short = {"b": 1, "i": 16, "u": 8}
    return [
        x if x.kind in "fc" else FLOAT32 if x.bits <= short[x.kind] else FLOAT64 for x in (a, b)
    ]


def compared(a: Type, b: Type) -> Type:
    """The type in which two numbers are compared, or of which the smaller one is taken."""
    if a == b:
        return a
    if "f" in (a.kind, b.kind):
        return joined(a, b)
    signed = [x.bits for x in (a, b) if x.kind == "i"]
    unsigned = [x.bits for x in (a, b) if x.kind in "ub"]
    if "c" in (a.kind, b.kind) or signed and max(unsigned, default=0) == 64:
        raise Unsupported(f"a comparison of {a} and {b}")
    if not signed:
        return Type("u", max(unsigned))
    return Type("i", max([*signed, *(2 * bits for bits in unsigned if bits > 1)]))


def number(value: bool | int | float, t: Type) -> Value:
    """A number of a type in LLVM's words, rounded or wrapped as a cast would."""
    if t.kind == "b":
        return Value(t, str(int(bool(value))))
    if t.kind == "f":
        value = float(value)
        if t.bits == 32:
            value = _rounded(value)
        return Value(t, f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016x}")
    if t.kind == "c":
        raise Unsupported("a complex number")
    fixed = wrapped(int(value), Type("i", t.bits))
    return Value(t, str(fixed), max(fixed, -1) + 1)


def wrapped(value: int, t: Type) -> int:
    """The integer of a type that has the same last bits."""
    bits = value & ((1 << t.bits) - 1)
    return bits - (1 << t.bits) if t.kind == "i" and bits >> (t.bits - 1) else bits


def known(x: Value) -> int | None:
    """The number that an integer is, None if it is none."""
    return wrapped(int(x.text), x.type) if x.type.kind in "iub" and x.text[0] != "%" else None


def _rounded(value: float) -> float:
    import numpy as np

    with np.errstate(over="ignore"):
        return float(np.float32(value))
