"""Factors of dense matrices of float32 and float64, and triangular systems: fnx's own routines.

Matrices lie in rows. Every routine cuts its matrix in two, again and again, so that nearly all its
work is products (matmul.py); what is left at the end are blocks of eight rows or columns, which are
kept in registers. `text` of each names its arguments. The last one is always memory that the products
use, of `work_elements`; triangles are read by two strides, one of which is 1, so that they may be
transposed; `backward` says that a triangle is an upper one, to be solved from its end.
"""

from fnx.lowering.emit.llvm_types import float_text
from fnx.lowering.target import processor

from . import machine, matmul
from .compiler import once
from .irtext import Function, Value, i32, i64
from .irvectors import DTYPES, Vectors

NAMES = ("solve_left", "solve_right", "cholesky", "lu")
BLOCK = 8
SQUARE = 32  # where one triangle of a product is wanted, up to this size all is computed
# rows, columns, triangle, its strides, B, its rows apart, unit diagonal?, backward?, work
SOLVE = "i64 i64 ptr i64 i64 ptr i64 i64 i64 ptr".split()
# order, matrix, its rows apart, work; the result is not 0 if a pivot is not positive
CHOLESKY = "i64 ptr i64 ptr".split()
# rows, columns, matrix, its rows apart, pivots (int32, from 0), work
LU = "i64 i64 ptr i64 ptr ptr".split()


def name(routine: str, dtype: str) -> str:
    return f"fnx_{routine}_{dtype}"


def work_elements(m: int, n: int, dtype: str) -> int:
    """Elements that a routine needs for matrices of at most m rows and n columns."""
    lanes = processor.vector_bits() // 8 // DTYPES[dtype]
    panel = BLOCK * (m + 2 * lanes)
    return max(panel, matmul.work_elements(max(m, n), max(m, n), dtype))


@once
def address(routine: str, dtype: str) -> int:
    """The address of a routine."""
    return _code(dtype).addresses[name(routine, dtype)]


@once
def _code(dtype: str) -> machine.Code:
    product = "gemm_minus"
    imports = {matmul.name(dtype, product): matmul.address(dtype, product)}
    exports = [name(routine, dtype) for routine in NAMES]
    return machine.routine(f"dense {dtype}", lambda: text(dtype), exports, imports)


def text(dtype: str) -> str:
    """The LLVM IR of the routines for a dtype."""
    return str(_Routines(dtype).module)


class Kit:
    """What routines are written with. Strides are in elements."""

    def __init__(self, dtype: str):
        self.dtype, self.wide = dtype, Vectors(dtype)
        self.module = self.wide.module
        self.t, self.size = self.wide.t, self.wide.size

    def of(self, f: Function, base: Value, elements: Value) -> Value:
        return f.at(base, f.mul(elements, self.size))

    def element(self, f: Function, base: Value, row: Value, i: Value | int, j: Value) -> Value:
        """The address of element (i, j) of rows that are contiguous."""
        return self.of(f, base, f.add(f.mul(row, i), j))

    def minus_product(self, f: Function, *args: Value) -> None:
        """m, n, k, a, its strides, b, its strides, c, its rows apart, work: C minus A B."""
        f.call(matmul.name(self.dtype, "gemm_minus"), "void", *args)

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

    def lower_product(self) -> None:
        """The lower triangle of C minus A B; what is above it is overwritten too, here and there.

        Arguments: order, columns of A, A, its strides, B, its strides, C, its rows apart, work.
        """
        kinds = "i64 i64 ptr i64 i64 ptr i64 i64 ptr i64 ptr".split()
        with Function(self.module, "lower_product", "void", *kinds) as f:
            n, k, a, row, column, b, row_b, column_b, c, leading, work = f.args
            with f.when(f.compare("sle", n, SQUARE)):
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


