"""What fnx's own routines for dense matrices are written with: blocks, halves, products.

Matrices lie in rows.
"""

from fnx.lowering.cpu.llvm.ir_builder import Function, Value, i64
from fnx.lowering.cpu.llvm.ir_vectors import Vectors
from fnx.lowering.cpu.processor import thresholds

from .routine_names import name

BLOCK = 8  # rows and columns that are transposed, and factorized, in registers


class Kit:
    """What routines are written with. Strides are in elements."""

    def __init__(self, dtype: str):
        self.dtype, self.wide = dtype, Vectors(dtype)
        self.module = self.wide.module
        self.t, self.size = self.wide.t, self.wide.size
        self.block = Vectors(dtype, BLOCK, self.module)

    def of(self, f: Function, base: Value, elements: Value) -> Value:
        return f.at(base, f.mul(elements, self.size))

    def element(self, f: Function, base: Value, row: Value, i: Value | int, j: Value) -> Value:
        """The address of element (i, j) of rows that are contiguous."""
        return self.of(f, base, f.add(f.mul(row, i), j))

    def minus_product(self, f: Function, *args: Value) -> None:
        """m, n, k, a, its strides, b, its strides, c, its rows apart, work: C minus A B."""
        f.call(name("gemm_minus", self.dtype), "void", *args)

    def halves(self, f: Function, n: Value) -> tuple[Value, Value]:
        """n in two, the first a multiple of the block."""
        blocks = f.binary("sdiv", f.add(n, BLOCK - 1), BLOCK)
        first = f.mul(f.binary("sdiv", f.add(blocks, 1), 2), BLOCK)
        return first, f.sub(n, first)

    def least(self, f: Function, a: Value, b: Value | int) -> Value:
        b = i64(b) if isinstance(b, int) else b
        return f.choose(f.compare("slt", a, b), a, b)

    def number(self, f: Function, op: str, *args: Value) -> Value:
        return f.call(f"llvm.{op}.f{8 * self.size}", self.t, *args)

    def inverse(self, f: Function, x: Value) -> Value:
        return f.emit(self.t, f"fdiv {self.t} 1.0, {x.name}")

    def clamped(self, f: Function, n: Value, last: Value | None = None) -> list[Value]:
        """Numbers of the rows of a block of which n exist, the last one again for what does not."""
        last = f.sub(n, 1) if last is None else last
        return [self.least(f, i64(r), last) for r in range(BLOCK)]

    def lower_product(self) -> None:
        """The lower triangle of C minus A B; what is above it is overwritten too, here and there.

        Arguments: order, columns of A, A, its strides, B, its strides, C, its rows apart, work.
        """
        kinds = "i64 i64 ptr i64 i64 ptr i64 i64 ptr i64 ptr".split()
        with Function(self.module, "lower_product", "void", *kinds) as f:
            n, k, a, row, column, b, row_b, column_b, c, leading, work = f.args
            with f.when(f.compare("sle", n, thresholds.TRIANGLE)):
                self.minus_product(f, n, *f.args)
                f.ret()
            first, second = self.halves(f, n)
            lower, below = (self.of(f, x, f.mul(s, first)) for x, s in ((a, row), (c, leading)))
            left, strides = (a, row, column), (row_b, column_b)
            f.call("lower_product", "void", first, k, *left, b, *strides, c, leading, work)
            left = (lower, row, column)
            self.minus_product(f, second, first, k, *left, b, *strides, below, leading, work)
            corner, right = self.of(f, below, first), self.of(f, b, f.mul(column_b, first))
            f.call(
                "lower_product", "void", second, k, *left, right, *strides, corner, leading, work
            )
            f.ret()
