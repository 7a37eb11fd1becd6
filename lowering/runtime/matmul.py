"""Products of matrices of float32 and float64: routines of fnx's own, made with LLVM.

`void fnx_gemm_<dtype>(m, n, k, a, row, column, b, row, column, c, leading, work)` writes A B to C. Rows
and columns are that many elements apart, one of the two being 1; rows of C are contiguous. `work` has
`work_elements(n, k)` elements, unless `reads_in_place`. `fnx_gemm_minus_<dtype>` subtracts A B from C.

A tile of C, eight or four rows of three vectors, is kept in registers while columns of A and
rows of B are multiplied, for up to `DEPTH` indices between them. Large B are packed for that, block by
block, so that what a tile reads is contiguous, and so are A whose columns are. Small ones are read
where they are, and so are those that few rows are multiplied with. The last vector of a row ends with
it: it has columns in common with the one before, of the same tile, rather than lanes that do not exist.
Threads share the rows of tiles; no thread is woken for little work.

Between the loops of two tiles there must be few instructions (some hundred), or the products of the
first are done before those of the second arrive: hence one call for several tiles.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fnx.lowering.target import processor

from . import machine
from .compiler import once
from .irtext import Function, Value, Variable, i64
from .irvectors import DTYPES, Vectors, has_masks
from .matmul_pack import AHEAD, LINE, Packing

DEPTH = 256  # indices that are summed over before the sums are added to C
VECTORS = 27  # of a row of a block of B: with DEPTH, what fits into half of a second-level cache
NEAR = (
    1 << 15
)  # bytes of B for each row of a tile, which read it at once, from which on it is packed
TILES_AT_ONCE = 8  # below each other, of one call
PIECE = 1 << 18  # multiplications that are worth a task of their own
GROUP = 128  # bytes of a column of A that are copied at once: few lines are then read twice
GEMM = "i64 i64 i64 ptr i64 i64 ptr i64 i64 ptr i64 ptr".split()


class Tile(NamedTuple):
    """Rows of a tile, vectors of such a row at most, and indices of one round of its loop."""

    rows: int
    wide: int
    unroll: int


# By the bits of a vector. The tile, a row of B and a number of A take most of 32 registers, or all 16.
# With more rows, where they are would not fit into the others.
TILES = {512: Tile(8, 3, 1), 256: Tile(4, 3, 2)}
PARTS = "m k a row column b step packed shift c leading base fewer slivers times lanes".split()
POINTERS = "a", "b", "c"


def name(dtype: str, routine: str = "gemm") -> str:
    return f"fnx_{routine}_{dtype}"


def work_elements(n: int, k: int, dtype: str) -> int:
    """Elements of a packed block of B."""
    lanes = processor.vector_bits() // 8 // DTYPES[dtype]
    return min(k, DEPTH) * min(-(-n // lanes), VECTORS) * lanes


def reads_in_place(m: int, n: int, k: int, dtype: str) -> bool:
    """Whether B is read where it is if its rows are contiguous; `gemm` asks the same."""
    bits, size = processor.vector_bits(), DTYPES[dtype]
    rows = TILES[bits].rows
    return 8 * n * size >= bits and (m <= rows or n * k * size < NEAR * rows)


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


class _Routine(Packing):
    """Writes the functions of one dtype."""

    def __init__(self, dtype: str):
        super().__init__(dtype)
        self.dtype = dtype
        self.rows, self.wide, self.unroll = TILES[processor.vector_bits()]
        # Tiles whose rows of A are copied at once.
        self.group = max(4, GROUP // self.rows // self.size)
        for width in range(1, self.wide + 1):
            for height in (self.rows // 2, self.rows):
                self.kernel(width, height)
        self.pack()
        self.pack_transposed()
        self.pack_tasks()
        self.rows_task()
        self.gemm()
        for routine, times in (("gemm", 0), ("gemm_minus", -1)):
            public = name(dtype, routine)
            with Function(self.module, public, "void", *GEMM, public=True) as f:
                f.call("gemm", "void", *f.args, i64(times))
                f.ret()

    # --- tiles of C

    def kernel(self, width: int, height: int) -> None:
        """Tiles below each other, each rows of `width` vectors of C.

        Arguments: how many; k; a, bytes from tile to tile, from row to row, from column to column; rows
        that a tile has; what to ask for, and bytes to what the next round asks for; b, bytes from
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
        """The products of rows of A and columns of B; a line is asked for in each round.

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
        rounds = f.binary("sdiv", k, self.unroll)
        rest = f.sub(k, f.mul(rounds, self.unroll))
        for count, steps in [(rounds, self.unroll), (rest, 1)][: self.unroll]:
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

    # --- a block

    def rows_task(self) -> None:
        """The tiles of rows from lo to hi on a block of B."""
        with Function(self.module, "rows_task", "void", "ptr", "i64", "i64") as f:
            context, low, high = f.args
            p = {
                part: f.load(context, 8 * n, "ptr" if part in POINTERS else "i64")
                for n, part in enumerate(PARTS)
            }
            copies = f.slot(self.t, self.group * self.rows * DEPTH, LINE)
            packed, by_columns = (
                f.compare("ne", p[part], n) for part, n in (("packed", 0), ("column", 1))
            )
            # What is read once need not be copied.
            copied = f.both(by_columns, packed, f.compare("sgt", p["slivers"], 1))
            group = f.choose(copied, i64(self.group), i64(TILES_AT_ONCE))
            row, column = self.scaled(f, p["row"]), self.scaled(f, p["column"])
            apart, size = f.mul(row, self.rows), self.size
            p["far"] = f.choose(by_columns, column, row)
            near = f.mul(f.choose(by_columns, column, i64(size)), self.unroll)
            p["near"] = f.choose(packed, near, i64(0))  # where B is small, A is near already
            p["row"] = f.choose(copied, i64(size), row)
            p["column"] = f.choose(copied, i64(self.rows * size), column)
            p["apart"] = f.choose(copied, i64(self.rows * DEPTH * size), apart)
            after = f.sub(f.mul(apart, f.add(group, 1)), 1)  # of the same tile of the next group
            after = f.choose(by_columns, after, f.mul(apart, group))
            most = f.mul(group, self.rows)
            bottom = f.mul(high, self.rows)
            bottom = f.choose(f.compare("slt", p["m"], bottom), p["m"], bottom)
            shares = [
                f.binary("sdiv", f.add(f.sub(high, low), n - 1), n)
                for n in (self.group, TILES_AT_ONCE)
            ]
            rounds = f.choose(copied, *shares)  # divisions by constants are quick
            with f.loop(rounds) as number:
                first = f.add(low, f.mul(number, group))
                left = f.sub(bottom, f.mul(first, self.rows))
                rows = f.choose(f.compare("slt", left, most), left, most)
                a = f.variable("ptr", f.at(p["a"], f.mul(first, apart)))
                later = f.at(a.get(), after)
                with f.when(copied):
                    self.copy_rows(f, p["k"], a.get(), column, rows, copies)
                    a.set(copies)
                c = f.at(p["c"], f.mul(f.mul(first, self.rows), p["leading"]))
                self.tiles(f, p | {"a": a.get(), "c": c, "later": later}, rows, packed)
            f.ret()

    def copy_rows(
        self, f: Function, k: Value, a: Value, column: Value, rows: Value, copies: Value
    ) -> None:
        """A's rows of a group of tiles, which are contiguous columns: one column after the other."""
        kit = Vectors(self.dtype, self.rows, self.module)
        panel = self.rows * DEPTH * self.size
        with f.choice(f.compare("eq", rows, self.group * self.rows)) as (whole, some):
            with whole, f.loop(k) as p:
                source, to = f.at(a, f.mul(column, p)), f.at(copies, f.mul(p, kit.bytes))
                for byte in range(0, self.group * kit.bytes, LINE * 2):
                    self.prefetch(f, f.at(f.at(source, f.mul(column, AHEAD)), byte))
                for g in range(self.group):
                    kit.save(f, kit.load(f, f.at(source, g * kit.bytes)), f.at(to, g * panel))
            with some, f.loop(f.binary("sdiv", f.add(rows, self.rows - 1), self.rows)) as g:
                mask = kit.mask_of(f, f.sub(rows, f.mul(g, self.rows)))
                source, to = f.index(a, g, kit.bytes), f.index(copies, g, panel)
                with f.loop(k) as p:
                    x = kit.masked_load(f, f.at(source, f.mul(column, p)), mask)
                    kit.save(f, x, f.index(to, p, kit.bytes))

    def tiles(self, f: Function, p: dict[str, Value], rows: Value, packed: Value) -> None:
        """The tiles of some rows, one column of tiles after the other."""
        b, c, later = (f.variable("ptr", p[part]) for part in ("b", "c", "later"))
        whole = f.binary("sdiv", rows, self.rows)
        done = f.mul(whole, self.rows)
        rest = f.sub(rows, done)
        below = f.at(p["a"], f.mul(whole, p["apart"]))
        with f.loop(p["slivers"]) as s:
            width = self.width(f, p, s)
            across = f.mul(width, self.bytes)
            last = f.sub(across, self.bytes)
            is_last = f.compare("eq", s, f.sub(p["slivers"], 1))
            end = f.sub(last, f.choose(is_last, p["shift"], i64(0)))
            line = b.get(), f.choose(packed, across, p["step"]), f.choose(packed, last, end)
            tall, low = (self.kernel_of(f, width, h) for h in (self.rows, self.rows // 2))

            def call(kernel: Value, count: Value, a: Value, rows: Value, c: Value) -> None:
                source = a, p["apart"], p["row"], p["column"], rows
                target = c, p["leading"], end, p["lanes"], p["times"]
                ahead = later.get(), p["near"]
                f.call_at(kernel, "void", count, p["k"], *source, *ahead, *line, *target)

            with f.when(f.compare("sgt", whole, 0)):
                call(tall, whole, p["a"], i64(self.rows), c.get())
            with f.when(f.compare("sgt", rest, 0)):
                kernel = f.choose(f.compare("sle", rest, self.rows // 2), low, tall)
                call(kernel, i64(1), below, rest, f.at(c.get(), f.mul(done, p["leading"])))
            b.set(f.at(b.get(), f.choose(packed, f.mul(across, p["k"]), across)))
            c.set(f.at(c.get(), across))
            later.set(f.at(later.get(), p["far"]))

    def kernel_of(self, f: Function, width: Value, height: int) -> Value:
        """The kernel for tiles of a width."""
        kernel = f.routine(self.kernel_name(self.wide, height))
        for w in range(1, self.wide):
            this = f.routine(self.kernel_name(w, height))
            kernel = f.choose(f.compare("eq", width, w), this, kernel)
        return kernel

    def gemm(self) -> None:
        """The blocks one after the other; one more argument: a Target's `times`."""
        with Function(self.module, "gemm", "void", *GEMM, "i64") as f:
            m, n, k, a, row, column, b, row_b, column_b, c, leading, work, times = f.args
            reads = self.reads_in_place(f, m, n, k, column_b)
            total = f.binary("sdiv", f.add(n, self.lanes - 1), self.lanes)
            few = f.compare("slt", n, self.lanes)
            # The last vector of a row begins so many columns earlier that it ends with the row.
            beyond = f.choose(few, i64(0), f.sub(f.mul(total, self.lanes), n))
            given = {"m": m, "row": row, "column": column, "leading": self.scaled(f, leading)}
            given["step"] = given["down"] = self.scaled(f, row_b)
            across = self.scaled(f, column_b)
            given["packed"] = f.convert("zext", f.negate(reads), "i64")
            given["lanes"] = f.choose(few, n, i64(self.lanes))
            slivers = f.binary("sdiv", f.add(total, self.wide - 1), self.wide)
            count, base, fewer = self.shares(f, slivers, VECTORS // self.wide)
            with f.loop(f.binary("sdiv", f.add(k, DEPTH - 1), DEPTH)) as block:
                low, first = f.mul(block, DEPTH), f.variable("i64", 0)
                depth = f.sub(k, low)
                depth = f.choose(f.compare("slt", depth, DEPTH), depth, i64(DEPTH))
                given |= {"k": depth, "a": f.at(a, self.scaled(f, f.mul(low, column)))}
                later = f.convert("zext", f.compare("sgt", low, 0), "i64")
                given["times"] = f.choose(f.compare("ne", times, 0), times, later)
                with f.loop(count) as number:
                    vectors = f.mul(
                        self.width(f, {"base": base, "fewer": fewer}, number), self.wide
                    )
                    rest = f.sub(total, first.get())
                    vectors = f.choose(f.compare("slt", vectors, rest), vectors, rest)
                    left = f.mul(first.get(), self.lanes)
                    start = f.add(f.mul(low, row_b), f.mul(left, column_b))
                    source = f.at(b, self.scaled(f, start))
                    is_last = f.compare("eq", number, f.sub(count, 1))
                    shift = f.choose(is_last, beyond, i64(0))
                    given |= {"c": f.at(c, self.scaled(f, left)), "shift": self.scaled(f, shift)}
                    given["b"] = f.choose(reads, source, work)
                    parts = self.shares(f, vectors, self.wide)
                    given |= dict(zip(("slivers", "base", "fewer"), parts, strict=True))
                    with f.when(f.negate(reads)):
                        self.pack_block(f, given | {"source": source, "across": across}, vectors)
                    self.block(f, given, vectors)
                    first.set(f.add(first.get(), vectors))
            f.ret()

    def reads_in_place(self, f: Function, m: Value, n: Value, k: Value, column: Value) -> Value:
        """Whether B is read where it is."""
        small = f.compare("slt", f.mul(f.mul(n, k), self.size), NEAR * self.rows)
        pays = f.either(f.compare("sle", m, self.rows), small)
        return f.both(f.compare("eq", column, 1), f.compare("sge", n, self.lanes), pays)

    def block(self, f: Function, given: dict[str, Value], vectors: Value) -> None:
        """Threads share the rows of tiles of a block."""
        context = f.slot("i64", len(PARTS))
        for number, part in enumerate(PARTS):
            f.store(given[part], context, 8 * number)
        rounds = f.binary("sdiv", f.add(given["m"], self.rows - 1), self.rows)
        each = f.mul(f.mul(given["k"], vectors), self.rows * self.lanes)
        task = f.routine("rows_task")
        with f.choice(f.compare("sle", f.mul(rounds, each), PIECE)) as (little, much):
            with little:
                f.call("rows_task", "void", context, i64(0), rounds)
            with much:
                grain = f.add(f.binary("sdiv", i64(PIECE), each), 1)
                f.call("fnx_parallel_for", "void", task, context, rounds, grain)

    def shares(self, f: Function, total: Value, most: int) -> tuple[Value, Value, Value]:
        """Even shares: how many, what the first have, how many those are; others have one more."""
        count = f.binary("sdiv", f.add(total, most - 1), most)
        base = f.variable("i64", total)
        with f.when(f.compare("sgt", count, 1)):
            base.set(f.binary("sdiv", total, count))
        base = base.get()
        return count, base, f.sub(f.mul(f.add(base, 1), count), total)
