"""Cholesky factors and triangular systems of float32 and float64, by recursive blocks (Gustavson 1997).

Matrices lie in rows. Every routine cuts its matrix in two, again and again, so that nearly all its
work is products (gemm.py); what is left at the end are blocks of eight rows or columns, which are
kept in registers. `text` of each names its arguments. The last one is always memory that the products
use, of `work_elements`; triangles are read by two strides, one of which is 1, so that they may be
transposed; `backward` says that a triangle is an upper one, to be solved from its end.
"""

from fnx.lowering.cpu.llvm.ir_builder import Function, Value, i32, i64
from fnx.lowering.cpu.llvm.ir_vectors import DTYPES, Vectors
from fnx.lowering.cpu.processor import features

from . import gemm
from .blocked import BLOCK
from .lu import LU
from .routine_names import name

# rows, columns, triangle, its strides, B, its rows apart, unit diagonal?, backward?, work
SOLVE = "i64 i64 ptr i64 i64 ptr i64 i64 i64 ptr".split()
# order, matrix, its rows apart, work; the result is not 0 if a pivot is not positive
CHOLESKY = "i64 ptr i64 ptr".split()


def work_elements(m: int, n: int, dtype: str) -> int:
    """Elements that a routine needs for matrices of at most m rows and n columns."""
    lanes = features.vector_bits() // 8 // DTYPES[dtype]
    panel = BLOCK * (m + 2 * lanes)
    return max(panel, gemm.work_elements(max(m, n), max(m, n), dtype))


def text(dtype: str) -> str:
    """The LLVM IR of the routines for a dtype."""
    return str(_Routines(dtype).module)


