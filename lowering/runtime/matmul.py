"""Products of matrices of float32 and float64: routines of fnx's own, made with LLVM.

`void fnx_gemm_<dtype>(m, n, k, a, row, column, b, row, column, c, leading, work)` writes A B to C. Rows
and columns are that many elements apart, one of the two being 1; rows of C are contiguous. `work` has
`work_elements(n, k)` elements. `fnx_gemm_minus_<dtype>` subtracts A B from C.

A tile of C, eight or four rows of up to three vectors, is kept in registers while columns of A and
rows of B are multiplied, for up to `DEPTH` indices between them. B is packed for that, block by block,
so that what a tile reads is contiguous; threads share the rows of tiles. No thread is woken for little
work, and A is read where it is if its rows are contiguous.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from fnx.lowering.target import processor

from . import machine
from .compiler import once
from .irtext import Function, Value, i64
from .irvectors import DTYPES, Vectors

WIDE = 3  # vectors of a row of a tile, at most
DEPTH = 256  # indices that are summed over before the sums are added to C
VECTORS = 24  # of a row of a block of B: with DEPTH, what fits into half of a second-level cache
PIECE = 1 << 18  # multiplications that are worth a task of their own
GEMM = "i64 i64 i64 ptr i64 i64 ptr i64 i64 ptr i64 ptr".split()
MOST_ROWS = 8
PARTS = "m k a row column block c leading base extra slivers add lanes".split()


def name(dtype: str, routine: str = "gemm") -> str:
    return f"fnx_{routine}_{dtype}"


def work_elements(n: int, k: int, dtype: str) -> int:
    """Elements of a packed block of B."""
    lanes = processor.vector_bits() // 8 // DTYPES[dtype]
    return min(k, DEPTH) * min(-(-n // lanes), VECTORS) * lanes


@once
def address(dtype: str, routine: str = "gemm") -> int:
    """The address of a routine: gemm or gemm_minus."""
    return _code(dtype).addresses[name(dtype, routine)]


@once
def _code(dtype: str) -> machine.Code:
    from . import threads

    imports = {"fnx_parallel_for": threads.address()}
    exports = [name(dtype), name(dtype, "gemm_minus")]
    return machine.routine(name(dtype), lambda: text(dtype), exports, imports)


def text(dtype: str) -> str:
    """The LLVM IR of the routine for a dtype."""
    return str(_Routine(dtype).module)


class _Routine(Vectors):
    """Writes the functions of one dtype."""

    def __init__(self, dtype: str):
        super().__init__(dtype)
        self.rows = MOST_ROWS if processor.vector_bits() == 512 else 4  # of a tile: registers
        for width in range(1, WIDE + 1):
            self.tile(width, self.rows)
            self.tile(width, self.rows // 2)
        self.pack()
        self.pack_transposed()
        self.rows_task()
        self.gemm()
        for routine, add, factor in (("gemm", 0, "1.0"), ("gemm_minus", 1, "-1.0")):
            public = name(dtype, routine)
            with Function(self.module, public, "void", *GEMM, public=True) as f:
                f.call("gemm", "void", *f.args, i64(add), Value(self.t, factor))
                f.ret()

    # --- a tile of C

    def tile(self, width: int, height: int) -> None:
        """Rows of `width` vectors of C, of which the last vector has `lanes` lanes.

        Arguments: k; a, bytes from row to row, from column to column; rows that exist; b, bytes from
        row to row; c, bytes from row to row; lanes; whether to add to what C holds.
        """
        kinds = ["i64", "ptr", "i64", "i64", "i64", "ptr", "i64", "ptr", "i64", "i64", "i64"]
        with Function(self.module, f"tile{height}x{width}", "void", *kinds) as f:
            k, a, row, column, rows, b, step, c, leading, lanes, add = f.args
            mask, last = self.mask_of(f, lanes), f.sub(rows, 1)
            numbers = [
                f.choose(f.compare("slt", i64(r), rows), i64(r), last) for r in range(height)
            ]
            sources = [f.at(a, f.mul(r, row)) for r in numbers]
            targets = [f.at(c, f.mul(r, leading)) for r in numbers]

            def places(base: Value) -> list[Value]:
                return [f.at(base, v * self.bytes) for v in range(width)]

            def loaded(base: Value) -> list[Value]:
                *whole, rest = places(base)
                return [*(self.load(f, p) for p in whole), self.masked_load(f, rest, mask)]

            zero = Value(self.v, "zeroinitializer")
            sums = [[f.variable(self.v, zero) for _ in range(width)] for _ in range(height)]
            with f.when(f.compare("ne", add, 0)):
                for row_sums, target in zip(sums, targets, strict=True):
                    for s, x in zip(row_sums, loaded(target), strict=True):
                        s.set(x)
            offset, line = f.variable("i64", 0), f.variable("ptr", b)
            with f.loop(k):
                vectors = loaded(line.get())
                for row_sums, source in zip(sums, sources, strict=True):
                    x = self.splat(f, f.load(source, offset.get(), self.t))
                    for s, y in zip(row_sums, vectors, strict=True):
                        s.set(f.call(f"llvm.fma.{self.suffix}", self.v, x, y, s.get()))
                offset.set(f.add(offset.get(), column))
                line.set(f.at(line.get(), step))
            for r, (row_sums, target) in enumerate(zip(sums, targets, strict=True)):
                with f.when(f.compare("slt", i64(r), rows)):
                    *whole, rest = zip(row_sums, places(target), strict=True)
                    for s, p in whole:
                        f.do(f"store {s.get()}, {p}, align {self.size}")
                    self.masked_store(f, rest[0].get(), rest[1], mask)
            f.ret()

    # --- packing

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
            source, place = f.variable("ptr", b), f.variable("ptr", target)
            with f.loop(k) as p:
                line = f.mul(row, p)
                source.set(f.at(b, line))
                place.set(target)
                with f.loop(slivers) as s:
                    width = self.width(f, {"base": base, "extra": extra}, s)
                    across = f.mul(width, self.bytes)
                    to = f.at(place.get(), f.mul(across, p))
                    ends = f.convert("zext", f.compare("eq", s, f.sub(slivers, 1)), "i64")
                    whole = f.sub(width, ends)
                    with f.loop(whole) as v:
                        x = self.load(f, f.index(source.get(), v, self.bytes))
                        self.save(f, self.times(f, x, factor), f.index(to, v, self.bytes))
                    with f.when(f.compare("ne", ends, 0)):
                        x = self.masked_load(f, f.index(source.get(), whole, self.bytes), mask)
                        self.save(f, self.times(f, x, factor), f.index(to, whole, self.bytes))
                    source.set(f.at(source.get(), across))
                    place.set(f.at(place.get(), f.mul(across, k)))
            f.ret()

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

    # --- a block

    def rows_task(self) -> None:
        """The tiles of rows from lo to hi on a packed block of B."""
        with Function(self.module, "rows_task", "void", "ptr", "i64", "i64") as f:
            context, low, high = f.args
            p = {
                part: f.load(context, 8 * n, "ptr" if part in ("a", "block", "c") else "i64")
                for n, part in enumerate(PARTS)
            }
            copy = f.slot(self.t, self.rows * DEPTH)
            packs = f.compare("ne", p["column"], 1)
            row = f.variable("i64", self.scaled(f, p["row"]))
            column = f.variable("i64", self.scaled(f, p["column"]))
            source = f.variable("ptr", p["a"])
            with f.loop(high, low) as i:
                first = f.mul(i, self.rows)
                rows = f.sub(p["m"], first)
                rows = f.choose(f.compare("slt", rows, self.rows), rows, i64(self.rows))
                source.set(f.at(p["a"], f.mul(first, self.scaled(f, p["row"]))))
                with f.when(packs):
                    self.copy_rows(f, p, source.get(), rows, copy)
                    source.set(copy)
                    row.set(self.size)
                    column.set(self.rows * self.size)
                target = f.at(p["c"], f.mul(first, p["leading"]))
                self.tiles(f, p, source.get(), row.get(), column.get(), rows, target)
            f.ret()

    def copy_rows(
        self, f: Function, p: dict[str, Value], a: Value, rows: Value, copy: Value
    ) -> None:
        """A's rows of a tile, column after column."""
        whole = f.both(f.compare("eq", rows, self.rows), f.compare("eq", p["row"], 1))
        kind = f"<{self.rows} x {self.t}>"
        with f.loop(p["k"]) as k:
            source = f.at(a, f.mul(self.scaled(f, p["column"]), k))
            place = f.index(copy, k, self.rows * self.size)
            with f.choice(whole) as (yes, no):
                with yes:
                    x = f.emit(kind, f"load {kind}, {source}, align {self.size}")
                    f.do(f"store {x}, {place}, align {self.size}")
                with no, f.loop(rows) as r:
                    x = f.load(source, f.mul(self.scaled(f, p["row"]), r), self.t)
                    f.store(x, f.index(place, r, self.size))

    def tiles(
        self,
        f: Function,
        p: dict[str, Value],
        a: Value,
        row: Value,
        column: Value,
        rows: Value,
        c: Value,
    ) -> None:
        """The tiles of one row of tiles."""
        block, target = f.variable("ptr", p["block"]), f.variable("ptr", c)
        with f.loop(p["slivers"]) as s:
            width = self.width(f, p, s)
            is_last = f.compare("eq", s, f.sub(p["slivers"], 1))
            lanes = f.choose(is_last, p["lanes"], i64(self.lanes))
            across = f.mul(width, self.bytes)
            given = (p["k"], a, row, column, rows, block.get(), across)
            given = (*given, target.get(), p["leading"], lanes, p["add"])
            with f.choice(f.compare("sle", rows, self.rows // 2)) as arms:
                for arm, height in zip(arms, (self.rows // 2, self.rows), strict=True):
                    with arm:
                        for w in range(1, WIDE + 1):
                            with f.when(f.compare("eq", width, w)):
                                f.call(f"tile{height}x{w}", "void", *given)
            block.set(f.at(block.get(), f.mul(across, p["k"])))
            target.set(f.at(target.get(), across))

    @contextmanager
    def blocks(self, f: Function, total: Value, most: int) -> Iterator[tuple[Value, Value]]:
        """for start in range(0, total, most): start, and how many there are up to the next one."""
        with f.loop(f.binary("sdiv", f.add(total, most - 1), most)) as number:
            start = f.mul(number, most)
            rest = f.sub(total, start)
            yield start, f.choose(f.compare("slt", rest, most), rest, i64(most))

    def gemm(self) -> None:
        """The blocks one after the other; two more arguments: whether to add to C, and a factor."""
        with Function(self.module, "gemm", "void", *GEMM, "i64", self.t) as f:
            m, n, k, a, row, column, b, row_b, column_b, c, leading, work, add, factor = f.args
            total = f.binary("sdiv", f.add(n, self.lanes - 1), self.lanes)
            context = f.slot("i64", len(PARTS))
            given = {"m": m, "row": row, "column": column, "block": work}
            given["leading"] = self.scaled(f, leading)
            with self.blocks(f, k, DEPTH) as (low, depth):
                given |= {"k": depth, "a": f.at(a, self.scaled(f, f.mul(low, column)))}
                given["add"] = f.add(low, add)
                with self.blocks(f, total, VECTORS) as (first, vectors):
                    left = f.mul(first, self.lanes)
                    start = f.add(f.mul(low, row_b), f.mul(left, column_b))
                    source, columns = f.at(b, self.scaled(f, start)), f.sub(n, left)
                    given["c"] = f.at(c, self.scaled(f, left))
                    given |= self.columns(f, vectors, columns)
                    self.pack_block(f, given, source, row_b, column_b, columns, factor)
                    for number, part in enumerate(PARTS):
                        f.store(given[part], context, 8 * number)
                    rounds = f.binary("sdiv", f.add(m, self.rows - 1), self.rows)
                    each = f.mul(f.mul(depth, vectors), self.rows * self.lanes)
                    grain = f.add(f.binary("sdiv", i64(PIECE), each), 1)
                    task = f.routine("rows_task")
                    f.call("fnx_parallel_for", "void", task, context, rounds, grain)
            f.ret()

    def columns(self, f: Function, vectors: Value, columns: Value) -> dict[str, Value]:
        """How the vectors of a row of a block are shared out to tiles; the lanes of the last one."""
        slivers = f.binary("sdiv", f.add(vectors, WIDE - 1), WIDE)
        base = f.binary("sdiv", vectors, slivers)
        beyond = f.sub(columns, f.mul(f.sub(vectors, 1), self.lanes))
        few = f.compare("slt", beyond, self.lanes)
        return {
            "slivers": slivers,
            "base": base,
            "extra": f.sub(vectors, f.mul(base, slivers)),
            "lanes": f.choose(few, beyond, i64(self.lanes)),
        }

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
