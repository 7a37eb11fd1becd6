"""The microkernel of gemm.py (Van Zee & van de Geijn 2015): a tile of C in registers, to which is added."""

from collections.abc import Sequence
from typing import NamedTuple

from fnx.lowering.cpu.llvm.ir_builder import Function, Value, Variable, i64
from fnx.lowering.cpu.llvm.ir_vectors import has_masks

from .gemm_packing import LINE, Packing


class Tile(NamedTuple):
    """Rows of a tile, vectors of such a row at most, and indices of one iteration of its loop."""

    rows: int
    wide: int
    unroll: int


# By the bits of a vector. The tile, a row of B and a number of A take most of 32 registers, or all 16.
# With more rows, where they are would not fit into the others.
TILES = {512: Tile(8, 3, 1), 256: Tile(4, 3, 2)}


class Target(NamedTuple):
    """Where a tile of C is: the bytes from row to row, and from a row's start to its last vector.

    `lanes` is how many the last vector has, `times` how often the product is added to what C holds (1
    or -1), or 0 if it overwrites that.
    """

    c: Value
    leading: Value
    end: Value
    lanes: Value
    times: Value


class Tiles(Packing):
    """Writes kernels of tiles of so many rows, and of vectors up to `wide`, with iterations of `unroll`."""

    rows: int
    unroll: int

    def kernel(self, width: int, height: int) -> None:
        """Tiles below each other, each rows of `width` vectors of C.

        Arguments: how many; k; a, bytes from tile to tile, from row to row, from column to column; rows
        that a tile has; what to ask for, and bytes to what the next iteration asks for; b, bytes from
        row to row, and from a row's start to its last vector; a Target's.
        """
        kinds = "i64 i64 ptr i64 i64 i64 i64 ptr i64 ptr i64 i64 ptr i64 i64 i64 i64".split()
        with Function(self.module, self.kernel_name(width, height), "void", *kinds) as f:
            count, k, a, apart, row, column, rows, later, *rest = f.args
            each, line, to = rest[0], rest[1:4], Target(*rest[4:])
            last = f.sub(rows, 1)
            numbers = [
                f.choose(f.compare("slt", i64(r), rows), i64(r), last) for r in range(height)
            ]
            offsets = [i64(0), *(f.mul(r, row) for r in numbers[1:])]
            adds = f.compare("ne", to.times, 0)
            start, target, asked = (f.variable("ptr", x) for x in (a, to.c, later))
            with f.loop(count):
                to = to._replace(c=target.get())
                with f.when(adds):
                    self.ask(f, to, rows, width)
                rows_of_a = start.get(), offsets, column
                sums = self.sums(f, k, rows_of_a, line, width, (asked.get(), each))
                if width > 1 or has_masks():
                    self.finish(f, sums, to, adds, rows)
                else:
                    with f.choice(f.compare("eq", to.lanes, self.lanes)) as (whole, some):
                        with whole:
                            self.finish(f, sums, to, adds, rows)
                        with some:
                            self.finish_some(f, sums, to, adds, rows)
                for variable, step in (
                    (start, apart),
                    (asked, apart),
                    (target, f.mul(to.leading, height)),
                ):
                    variable.set(f.at(variable.get(), step))
            f.ret()

    def kernel_name(self, width: int, height: int) -> str:
        return f"kernel{height}x{width}"

    def ask(self, f: Function, to: Target, rows: Value, width: int) -> None:
        """Ask for the lines of a tile of C."""
        with f.loop(rows) as r:
            row = f.at(to.c, f.mul(to.leading, r))
            last = f.at(row, to.end)
            lines = [f.at(row, byte) for byte in range(0, (width - 1) * self.bytes, LINE)]
            for line in (*lines, last, f.at(last, self.bytes - 1)):
                self.prefetch(f, line, write=True)

    def sums(
        self,
        f: Function,
        k: Value,
        rows: tuple[Value, list[Value], Value],
        line: Sequence[Value],
        width: int,
        ahead: tuple[Value, Value],
    ) -> list[list[Variable]]:
        """The products of rows of A and columns of B; a line is asked for in each iteration.

        Of the rows: A, how far from there each is, bytes from column to column.
        """
        a, offsets, column = rows
        # Where there are few sums, each is two: an addition waits for the one before.
        ways = 2 if width == 1 and self.unroll > 1 else 1
        sums = [
            [[f.variable(self.v, self.zero) for _ in range(width)] for _ in offsets]
            for _ in range(ways)
        ]
        b, step, end = line
        start, place, asked = (f.variable("ptr", x) for x in (a, b, ahead[0]))
        iterations = f.binary("sdiv", k, self.unroll)
        rest = f.sub(k, f.mul(iterations, self.unroll))
        for count, steps in [(iterations, self.unroll), (rest, 1)][: self.unroll]:
            with f.loop(count):
                if steps > 1:
                    self.prefetch(f, asked.get())
                    asked.set(f.at(asked.get(), ahead[1]))
                for way in range(steps):
                    vectors = [self.load(f, x) for x in self.places(f, place.get(), width, end)]
                    for row_sums, offset in zip(sums[way % ways], offsets, strict=True):
                        x = self.splat(f, f.load(start.get(), offset, self.t))
                        for s, y in zip(row_sums, vectors, strict=True):
                            s.set(self.fma(f, x, y, s.get()))
                    start.set(f.at(start.get(), column))
                    place.set(f.at(place.get(), step))
        for others in sums[1:]:
            for [s], [other] in zip(sums[0], others, strict=True):
                s.set(f.binary("fadd", s.get(), other.get()))
        return sums[0]

    def fma(self, f: Function, x: Value, y: Value, z: Value) -> Value:
        return f.call(f"llvm.fma.{self.suffix}", self.v, x, y, z)

    def finish(
        self, f: Function, sums: list[list[Variable]], to: Target, adds: Value, rows: Value
    ) -> None:
        """The first rows of a tile to where they belong."""
        width = len(sums[0])
        factor = self.splat(f, f.convert("sitofp", to.times, self.t))
        mask = self.mask_of(f, to.lanes) if width == 1 and has_masks() else None
        with f.choice(adds) as (add, write):
            for arm in (add, write):
                with arm, f.once() as done:
                    for r, row_sums in enumerate(sums):
                        if r:
                            with f.when(f.compare("sle", rows, r)):
                                f.leave(done)
                        places = self.places(f, f.at(to.c, f.mul(to.leading, r)), width, to.end)
                        row = [s.get() for s in row_sums]
                        if arm is add:  # vectors may overlap: all are read before one is written
                            before = [self.load_of(f, place, mask) for place in places]
                            row = [
                                self.fma(f, x, factor, y) for x, y in zip(row, before, strict=True)
                            ]
                        for x, place in zip(row, places, strict=True):
                            if mask:
                                self.masked_store(f, x, place, mask)
                            else:
                                self.save(f, x, place)

    def load_of(self, f: Function, place: Value, mask: Value | None) -> Value:
        return self.masked_load(f, place, mask) if mask else self.load(f, place)

    def finish_some(
        self, f: Function, sums: list[list[Variable]], to: Target, adds: Value, rows: Value
    ) -> None:
        """A tile whose one vector lacks lanes: its rows from memory, one by one."""
        mask = self.mask_of(f, to.lanes)
        factor = self.splat(f, f.convert("sitofp", to.times, self.t))
        copy = f.slot(self.v, len(sums))
        for r, [s] in enumerate(sums):
            self.save(f, s.get(), f.at(copy, r * self.bytes))
        with f.loop(rows) as r:
            place = f.at(to.c, f.mul(to.leading, r))
            x = f.variable(self.v, self.load(f, f.index(copy, r, self.bytes)))
            with f.when(adds):
                x.set(self.fma(f, x.get(), factor, self.masked_load(f, place, mask)))
            self.masked_store(f, x.get(), place, mask)
