"""Transposes through vector registers: a small matrix goes to another place, rows as columns.

Element by element that is a store for each, and neighbouring ones go to different cache lines. Here
a square of them is loaded as rows, turned by shuffles of two registers each, and stored as rows.

Source: Eklundh 1972, whose log2(n) stages of exchanges these are.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fnx.lowering.ir.kernel import Ref, Transpose
from fnx.lowering.ir.number_formats import itemsize

from . import types as lt

if TYPE_CHECKING:
    from .function import Function

VECTOR = 64  # bytes


def can(dtype: str) -> bool:
    """Whether elements of a dtype are turned so: those that vectors have whole."""
    return lt.MEMORY.get(dtype) in ("float", "double", "i32", "i64")


def transpose(f: "Function", s: Transpose) -> None:
    """Print the statement, square by square; the last ones overlap those before."""
    dtype = s.destination.buffer.dtype
    side = min(s.rows, s.columns, VECTOR // itemsize(dtype))
    side = 1 << (side.bit_length() - 1)
    target, source = _Rows(f, s.destination, s.apart[0], side), _Rows(f, s.source, s.apart[1], side)
    for i in _starts(s.rows, side):
        for j in _starts(s.columns, side):
            square = [source.load(j + k, i) for k in range(side)]
            for k, row in enumerate(_turned(f, square, target.type, side)):
                target.store(i + k, j, row)


def _starts(length: int, side: int) -> Sequence[int]:
    """Where squares begin, so that they cover all."""
    return [min(k, length - side) for k in range(0, length, side)]


def _turned(f: "Function", rows: list[str], vector: str, side: int) -> list[str]:
    """The columns of a square: at each step halves of ever smaller parts change places."""
    half = side // 2
    while half:
        lanes = range(side)
        low = [k if not k & half else side + k - half for k in lanes]
        high = [k + half if not k & half else side + k for k in lanes]
        masks = [", ".join(f"i32 {k}" for k in mask) for mask in (low, high)]
        new = list(rows)
        for k in lanes:
            if not k & half:
                pair = f"{vector} {rows[k]}, {vector} {rows[k + half]}"
                for place, mask in zip((k, k + half), masks):
                    new[place] = f.op(f"shufflevector {pair}, <{side} x i32> <{mask}>")
        rows, half = new, half // 2
    return rows


class _Rows:
    """Rows of a matrix in memory: vectors are loaded and stored at a row and a column."""

    def __init__(self, f: "Function", ref: Ref, apart: object, side: int):
        t = lt.MEMORY[ref.buffer.dtype]
        self.f, self.element, self.type = f, t, f"<{side} x {t}>"
        self.base = f.address(ref.buffer, f.value(ref.index))
        self.apart = f.value(apart)  # type: ignore[arg-type]
        self.align = itemsize(ref.buffer.dtype)

    def _at(self, row: int, column: int) -> str:
        start = self.f.op(f"mul i64 {self.apart}, {row}")
        start = self.f.op(f"getelementptr inbounds {self.element}, ptr {self.base}, i64 {start}")
        return self.f.op(f"getelementptr inbounds {self.element}, ptr {start}, i64 {column}")

    def load(self, row: int, column: int) -> str:
        name = self.f.fresh()
        self.f.put(f"{name} = load {self.type}, ptr {self._at(row, column)}, align {self.align}")
        return name

    def store(self, row: int, column: int, value: str) -> None:
        where = self._at(row, column)
        self.f.put(f"store {self.type} {value}, ptr {where}, align {self.align}")
