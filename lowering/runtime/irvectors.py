"""Writing LLVM IR with vectors of this CPU's width, the last of a row under a mask."""

from fnx.lowering.emit.vector_names import TYPE
from fnx.lowering.target import processor

from .irtext import Function, Module, Value, i32

DTYPES = {"float32": 4, "float64": 8}


def exists(dtype: str) -> bool:
    """Whether this CPU has vectors with masks of a dtype."""
    return dtype in DTYPES and processor.vector_bits() >= 256


class Vectors:
    """What is written for one dtype; `size` bytes an element, `lanes` of them in a vector."""

    def __init__(self, dtype: str):
        self.module = Module()
        self.size = DTYPES[dtype]
        self.lanes = processor.vector_bits() // 8 // self.size
        self.t = TYPE[dtype]
        self.v = f"<{self.lanes} x {self.t}>"
        self.suffix = f"v{self.lanes}f{8 * self.size}"
        self.mask = f"<{self.lanes} x i1>"
        self.bytes = self.size * self.lanes

    def mask_of(self, f: Function, lanes: Value) -> Value:
        """A mask of the first so many lanes."""
        kind = f"<{self.lanes} x i64>"
        numbers = ", ".join(f"i64 {k}" for k in range(self.lanes))
        return f.emit(self.mask, f"icmp slt {kind} <{numbers}>, {self.splat(f, lanes, kind).name}")

    def splat(self, f: Function, x: Value, kind: str = "") -> Value:
        kind = kind or self.v
        first = f.emit(kind, f"insertelement {kind} poison, {x}, i32 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return f.emit(kind, f"shufflevector {first}, {kind} poison, {zeros}")

    def masked_load(self, f: Function, place: Value, mask: Value) -> Value:
        routine = f"llvm.masked.load.{self.suffix}.p0"
        return f.call(
            routine, self.v, place, i32(self.size), mask, Value(self.v, "zeroinitializer")
        )

    def masked_store(self, f: Function, x: Value, place: Value, mask: Value) -> None:
        f.call(f"llvm.masked.store.{self.suffix}.p0", "void", x, place, i32(self.size), mask)

    def load(self, f: Function, place: Value, align: int = 0) -> Value:
        return f.emit(self.v, f"load {self.v}, {place}, align {align or self.size}")

    def scaled(self, f: Function, elements: Value) -> Value:
        return f.mul(elements, self.size)
