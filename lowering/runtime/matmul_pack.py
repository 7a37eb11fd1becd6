"""Packing for products of matrices: B's columns, a tile's width after the other (matmul.py).

The vectors of a row of a block are shared out to tiles (`slivers`) evenly: `base` to each, one more to
the first `extra`.
"""

from .irtext import Function, Value, i32, i64
from .irvectors import Vectors

WIDE = 3  # vectors of a row of a tile, at most
LINE = 64  # bytes that memory hands out at once
AHEAD = 4  # rows of B, or columns of A, that are asked for before they are copied


class Packing(Vectors):
    """Writes `pack` and `pack_transposed`, and what calls them."""

    def pack_block(
        self,
        f: Function,
        p: dict[str, Value],
        source: Value,
        row: Value,
        column: Value,
        columns: Value,
        factor: Value,
    ) -> None:
        """The columns of a block of B, one tile's width after the other."""
        with f.choice(f.compare("eq", column, 1)) as (yes, no):
            with yes:
                shape = (p["slivers"], p["base"], p["extra"], columns)
                given = (source, self.scaled(f, row), *shape, p["block"], factor)
                f.call("pack", "void", p["k"], *given)
            with no:
                apart = self.scaled(f, column)
                place, left = f.variable("ptr", p["block"]), f.variable("i64", columns)
                start = f.variable("ptr", source)
                with f.loop(p["slivers"]) as s:
                    width = self.width(f, p, s)
                    here = f.mul(width, self.lanes)
                    given = (width, left.get(), place.get(), factor)
                    f.call("pack_transposed", "void", p["k"], start.get(), apart, *given)
                    place.set(f.at(place.get(), f.mul(f.mul(p["k"], width), self.bytes)))
                    start.set(f.at(start.get(), f.mul(apart, here)))
                    left.set(f.sub(left.get(), here))

    def width(self, f: Function, p: dict[str, Value], s: Value) -> Value:
        """Vectors of tile `s` of a row of tiles: the first ones have one more than the others."""
        return f.add(p["base"], f.convert("zext", f.compare("slt", s, p["extra"]), "i64"))

    def pack(self) -> None:
        """Copy k rows of B times a factor, so that what each column of tiles reads is contiguous.

        Arguments: k, b, bytes from row to row, tiles, vectors of most, how many have one more, columns
        that exist, target, factor.
        """
        kinds = ["i64", "ptr", "i64", "i64", "i64", "i64", "i64", "ptr", self.t]
        with Function(self.module, "pack", "void", *kinds) as f:
            k, b, row, slivers, base, extra, columns, target, number = f.args
            factor = self.splat(f, number)
            vectors = f.add(f.mul(base, slivers), extra)
            last = f.sub(vectors, 1)
            mask = self.mask_of(f, f.sub(columns, f.mul(last, self.lanes)))
            done = f.variable("i64", 0)
            for rows in (AHEAD, 1):
                with f.loop(f.binary("sdiv", f.sub(k, done.get()), rows)):
                    source = f.variable("ptr", f.at(b, f.mul(row, done.get())))
                    place = f.variable("ptr", target)
                    with f.loop(slivers) as s:
                        width = self.width(f, {"base": base, "extra": extra}, s)
                        across = f.mul(width, self.bytes)
                        to = f.at(place.get(), f.mul(across, done.get()))
                        is_last = f.compare("eq", s, f.sub(slivers, 1))
                        edge = f.choose(is_last, mask, Value(self.mask, "splat (i1 true)"))
                        for w in range(1, WIDE + 1):
                            with f.when(f.compare("eq", width, w)):
                                self.pack_rows(f, rows, w, source.get(), row, edge, to, factor)
                        source.set(f.at(source.get(), across))
                        place.set(f.at(place.get(), f.mul(across, k)))
                    done.set(f.add(done.get(), rows))
            f.ret()

    def pack_rows(
        self,
        f: Function,
        rows: int,
        width: int,
        source: Value,
        row: Value,
        mask: Value,
        target: Value,
        factor: Value,
    ) -> None:
        """Some rows of one tile's width; the same of rows further down are asked for."""
        for r in range(rows):
            line = f.at(source, f.mul(row, r))
            *whole, last = [f.at(line, v * self.bytes) for v in range(width)]
            vectors = [*(self.load(f, p) for p in whole), self.masked_load(f, last, mask)]
            if rows > 1:
                for byte in range(0, width * self.bytes, LINE):
                    self.prefetch(f, f.at(f.at(line, f.mul(row, rows)), byte))
            for v, x in enumerate(vectors):
                self.save(f, self.times(f, x, factor), f.at(target, (r * width + v) * self.bytes))

    def pack_transposed(self) -> None:
        """The same where the elements of a column of B are contiguous, columns being apart.

        Arguments: k, b, bytes from column to column, width, columns, target, factor.
        """
        kinds = ["i64", "ptr", "i64", "i64", "i64", "ptr", self.t]
        with Function(self.module, "pack_transposed", "void", *kinds) as f:
            k, b, column, width, columns, target, number = f.args
            factor = self.splat(f, number)
            across = f.mul(width, self.bytes)
            whole = f.binary("sdiv", k, self.lanes)
            done = f.mul(whole, self.lanes)
            with f.loop(width) as v:
                left = f.sub(columns, f.mul(v, self.lanes))
                first = f.at(b, f.mul(f.mul(v, self.lanes), column))
                place = f.index(target, v, self.bytes)
                full = f.compare("sge", left, self.lanes)
                with f.choice(full) as (yes, no):
                    with yes, f.loop(whole) as block:
                        self.transpose(f, first, column, place, across, block, factor)
                    with no:
                        self.one_by_one(f, first, column, place, across, i64(0), done, left, number)
                self.one_by_one(f, first, column, place, across, done, k, left, number)
            f.ret()

    def transpose(
        self,
        f: Function,
        b: Value,
        column: Value,
        target: Value,
        across: Value,
        block: Value,
        factor: Value,
    ) -> None:
        """A square block of as many rows and columns as there are lanes."""
        source = f.index(b, block, self.bytes)
        x = [self.load(f, f.at(source, f.mul(column, j))) for j in range(self.lanes)]
        start = f.at(target, f.mul(f.mul(block, self.lanes), across))
        for p, vector in enumerate(self.transposed(f, x)):
            self.save(f, self.times(f, vector, factor), f.at(start, f.mul(across, p)))

    def one_by_one(
        self,
        f: Function,
        b: Value,
        column: Value,
        target: Value,
        across: Value,
        start: Value,
        end: Value,
        left: Value,
        factor: Value,
    ) -> None:
        """Rows from start to end of one vector, zero beyond the columns that exist."""
        with f.loop(end, start) as p:
            place, source = f.at(target, f.mul(p, across)), f.index(b, p, self.size)
            self.save(f, self.zero, place)
            few = f.choose(f.compare("slt", left, self.lanes), left, i64(self.lanes))
            with f.loop(few) as j:
                x = f.load(f.at(source, f.mul(j, column)), 0, self.t)
                f.store(self.times(f, x, factor), f.index(place, j, self.size))

    def prefetch(self, f: Function, place: Value, write: bool = False) -> None:
        """Ask for a line: to be written soon, or to be read later, from the second-level cache."""
        kind = (i32(1), i32(3)) if write else (i32(0), i32(2))
        f.call("llvm.prefetch.p0", "void", place, *kind, i32(1))