class _Routines(LU):
    """Writes the functions of one dtype."""

    def __init__(self, dtype: str):
        super().__init__(dtype)
        self.width = 2 if features.vector_bits() == 512 else 1  # vectors of a row in registers
        self.triangle()
        self.left_block()
        self.right_block()
        self.solve("left")
        self.solve("right")
        self.cholesky_block()
        self.lower_product()
        self.cholesky()
        self.panel()
        self.swap_rows()
        self.lu()

    # --- triangular systems

    def triangle(self) -> None:
        """Copy a triangle of at most eight rows, and the inverses of its diagonal, into rows of eight.

        Arguments: n, triangle, strides, unit diagonal?, backward?, target. Backward, rows and columns
        are copied from the last to the first one. What does not exist is as in an identity matrix.
        """
        with Function(self.module, "triangle", "void", *"i64 ptr i64 i64 i64 i64 ptr".split()) as f:
            n, a, row, column, unit, backward, target = f.args
            for k in range(BLOCK * BLOCK // self.wide.lanes):
                self.wide.save(f, self.wide.zero, f.at(target, k * self.wide.bytes))
            one, inverses = Value(self.t, "1.0"), f.at(target, BLOCK * BLOCK * self.size)
            for k in range(BLOCK):
                f.store(one, inverses, k * self.size)
            back, last = f.compare("ne", backward, 0), f.sub(n, 1)
            whole = f.compare("eq", unit, 0)
            with f.loop(n) as i:
                to, r = f.index(target, i, BLOCK * self.size), f.choose(back, f.sub(last, i), i)
                source = self.of(f, a, f.mul(row, r))
                with f.loop(i) as j:
                    c = f.choose(back, f.sub(last, j), j)
                    x = f.load(self.of(f, source, f.mul(column, c)), 0, self.t)
                    f.store(x, f.index(to, j, self.size))
                with f.when(whole):
                    x = f.load(self.of(f, source, f.mul(column, r)), 0, self.t)
                    f.store(self.inverse(f, x), f.index(inverses, i, self.size))
            f.ret()

    def substituted(
        self, f: Function, kit: Vectors, rows: list[list[Value]], triangle: Value
    ) -> list[list[Value]]:
        """Rows of vectors after the rows before them, times a copied triangle, were subtracted."""
        rows = [list(row) for row in rows]

        def factor(k: int) -> Value:
            return kit.splat(f, f.load(triangle, k * self.size, self.t))

        for k in range(BLOCK):
            scale = factor(BLOCK * BLOCK + k)
            rows[k] = [kit.times(f, x, scale) for x in rows[k]]
            for i in range(k + 1, BLOCK):
                x = factor(BLOCK * i + k)
                rows[i] = [kit.minus_product(f, c, x, y) for c, y in zip(rows[i], rows[k])]
        return rows

    def left_block(self) -> None:
        """At most eight rows of B in place: as SOLVE without the memory for products."""
        kit = self.wide
        with Function(self.module, "left_block", "void", *SOLVE[:-1]) as f:
            n, columns, a, row, column, b, leading, unit, backward = f.args
            copy = f.slot(self.t, BLOCK * BLOCK + BLOCK)
            f.call("triangle", "void", n, a, row, column, unit, backward, copy)
            back, last = f.compare("ne", backward, 0), f.sub(n, 1)
            numbers = [f.choose(back, f.sub(last, r), r) for r in self.clamped(f, n)]
            lines = [self.of(f, b, f.mul(leading, r)) for r in numbers]
            step = self.width * kit.lanes
            with f.loop(f.binary("sdiv", f.add(columns, step - 1), step)) as block:
                start = f.mul(block, step)
                masks = [
                    kit.mask_of(f, f.sub(f.sub(columns, start), v * kit.lanes))
                    for v in range(self.width)
                ]
                across = f.mul(start, self.size)
                places = [
                    [f.at(f.at(line, across), v * kit.bytes) for v in range(self.width)]
                    for line in lines
                ]
                given = [[kit.masked_load(f, p, m) for p, m in zip(row_, masks)] for row_ in places]
                found = self.substituted(f, kit, given, copy)
                for r, (targets, values) in enumerate(zip(places, found)):
                    with f.when(f.compare("slt", i64(r), n)):
                        for x, p, m in zip(values, targets, masks):
                            kit.masked_store(f, x, p, m)
            f.ret()

    def right_block(self) -> None:
        """At most eight columns of B in place, eight rows at a time, which are transposed for it."""
        kit = self.block
        with Function(self.module, "right_block", "void", *SOLVE[:-1]) as f:
            rows, n, a, row, column, b, leading, unit, backward = f.args
            copy = f.slot(self.t, BLOCK * BLOCK + BLOCK)
            f.call("triangle", "void", n, a, column, row, unit, backward, copy)
            back, mask = f.compare("ne", backward, 0), kit.mask_of(f, n)
            with f.loop(f.binary("sdiv", f.add(rows, BLOCK - 1), BLOCK)) as block:
                first = f.mul(block, BLOCK)
                left = f.sub(rows, first)
                numbers = self.clamped(f, left)
                lines = [self.of(f, b, f.mul(leading, f.add(first, r))) for r in numbers]
                given = kit.transposed(f, [kit.masked_load(f, p, mask) for p in lines])
                found = self.ordered(f, kit, given, n, back)
                found = [x for [x] in self.substituted(f, kit, [[x] for x in found], copy)]
                found = kit.transposed(f, self.ordered(f, kit, found, n, back))
                for r, (x, p) in enumerate(zip(found, lines)):
                    with f.when(f.compare("slt", i64(r), left)):
                        kit.masked_store(f, x, p, mask)
            f.ret()

    def ordered(
        self, f: Function, kit: Vectors, x: list[Value], n: Value, back: Value
    ) -> list[Value]:
        """n vectors in their order, or backward."""
        space = f.slot(kit.v, BLOCK)
        for r, vector in enumerate(x):
            place = f.choose(back, f.sub(f.sub(n, 1), i64(r)), i64(r))
            exists_ = f.compare("sge", place, 0)
            place = f.choose(exists_, place, i64(r))
            kit.save(f, vector, f.index(space, place, kit.bytes))
        return [kit.load(f, f.at(space, r * kit.bytes)) for r in range(BLOCK)]

    def solve(self, side: str) -> None:
        """op(T) X = B (left) or X op(T) = B (right) in place of B: SOLVE.

        From the right T is read as its transpose is from the left: what is solved first comes first.
        """
        public = name(f"solve_{side}", self.dtype)
        with Function(self.module, public, "void", *SOLVE, public=True) as f:
            rows, columns, a, row, column, b, leading, unit, backward, work = f.args
            n = rows if side == "left" else columns
            with f.when(f.compare("sle", n, BLOCK)):
                f.call(f"{side}_block", "void", *f.args[:-1])
                f.ret()
            first, second = self.halves(f, n)
            corner = self.of(f, a, f.mul(f.add(row, column), first))
            below, beside = (self.of(f, a, f.mul(s, first)) for s in (row, column))
            if side == "left":
                others = self.of(f, b, f.mul(leading, first))
                sizes = (first, columns), (second, columns)
            else:
                others = self.of(f, b, first)
                sizes = (rows, first), (rows, second)
            tail = (leading, unit, backward, work)
            parts = [(*sizes[0], a, row, column, b), (*sizes[1], corner, row, column, others)]
            one = i64(1)
            with f.choice(f.compare("eq", backward, 0)) as arms:
                for arm, back in zip(arms, (False, True)):
                    with arm:
                        before, after = (b, others)[:: -1 if back else 1]
                        k, left = (first, second)[:: -1 if back else 1]
                        f.call(public, "void", *parts[back], *tail)
                        if side == "left":
                            t = beside if back else below
                            factors = (t, row, column, before, leading, one)
                            self.minus_product(f, left, columns, k, *factors, after, leading, work)
                        else:
                            t = below if back else beside
                            factors = (before, leading, one, t, row, column)
                            self.minus_product(f, rows, left, k, *factors, after, leading, work)
                        f.call(public, "void", *parts[not back], *tail)
            f.ret()

    # --- Cholesky

    def cholesky_block(self) -> None:
        """At most eight rows, in place of the lower triangle: order, matrix, its rows apart; failed?"""
        kit = self.block
        with Function(self.module, "cholesky_block", "i64", "i64", "ptr", "i64") as f:
            n, a, leading = f.args
            lines = [self.of(f, a, f.mul(leading, r)) for r in self.clamped(f, n)]
            unit = [
                ", ".join(f"{self.t} {float(i == k)}" for k in range(BLOCK)) for i in range(BLOCK)
            ]
            given = []
            for r, line in enumerate(lines):  # of an identity matrix what does not exist
                here = f.compare("slt", i64(r), n)
                mask = kit.mask_of(f, f.choose(here, i64(r + 1), i64(0)))
                default = f.emit(kit.v, f"select i1 {here.name}, {kit.zero}, {kit.v} <{unit[r]}>")
                routine = f"llvm.masked.load.{kit.suffix}.p0"
                given.append(f.call(routine, kit.v, line, i32(self.size), mask, default))
            rows = kit.transposed(f, given)  # those of the upper triangle
            good = Value("i1", "true")
            for k in range(BLOCK):
                pivot = f.emit(self.t, f"extractelement {rows[k]}, i32 {k}")
                positive = f.emit("i1", f"fcmp ogt {pivot}, 0.0")
                good = f.both(good, positive)
                scale = kit.splat(f, self.inverse(f, self.number(f, "sqrt", pivot)))
                rows[k] = kit.times(f, rows[k], scale)
                for i in range(k + 1, BLOCK):
                    x = kit.splat(f, f.emit(self.t, f"extractelement {rows[k]}, i32 {i}"))
                    rows[i] = kit.minus_product(f, rows[i], x, rows[k])
            for r, (x, line) in enumerate(zip(kit.transposed(f, rows), lines)):
                with f.when(f.compare("slt", i64(r), n)):
                    kit.masked_store(f, x, line, kit.mask_of(f, i64(r + 1)))
            f.ret(f.convert("zext", f.negate(good), "i64"))

    def cholesky(self) -> None:
        """The lower factor in place of a lower triangle: CHOLESKY."""
        public = name("cholesky", self.dtype)
        with Function(self.module, public, "i64", *CHOLESKY, public=True) as f:
            n, a, leading, work = f.args
            with f.when(f.compare("sle", n, BLOCK)):
                f.ret(f.call("cholesky_block", "i64", n, a, leading))
            first, second = self.halves(f, n)
            failed = f.call(public, "i64", first, a, leading, work)
            with f.when(f.compare("ne", failed, 0)):
                f.ret(failed)
            below = self.of(f, a, f.mul(leading, first))
            corner = self.of(f, below, first)
            shape = (second, first, a, i64(1), leading, below, leading, i64(0), i64(0))
            f.call(name("solve_right", self.dtype), "void", *shape, work)
            factors = (below, leading, i64(1), below, i64(1), leading)
            f.call("lower_product", "void", second, first, *factors, corner, leading, work)
            f.ret(f.call(public, "i64", second, corner, leading, work))
