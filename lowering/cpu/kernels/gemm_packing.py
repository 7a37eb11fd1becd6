"""Packing of B for gemm.py (Goto & van de Geijn 2008): columns, a tile's width after the other.

The vectors of a row of a block are shared out to tiles (`slivers`) evenly: the first `fewer` have `base`
each, the others one more. So the last has two where there are two: its vectors may overlap.
"""

from fnx.lowering.cpu.llvm.ir_builder import Function, Value, i32, i64
from fnx.lowering.cpu.llvm.ir_vectors import Vectors
from fnx.lowering.cpu.processor import thresholds

LINE = 64  # bytes that memory hands out at once
SQUARE = 8  # rows and columns that are transposed at once, at most
PACKED = "k b slivers base fewer shift lanes source down across".split()


class Packing(Vectors):
    """Writes `pack` and `pack_transposed`, and what calls them, on threads."""

    wide: int  # vectors of a row of a tile, at most

    def pack_block(self, f: Function, p: dict[str, Value], vectors: Value) -> None:
        """The columns of a block of B, one tile's width after the other; threads share them.

        What each reads again later it then has near, in part.
        """
        context = f.slot("i64", len(PACKED))
        for number, part in enumerate(PACKED):
            f.store(p[part], context, 8 * number)
        by_rows = f.compare("eq", p["across"], self.size)
        iterations = f.binary(
            "sdiv", f.add(p["k"], thresholds.PACKED_ROWS - 1), thresholds.PACKED_ROWS
        )
        iterations = f.choose(by_rows, iterations, p["slivers"])
        task = f.choose(by_rows, f.routine("pack_rows"), f.routine("pack_slivers"))
        grain = f.binary(
            "sdiv",
            f.mul(iterations, thresholds.PACKED_PIECE),
            f.mul(p["k"], f.mul(vectors, self.lanes)),
        )
        f.call("fnx_parallel_for", "void", task, context, iterations, f.add(grain, 1))

    def packed(self, f: Function) -> dict[str, Value]:
        return {
            part: f.load(f.args[0], 8 * n, "ptr" if part in ("source", "b") else "i64")
            for n, part in enumerate(PACKED)
        }

    def pack_tasks(self) -> None:
        """ROWS rows of B each, or columns of a tile's width."""
        with Function(self.module, "pack_rows", "void", "ptr", "i64", "i64") as f:
            p, low, high = (
                self.packed(f),
                f.mul(f.args[1], thresholds.PACKED_ROWS),
                f.mul(f.args[2], thresholds.PACKED_ROWS),
            )
            high = f.choose(f.compare("slt", high, p["k"]), high, p["k"])
            shape = (p["slivers"], p["base"], p["fewer"])
            given = (p["source"], p["down"], *shape, p["shift"], p["lanes"], p["b"])
            f.call("pack", "void", p["k"], *given, low, high)
            f.ret()
        with Function(self.module, "pack_slivers", "void", "ptr", "i64", "i64") as f:
            p = self.packed(f)
            last = f.sub(p["slivers"], 1)
            with f.loop(f.args[2], f.args[1]) as s:
                width = self.width(f, p, s)
                more = f.sub(s, p["fewer"])
                more = f.choose(f.compare("sgt", more, 0), more, i64(0))
                before = f.add(f.mul(s, p["base"]), more)  # vectors
                place = f.at(p["b"], f.mul(f.mul(p["k"], before), self.bytes))
                start = f.at(p["source"], f.mul(p["across"], f.mul(before, self.lanes)))
                shift = f.binary("sdiv", p["shift"], self.size)
                back = f.choose(f.compare("eq", s, last), shift, i64(0))
                given = (width, back, p["lanes"], place)
                f.call("pack_transposed", "void", p["k"], start, p["across"], *given)
            f.ret()

    def width(self, f: Function, p: dict[str, Value], s: Value) -> Value:
        """Vectors of tile `s` of a row of tiles: the later ones have one more than the others."""
        return f.add(p["base"], f.convert("zext", f.compare("sge", s, p["fewer"]), "i64"))

    def pack(self) -> None:
        """Copy k rows of B, so that what each column of tiles reads is contiguous.

        Arguments: k, b, bytes from row to row, tiles, vectors of the first ones, how many those are,
        bytes by which the last vector begins earlier, lanes of a vector, target; which rows.
        """
        kinds = ["i64", "ptr", "i64", "i64", "i64", "i64", "i64", "i64", "ptr", "i64", "i64"]
        with Function(self.module, "pack", "void", *kinds) as f:
            k, b, row, slivers, base, fewer, shift, lanes, target, low, high = f.args
            mask, done = self.mask_of(f, lanes), f.variable("i64", low)
            for rows in (thresholds.PACKED_AHEAD, 1):
                with f.loop(f.binary("sdiv", f.sub(high, done.get()), rows)):
                    source = f.variable("ptr", f.at(b, f.mul(row, done.get())))
                    place = f.variable("ptr", target)
                    with f.loop(slivers) as s:
                        width = self.width(f, {"base": base, "fewer": fewer}, s)
                        across = f.mul(width, self.bytes)
                        back = f.choose(f.compare("eq", s, f.sub(slivers, 1)), shift, i64(0))
                        end = f.sub(f.sub(across, self.bytes), back)
                        to = f.at(place.get(), f.mul(across, done.get()))
                        for w in range(1, self.wide + 1):
                            with f.when(f.compare("eq", width, w)):
                                self.pack_few(f, rows, w, source.get(), row, end, mask, to)
                        source.set(f.at(source.get(), across))
                        place.set(f.at(place.get(), f.mul(across, k)))
                    done.set(f.add(done.get(), rows))
            f.ret()

    def pack_few(
        self,
        f: Function,
        rows: int,
        width: int,
        source: Value,
        row: Value,
        end: Value,
        mask: Value,
        target: Value,
    ) -> None:
        """Some rows of one tile's width; the same of rows further down are asked for."""
        for r in range(rows):
            line = f.at(source, f.mul(row, r))
            places = self.places(f, line, width, end)
            if width == 1:  # not all lanes need exist
                vectors = [self.masked_load(f, places[0], mask)]
            else:
                vectors = [self.load(f, place) for place in places]
            if rows > 1:
                later = f.at(line, f.mul(row, rows))
                for byte in range(0, width * self.bytes, LINE):
                    self.prefetch(f, f.at(later, byte))
            for v, x in enumerate(vectors):
                self.save(f, x, f.at(target, (r * width + v) * self.bytes))

    def places(self, f: Function, row: Value, width: int, end: Value) -> list[Value]:
        """The addresses of the vectors of a tile's row, the last of them `end` bytes from the first."""
        return [*(f.at(row, v * self.bytes) for v in range(width - 1)), f.at(row, end)]

    def pack_transposed(self) -> None:
        """The same for a tile's width, if elements of a column of B are contiguous, columns being apart.

        Arguments: k, b, bytes from column to column, width, columns by which the last vector begins
        earlier, lanes of a vector, target.
        """
        kinds = ["i64", "ptr", "i64", "i64", "i64", "i64", "ptr"]
        kit = Vectors(self.dtype, min(self.lanes, SQUARE), self.module)
        with Function(self.module, "pack_transposed", "void", *kinds) as f:
            k, b, column, width, shift, lanes, target = f.args
            across = f.mul(width, self.bytes)
            ratio = self.lanes // kit.lanes
            squares = f.binary("sdiv", k, kit.lanes)
            done = f.mul(squares, kit.lanes)
            last = f.mul(f.sub(width, 1), ratio)
            with f.loop(f.mul(width, ratio)) as v:
                back = f.choose(f.compare("slt", v, last), i64(0), shift)
                first = f.at(b, f.mul(f.sub(f.mul(v, kit.lanes), back), column))
                place = f.index(target, v, kit.bytes)
                start = f.variable("i64", 0)
                with f.when(f.compare("eq", lanes, self.lanes)):
                    with f.loop(squares) as block:
                        transpose(kit, f, first, column, place, across, block)
                    start.set(done)
                left = f.sub(lanes, f.mul(f.binary("srem", v, ratio), kit.lanes))
                one_by_one(kit, f, first, column, place, across, start.get(), k, left)
            f.ret()

    def prefetch(self, f: Function, place: Value, write: bool = False) -> None:
        """Ask for a line: to be written soon, or to be read later, from the second-level cache."""
        kind = (i32(1), i32(3)) if write else (i32(0), i32(2))
        f.call("llvm.prefetch.p0", "void", place, *kind, i32(1))


def transpose(
    kit: Vectors, f: Function, b: Value, column: Value, target: Value, across: Value, block: Value
) -> None:
    """A square block of as many rows and columns as there are lanes."""
    source = f.index(b, block, kit.bytes)
    x = [kit.load(f, f.at(source, f.mul(column, j))) for j in range(kit.lanes)]
    start = f.at(target, f.mul(f.mul(block, kit.lanes), across))
    for p, vector in enumerate(kit.transposed(f, x)):
        kit.save(f, vector, f.at(start, f.mul(across, p)))


def one_by_one(
    kit: Vectors,
    f: Function,
    b: Value,
    column: Value,
    target: Value,
    across: Value,
    start: Value,
    end: Value,
    left: Value,
) -> None:
    """Rows from start to end of one vector, zero beyond the columns that exist."""
    with f.loop(end, start) as p:
        place, source = f.at(target, f.mul(p, across)), f.index(b, p, kit.size)
        kit.save(f, kit.zero, place)
        few = f.choose(f.compare("slt", left, kit.lanes), left, i64(kit.lanes))
        with f.loop(few) as j:
            x = f.load(f.at(source, f.mul(j, column)), 0, kit.t)
            f.store(x, f.index(place, j, kit.size))
