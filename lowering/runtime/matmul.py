"""Products of matrices of float32 and float64: routines of fnx's own, made with LLVM.

`void fnx_gemm_<dtype>(m, n, k, a, row, column, b, row, column, c, leading, work)` writes A B to C. Rows
and columns are that many elements apart, one of the two being 1; rows of C are contiguous. `work` has
`work_elements(n, k)` elements. `fnx_gemm_minus_<dtype>` subtracts A B from C.

A tile of C, eight or four rows of up to three vectors, is kept in registers while columns of A and
rows of B are multiplied, for up to `DEPTH` indices between them. B is packed for that, block by block,
so that what a tile reads is contiguous; threads share the rows of tiles. No thread is woken for little
work, and A is read where it is if its rows are contiguous, or if one column of tiles is all that reads
it. While a tile is computed, what it is to be added to and what later ones read is fetched.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

from fnx.lowering.target import processor

from . import machine
from .compiler import once
from .irtext import Function, Value, Variable, i64
from .irvectors import DTYPES, Vectors
from .matmul_pack import AHEAD, LINE, WIDE, Packing

DEPTH = 256  # indices that are summed over before the sums are added to C
VECTORS = 24  # of a row of a block of B: with DEPTH, what fits into half of a second-level cache
PIECE = 1 << 18  # multiplications that are worth a task of their own
GROUP = 128  # bytes of a column of A that are copied at once: few lines are then read twice
GEMM = "i64 i64 i64 ptr i64 i64 ptr i64 i64 ptr i64 ptr".split()


class Tile(NamedTuple):
    """Rows of a tile, and indices of one round of its loop."""

    rows: int
    unroll: int


# By the bits of a vector. The tile, a row of B and a number of A take 28 of the 32 registers of
# AVX-512, and the 16 of AVX2 all.
TILES = {512: Tile(8, 1), 256: Tile(4, 4)}
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


class _Routine(Packing):
    """Writes the functions of one dtype."""

    def __init__(self, dtype: str):
        super().__init__(dtype)
        self.dtype = dtype
        self.rows, self.unroll = TILES[processor.vector_bits()]
        self.group = GROUP // self.rows // self.size  # tiles whose rows of A are copied at once
        for width in range(1, WIDE + 1):
            self.tile(width, self.rows, whole=True)
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

    def tile(self, width: int, height: int, whole: bool = False) -> None:
        """Rows of `width` vectors of C, of which the last vector has `lanes` lanes.

        Arguments: k; a, bytes from row to row, from column to column; rows that exist (all of a whole
        tile's); what to ask for, and bytes to what the next round asks for; b, packed; c, bytes from
        row to row; lanes; whether to add to what C holds.
        """
        kinds = "i64 ptr i64 i64 i64 ptr i64 ptr ptr i64 i64 i64".split()
        with Function(self.module, self.tile_name(width, height, whole), "void", *kinds) as f:
            k, a, row, column, rows, later, apart, b, c, leading, lanes, add = f.args
            last = f.sub(rows, 1)
            numbers = [
                i64(r) if whole else f.choose(f.compare("slt", i64(r), rows), i64(r), last)
                for r in range(height)
            ]
            sources = [f.at(a, f.mul(r, row)) for r in numbers]
            targets = [f.at(c, f.mul(r, leading)) for r in numbers]
            for target in targets:
                for byte in (*range(0, width * self.bytes, LINE), width * self.bytes - 1):
                    self.prefetch(f, f.at(target, byte), write=True)
            sums = self.sums(f, k, sources, column, b, width, (later, apart))
            mask, adds = self.mask_of(f, lanes), f.compare("ne", add, 0)
            for r, (row_sums, target) in enumerate(zip(sums, targets, strict=True)):
                with nullcontext() if whole else f.when(f.compare("slt", i64(r), rows)):
                    self.finish(f, row_sums, target, mask, adds)
            f.ret()

    def sums(
        self,
        f: Function,
        k: Value,
        sources: list[Value],
        column: Value,
        b: Value,
        width: int,
        ahead: tuple[Value, Value],
    ) -> list[list[Variable]]:
        """The products of rows of A and packed columns of B; a line is asked for in each round."""
        # Where there are few sums, each is two: an addition waits for the one before.
        ways = 2 if width == 1 and self.unroll > 1 else 1
        sums = [
            [[f.variable(self.v, self.zero) for _ in range(width)] for _ in sources]
            for _ in range(ways)
        ]
        offset, line, asked = (
            f.variable("i64", 0),
            f.variable("ptr", b),
            f.variable("ptr", ahead[0]),
        )
        rounds = f.binary("sdiv", k, self.unroll)
        rest = f.sub(k, f.mul(rounds, self.unroll))
        for count, steps in [(rounds, self.unroll), (rest, 1)][: self.unroll]:
            with f.loop(count):
                if steps > 1:
                    self.prefetch(f, asked.get())
                    asked.set(f.at(asked.get(), ahead[1]))
                for step in range(steps):
                    start = f.at(line.get(), step * width * self.bytes)
                    vectors = [self.load(f, f.at(start, v * self.bytes)) for v in range(width)]
                    for row_sums, source in zip(sums[step % ways], sources, strict=True):
                        x = self.splat(f, f.load(source, offset.get(), self.t))
                        for s, y in zip(row_sums, vectors, strict=True):
                            s.set(f.call(f"llvm.fma.{self.suffix}", self.v, x, y, s.get()))
                    offset.set(f.add(offset.get(), column))
                line.set(f.at(line.get(), steps * width * self.bytes))
        for others in sums[1:]:
            for [s], [other] in zip(sums[0], others, strict=True):
                s.set(f.binary("fadd", s.get(), other.get()))
        return sums[0]

    def tile_name(self, width: int, height: int, whole: bool) -> str:
        return f"tile{height}x{width}{'whole' if whole else ''}"

    def finish(
        self, f: Function, sums: list[Variable], target: Value, mask: Value, adds: Value
    ) -> None:
        """A row of a tile to where it belongs."""
        *whole, last = [f.at(target, v * self.bytes) for v in range(len(sums))]
        with f.when(adds):
            before = [*(self.load(f, p) for p in whole), self.masked_load(f, last, mask)]
            for s, x in zip(sums, before, strict=True):
                s.set(f.binary("fadd", s.get(), x))
        for s, place in zip(sums, whole):
            self.save(f, s.get(), place)
        self.masked_store(f, sums[-1].get(), last, mask)

    # --- a block

    def rows_task(self) -> None:
        """The tiles of rows from lo to hi on a packed block of B."""
        with Function(self.module, "rows_task", "void", "ptr", "i64", "i64") as f:
            context, low, high = f.args
            p = {
                part: f.load(context, 8 * n, "ptr" if part in ("a", "block", "c") else "i64")
                for n, part in enumerate(PARTS)
            }
            panel = self.rows * DEPTH * self.size
            copies = f.slot(self.t, self.group * self.rows * DEPTH)
            # What is read once need not be copied.
            by_columns = f.compare("ne", p["column"], 1)
            packs = f.both(by_columns, f.compare("sgt", p["slivers"], 1))
            row = f.variable("i64", self.scaled(f, p["row"]))
            column = f.variable("i64", self.scaled(f, p["column"]))
            source = f.variable("ptr", p["a"])
            far = self.scaled(f, p["column"])
            with f.loop(high, low) as i:
                first = f.mul(i, self.rows)
                left = f.sub(p["m"], first)
                rows = f.choose(f.compare("slt", left, self.rows), left, i64(self.rows))
                source.set(f.at(p["a"], f.mul(first, self.scaled(f, p["row"]))))
                end = GROUP + self.rows * self.size - 1  # of the same tile of the next group
                after = f.choose(by_columns, i64(end), f.mul(row.get(), self.rows))
                later = f.at(source.get(), after)
                with f.when(packs):
                    number = f.binary("srem", f.sub(i, low), self.group)
                    with f.when(f.compare("eq", number, 0)):
                        self.copy_rows(f, p, source.get(), left, copies)
                    source.set(f.at(copies, f.mul(number, panel)))
                    row.set(self.size)
                    column.set(self.rows * self.size)
                target = f.at(p["c"], f.mul(first, p["leading"]))
                ahead = (
                    later,
                    f.choose(by_columns, far, row.get()),
                    f.choose(by_columns, far, i64(self.size)),
                )
                self.tiles(f, p, source.get(), row.get(), column.get(), rows, target, ahead)
            f.ret()

    def copy_rows(
        self, f: Function, p: dict[str, Value], a: Value, left: Value, copies: Value
    ) -> None:
        """A's rows of a group of tiles, which are contiguous columns: one column after the other."""
        kit = Vectors(self.dtype, self.rows, self.module)
        column, panel = self.scaled(f, p["column"]), self.rows * DEPTH * self.size
        with f.choice(f.compare("sge", left, self.group * self.rows)) as (whole, some):
            with whole, f.loop(p["k"]) as k:
                source, to = f.at(a, f.mul(column, k)), f.at(copies, f.mul(k, kit.bytes))
                self.prefetch(f, f.at(source, f.mul(column, AHEAD)))
                for g in range(self.group):
                    kit.save(f, kit.load(f, f.at(source, g * kit.bytes)), f.at(to, g * panel))
            with some, f.loop(f.binary("sdiv", f.add(left, self.rows - 1), self.rows)) as g:
                mask = kit.mask_of(f, f.sub(left, f.mul(g, self.rows)))
                source, to = f.index(a, g, kit.bytes), f.index(copies, g, panel)
                with f.loop(p["k"]) as k:
                    x = kit.masked_load(f, f.at(source, f.mul(column, k)), mask)
                    kit.save(f, x, f.index(to, k, kit.bytes))

    def tiles(
        self,
        f: Function,
        p: dict[str, Value],
        a: Value,
        row: Value,
        column: Value,
        rows: Value,
        c: Value,
        ahead: tuple[Value, Value, Value],
    ) -> None:
        """The tiles of one row of tiles.

        `ahead`: what is asked for meanwhile, bytes from what one tile asks for to the next, and from one
        index of a tile to the next.
        """
        block, target = f.variable("ptr", p["block"]), f.variable("ptr", c)
        with f.loop(p["slivers"]) as s:
            width = self.width(f, p, s)
            is_last = f.compare("eq", s, f.sub(p["slivers"], 1))
            lanes = f.choose(is_last, p["lanes"], i64(self.lanes))
            across = f.mul(width, self.bytes)
            later, apart = f.at(ahead[0], f.mul(ahead[1], s)), f.mul(ahead[2], self.unroll)
            given = (p["k"], a, row, column, rows, later, apart, block.get())
            given = (*given, target.get(), p["leading"], lanes, p["add"])
            with f.choice(f.compare("eq", rows, self.rows)) as (all_, some):
                with all_:
                    self.call_tile(f, width, self.rows, True, given)
                with some, f.choice(f.compare("sle", rows, self.rows // 2)) as (few, many):
                    for arm, height in (few, self.rows // 2), (many, self.rows):
                        with arm:
                            self.call_tile(f, width, height, False, given)
            block.set(f.at(block.get(), f.mul(across, p["k"])))
            target.set(f.at(target.get(), across))

    def call_tile(
        self, f: Function, width: Value, height: int, whole: bool, given: tuple[Value, ...]
    ) -> None:
        for w in range(1, WIDE + 1):
            with f.when(f.compare("eq", width, w)):
                f.call(self.tile_name(w, height, whole), "void", *given)

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