class _Routines(Kit):
    """Writes the functions of one dtype."""

    def __init__(self, dtype: str):
        super().__init__(dtype)
        self.block = Vectors(dtype, BLOCK, self.module)
        self.width = 2 if processor.vector_bits() == 512 else 1  # vectors of a row in registers
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

    def clamped(self, f: Function, n: Value, last: Value | None = None) -> list[Value]:
        """Numbers of the rows of a block of which n exist, the last one again for what does not."""
        last = f.sub(n, 1) if last is None else last
        return [self.least(f, i64(r), last) for r in range(BLOCK)]

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

    # --- LU

    def transpose_panel(self, f: Function, back: bool, *args: Value) -> None:
        """Rows of at most eight numbers to columns that are `apart`, or back."""
        m, n, a, leading, columns, apart = args
        kit = self.block
        with f.loop(f.binary("sdiv", f.add(m, BLOCK - 1), BLOCK)) as block:
            first = f.mul(block, BLOCK)
            left = f.sub(m, first)
            starts = [self.of(f, columns, f.add(f.mul(apart, j), first)) for j in range(BLOCK)]
            numbers = self.clamped(f, left)
            lines = [self.of(f, a, f.mul(leading, f.add(first, r))) for r in numbers]
            masks = [
                kit.mask_of(f, f.choose(f.compare("slt", i64(r), left), n, i64(0)))
                for r in range(BLOCK)
            ]
            if not back:
                given = [kit.masked_load(f, p, mask) for p, mask in zip(lines, masks)]
                for x, p in zip(kit.transposed(f, given), starts):
                    kit.save(f, x, p)
            else:
                given = kit.transposed(f, [kit.load(f, p) for p in starts])
                for x, p, mask in zip(given, lines, masks):
                    kit.masked_store(f, x, p, mask)

    def panel(self) -> None:
        """LU of at most eight columns, in a copy by columns, zero beyond the rows: LU's arguments."""
        kit = self.wide
        with Function(self.module, "panel", "void", *LU) as f:
            m, n, a, leading, pivots, work = f.args
            apart = f.add(m, 2 * kit.lanes)
            for j in range(BLOCK):
                end = self.of(f, work, f.add(f.mul(apart, j), m))
                for v in range(2):
                    kit.save(f, kit.zero, f.at(end, v * kit.bytes))
            # In this order: eight rows at a time reach beyond the last one.
            self.transpose_panel(f, False, m, n, a, leading, work, apart)
            starts = [self.of(f, work, f.mul(apart, j)) for j in range(BLOCK)]
            steps = self.least(f, m, n)
            for j in range(BLOCK):
                with f.when(f.compare("slt", i64(j), steps)):
                    self.eliminate(f, j, m, starts, pivots)
            self.transpose_panel(f, True, m, n, a, leading, work, apart)
            f.ret()

    def eliminate(self, f: Function, j: int, m: Value, starts: list[Value], pivots: Value) -> None:
        """Column j of a panel: its pivot, the multipliers, and what they take from later columns."""
        kit = self.wide
        p = self.largest(f, j, m, starts[j])
        f.store(f.convert("trunc", p, "i32"), pivots, 4 * j)
        for column in starts:
            here, there = f.at(column, j * self.size), self.of(f, column, p)
            x, y = f.load(here, 0, self.t), f.load(there, 0, self.t)
            f.store(y, here)
            f.store(x, there)
        pivot = f.load(starts[j], j * self.size, self.t)
        size = self.number(f, "fabs", pivot)
        is_zero = f.emit("i1", f"fcmp oeq {pivot}, 0.0")
        one = Value(self.t, "1.0")
        # The inverse of a tiny number overflows: then both are made larger first.
        tiny = {4: 2.0**-126, 8: 2.0**-1022}[self.size]
        scale = {4: 2.0**24, 8: 2.0**54}[self.size]
        small = f.emit("i1", f"fcmp olt {size}, {float_text(tiny.hex(), 'float64')}")
        up = f.choose(small, Value(self.t, float_text(scale.hex(), "float64")), one)
        large = f.choose(is_zero, one, f.emit(self.t, f"fmul {pivot}, {up.name}"))
        up = kit.splat(f, f.choose(is_zero, one, up))
        inverse = kit.splat(f, self.inverse(f, large))
        later = [(c, kit.splat(f, f.load(c, j * self.size, self.t))) for c in starts[j + 1 :]]
        rest = f.sub(f.sub(m, 1), i64(j))
        with f.loop(f.binary("sdiv", f.add(rest, kit.lanes - 1), kit.lanes)) as block:
            offset = f.add(f.mul(block, kit.bytes), (j + 1) * self.size)
            place = f.at(starts[j], offset)
            l = kit.times(f, kit.times(f, kit.load(f, place), up), inverse)
            kit.save(f, l, place)
            for column, u in later:
                place = f.at(column, offset)
                kit.save(f, kit.minus_product(f, kit.load(f, place), l, u), place)

    def largest(self, f: Function, j: int, m: Value, column: Value) -> Value:
        """The first row from j on with the largest number of a column."""
        kit = self.wide
        integers = f"<{kit.lanes} x i64>"
        ups = ", ".join(f"i64 {j + k}" for k in range(kit.lanes))
        size = lambda x: f.call(f"llvm.fabs.{kit.suffix}", kit.v, x)
        start = kit.splat(f, self.number(f, "fabs", f.load(column, j * self.size, self.t)))
        best = f.variable(kit.v, start)
        row = f.variable(integers, Value(integers, f"splat (i64 {j})"))
        now = f.variable(integers, Value(integers, f"<{ups}>"))
        rows = f.sub(m, i64(j))
        with f.loop(f.binary("sdiv", f.add(rows, kit.lanes - 1), kit.lanes)) as block:
            place = f.at(column, f.add(f.mul(block, kit.bytes), j * self.size))
            x = size(kit.load(f, place))
            better = f.emit(kit.mask, f"fcmp ogt {x}, {best.get().name}")
            best.set(f.choose(better, x, best.get()))
            row.set(f.choose(better, now.get(), row.get()))
            now.set(f.add(now.get(), Value(integers, f"splat (i64 {kit.lanes})")))
        found = f.call(f"llvm.vector.reduce.fmax.{kit.suffix}", self.t, best.get())
        same = f.emit(kit.mask, f"fcmp oeq {best.get()}, {kit.splat(f, found).name}")
        far = Value(integers, f"splat (i64 {1 << 40})")
        first = f.choose(same, row.get(), far)
        p = f.call(f"llvm.vector.reduce.smin.v{kit.lanes}i64", "i64", first)
        return f.choose(f.compare("slt", p, m), p, i64(j))

    def swap_rows(self) -> None:
        """Swap rows i and pivots[i], one after the other: steps, columns, matrix, rows apart, pivots."""
        kit = self.wide
        with Function(self.module, "swap_rows", "void", "i64", "i64", "ptr", "i64", "ptr") as f:
            steps, columns, a, leading, pivots = f.args
            with f.loop(steps) as i:
                p = f.convert("sext", f.load(f.index(pivots, i, 4), 0, "i32"), "i64")
                with f.when(f.compare("ne", p, i)):
                    one, other = (self.of(f, a, f.mul(leading, r)) for r in (i, p))
                    with f.loop(f.binary("sdiv", f.add(columns, kit.lanes - 1), kit.lanes)) as v:
                        start = f.mul(v, kit.bytes)
                        mask = kit.mask_of(f, f.sub(columns, f.mul(v, kit.lanes)))
                        places = f.at(one, start), f.at(other, start)
                        x, y = (kit.masked_load(f, q, mask) for q in places)
                        kit.masked_store(f, y, places[0], mask)
                        kit.masked_store(f, x, places[1], mask)
            f.ret()

    def lu(self) -> None:
        """L and U in place of a matrix, with partial pivoting: LU."""
        public = name("lu", self.dtype)
        with Function(self.module, public, "void", *LU, public=True) as f:
            m, n, a, leading, pivots, work = f.args
            with f.when(f.compare("sle", n, BLOCK)):
                f.call("panel", "void", *f.args)
                f.ret()
            steps = self.least(f, m, n)
            with f.when(f.compare("sle", steps, BLOCK)):
                f.call("panel", "void", m, steps, a, leading, pivots, work)
                self.rest(f, m, n, a, leading, pivots, work, steps, public)
                f.ret()
            first, _ = self.halves(f, steps)
            f.call(public, "void", m, first, a, leading, pivots, work)
            self.rest(f, m, n, a, leading, pivots, work, first, public)
            f.ret()

    def rest(
        self,
        f: Function,
        m: Value,
        n: Value,
        a: Value,
        leading: Value,
        pivots: Value,
        work: Value,
        first: Value,
        public: str,
    ) -> None:
        """What the first columns' factors make of the others."""
        right, down, one = f.sub(n, first), f.sub(m, first), i64(1)
        beside, below = self.of(f, a, first), self.of(f, a, f.mul(leading, first))
        f.call("swap_rows", "void", first, right, beside, leading, pivots)
        shape = (first, right, a, leading, one, beside, leading, one, i64(0))
        f.call(name("solve_left", self.dtype), "void", *shape, work)
        with f.when(f.compare("sgt", down, 0)):
            corner, later = self.of(f, below, first), f.index(pivots, first, 4)
            factors = (below, leading, one, beside, leading, one)
            self.minus_product(f, down, right, first, *factors, corner, leading, work)
            f.call(public, "void", down, right, corner, leading, later, work)
            steps = self.least(f, down, right)
            f.call("swap_rows", "void", steps, first, below, leading, later)
            shift = f.convert("trunc", first, "i32")
            with f.loop(steps) as i:
                place = f.index(later, i, 4)
                f.store(f.add(f.load(place, 0, "i32"), shift), place)
