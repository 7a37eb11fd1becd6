"""Writing LLVM IR with vectors of this CPU's width, the last of a row under a mask."""

from collections.abc import Sequence

from fnx.lowering.cpu.llvm.vector_abi import TYPE
from fnx.lowering.cpu.processor import features

from .ir_builder import Function, Module, Value, i32

DTYPES = {"float32": 4, "float64": 8}


def exists(dtype: str) -> bool:
    """Whether this CPU has vectors with masks of a dtype."""
    return dtype in DTYPES and features.vector_bits() >= 256


def is_ragged(n: int, dtype: str) -> bool:
    """Whether a row of n elements ends within a vector of a CPU that has no cheap masks for it."""
    return not has_masks() and n % lanes_of(dtype) != 0


def lanes_of(dtype: str) -> int:
    """How many elements a vector has."""
    return features.vector_bits() // 8 // DTYPES[dtype]


def has_masks() -> bool:
    """Whether rows end under masks, which are cheap, rather than element by element."""
    return features.vector_bits() == 512


def halves() -> bool:
    """Whether this CPU computes a vector as two halves."""
    return features.halves_vectors()


class Vectors:
    """What is written for one dtype; `size` bytes an element, `lanes` of them in a vector."""

    def __init__(self, dtype: str, lanes: int = 0, module: Module | None = None):
        self.module = module or Module()
        self.size = DTYPES[dtype]
        self.lanes = lanes or lanes_of(dtype)
        self.t = TYPE[dtype]
        self.v = f"<{self.lanes} x {self.t}>"
        self.suffix = f"v{self.lanes}f{8 * self.size}"
        self.mask = f"<{self.lanes} x i1>"
        self.bytes = self.size * self.lanes
        self.zero = Value(self.v, "zeroinitializer")

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
        return f.call(routine, self.v, place, i32(self.size), mask, self.zero)

    def masked_store(self, f: Function, x: Value, place: Value, mask: Value) -> None:
        """Store the first lanes, those of a mask.

        AMD's CPUs without AVX-512 take 12 cycles for a masked store: there halves are stored, quarters, ...
        """
        if features.vector_bits() == 512:
            f.call(f"llvm.masked.store.{self.suffix}.p0", "void", x, place, i32(self.size), mask)
            return
        bits = f.emit(f"i{self.lanes}", f"bitcast {mask} to i{self.lanes}")
        with f.choice(f.compare("eq", bits, -1)) as (whole, some):
            with whole:
                self.save(f, x, place)
            with some:
                self.save_first(f, x, place, bits)

    def save_first(self, f: Function, x: Value, place: Value, bits: Value) -> None:
        """Store less lanes than all: so many as bits are set, from the lowest on."""
        rest, to, half = f.variable(x.type, x), f.variable("ptr", place), self.lanes // 2
        count = f.call(f"llvm.ctpop.{bits.type}", bits.type, bits)
        while half:
            with f.when(f.compare("ne", f.binary("and", count, half), 0)):
                some = f"<{half} x {self.t}>"
                low, high = (
                    ", ".join(f"i32 {min(k + start, self.lanes - 1)}" for k in range(n))
                    for start, n in ((0, half), (half, self.lanes))
                )
                now = f"shufflevector {rest.get()}, {x.type} poison"
                first = f.emit(some, f"{now}, <{half} x i32> <{low}>")
                f.do(f"store {first}, {to.get()}, align {self.size}")
                rest.set(f.emit(x.type, f"{now}, <{self.lanes} x i32> <{high}>"))
                to.set(f.at(to.get(), half * self.size))
            half //= 2

    def load(self, f: Function, place: Value, align: int = 0) -> Value:
        return f.emit(self.v, f"load {self.v}, {place}, align {align or self.size}")

    def scaled(self, f: Function, elements: Value) -> Value:
        return f.mul(elements, self.size)

    def save(self, f: Function, x: Value, place: Value) -> None:
        f.do(f"store {x}, {place}, align {self.size}")

    def times(self, f: Function, x: Value, y: Value) -> Value:
        return f.emit(x.type, f"fmul {x}, {y.name}")

    def minus_product(self, f: Function, c: Value, x: Value, y: Value) -> Value:
        """c - x y, rounded once."""
        negative = f.emit(x.type, f"fneg {x}")
        return f.call(f"llvm.fma.{self.suffix}", self.v, negative, y, c)

    def transposed(self, f: Function, x: Sequence[Value]) -> list[Value]:
        """The columns of as many rows as there are lanes."""
        x, step = list(x), 1
        while step < self.lanes:
            y = list(x)
            for i in range(self.lanes):
                if i & step:
                    continue
                low = [e if not e & step else e - step + self.lanes for e in range(self.lanes)]
                high = [e + step if not e & step else e + self.lanes for e in range(self.lanes)]
                for at, numbers in ((i, low), (i + step, high)):
                    chosen = ", ".join(f"i32 {e}" for e in numbers)
                    y[at] = f.emit(
                        self.v,
                        f"shufflevector {x[i]}, {x[i + step]}, <{self.lanes} x i32> <{chosen}>",
                    )
            x, step = y, 2 * step
        return x
