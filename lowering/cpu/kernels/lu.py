"""LU factors with partial pivoting, blocked by panels of eight columns (Golub & Van Loan 2013, ch. 3).

A panel is copied by columns, so that the search for its pivots and the elimination go along vectors.
"""

from fnx.lowering.cpu.llvm.ir_builder import Function, Value, i64
from fnx.lowering.cpu.llvm.types import float_text

from .blocked import BLOCK, Kit
from .routine_names import name

# rows, columns, matrix, its rows apart, pivots (int32, from 0), work
ARGUMENTS = "i64 i64 ptr i64 ptr ptr".split()


class LU(Kit):
    """Writes `lu` and the functions that it calls."""

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
        """LU of at most eight columns, in a copy by columns, zero beyond the rows: ARGUMENTS."""
        kit = self.wide
        with Function(self.module, "panel", "void", *ARGUMENTS) as f:
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
        """L and U in place of a matrix, with partial pivoting: ARGUMENTS."""
        public = name("lu", self.dtype)
        with Function(self.module, public, "void", *ARGUMENTS, public=True) as f:
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
