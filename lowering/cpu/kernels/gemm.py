"""Products of matrices (GEMM) of float32 and float64, blocked for caches (Goto & van de Geijn 2008).

`void fnx_gemm_<dtype>(m, n, k, a, row, column, b, row, column, c, leading, work)` writes A B to C. Rows
and columns are that many elements apart, one of the two being 1; rows of C are contiguous. `work` has
`work_elements(n, k)` elements, unless `reads_in_place`. `fnx_gemm_minus_<dtype>` subtracts A B from C.

A tile of C, eight or four rows of three vectors, is kept in registers while columns of A and rows
of B are multiplied, for up to `GEMM_DEPTH` indices between them (gemm_microkernel.py). Large B are
packed for that, block by block, so that what a tile reads is contiguous, and so are A whose columns
are. Small ones are read where they are, and so are those that few rows are multiplied with, unless
they are far larger.
The last vector of a row ends with it: it has columns in common with the one before, of the same tile,
rather than lanes that do not exist. Threads share the rows of tiles, or their columns if those are more
and B is read where it is; no thread is woken for little work.

Between the loops of two tiles there must be few instructions (some hundred), or the products of the
first are done before those of the second arrive: hence one call for several tiles.
"""

from fnx.lowering.cpu.llvm.ir_builder import Function, Value, i64
from fnx.lowering.cpu.llvm.ir_vectors import DTYPES, Vectors
from fnx.lowering.cpu.processor import features, thresholds

from .gemm_microkernel import TILES, Tiles
from .gemm_packing import LINE
from .routine_names import name

GEMM = "i64 i64 i64 ptr i64 i64 ptr i64 i64 ptr i64 ptr".split()
PARTS = "m k a row column b step packed shift c leading base fewer slivers times lanes".split()
POINTERS = "a", "b", "c"


def work_elements(n: int, k: int, dtype: str) -> int:
    """Elements of a packed block of B."""
    lanes = features.vector_bits() // 8 // DTYPES[dtype]
    return min(k, thresholds.GEMM_DEPTH) * min(-(-n // lanes), thresholds.GEMM_VECTORS) * lanes


def reads_in_place(m: int, n: int, k: int, dtype: str) -> bool:
    """Whether B is read where it is if its rows are contiguous; `gemm` asks the same."""
    bits, everything = features.vector_bits(), n * k * DTYPES[dtype]
    rows = TILES[bits].rows
    few = m <= rows or m <= thresholds.GEMM_FEW[bits] * rows and everything <= thresholds.GEMM_FAR
    return 8 * n * DTYPES[dtype] >= bits and (few or everything < thresholds.GEMM_NEAR * rows)


def text(dtype: str) -> str:
    """The LLVM IR of the routine for a dtype."""
    return str(_Routine(dtype).module)


class _Routine(Tiles):
    """Writes the functions of one dtype."""

    def __init__(self, dtype: str):
        super().__init__(dtype)
        self.dtype = dtype
        self.rows, self.wide, self.unroll = TILES[features.vector_bits()]
        # Tiles whose rows of A are copied at once.
        self.group = max(4, thresholds.GEMM_GROUP // self.rows // self.size)
        for width in range(1, self.wide + 1):
            for height in (self.rows // 2, self.rows):
                self.kernel(width, height)
        self.pack()
        self.pack_transposed()
        self.pack_tasks()
        self.rows_task()
        self.columns_task()
        self.gemm()
        for routine, times in (("gemm", 0), ("gemm_minus", -1)):
            public = name(routine, dtype)
            with Function(self.module, public, "void", *GEMM, public=True) as f:
                f.call("gemm", "void", *f.args, i64(times))
                f.ret()

    # --- a block

    def rows_task(self) -> None:
        """The tiles of rows from lo to hi on a block of B."""
        with Function(self.module, "rows_task", "void", "ptr", "i64", "i64") as f:
            context, low, high = f.args
            p = {
                part: f.load(context, 8 * n, "ptr" if part in POINTERS else "i64")
                for n, part in enumerate(PARTS)
            }
            copies = f.slot(self.t, self.group * self.rows * thresholds.GEMM_DEPTH, LINE)
            packed, by_columns = (
                f.compare("ne", p[part], n) for part, n in (("packed", 0), ("column", 1))
            )
            # What is read once need not be copied.
            copied = f.both(by_columns, packed, f.compare("sgt", p["slivers"], 1))
            group = f.choose(copied, i64(self.group), i64(thresholds.GEMM_TILES))
            row, column = self.scaled(f, p["row"]), self.scaled(f, p["column"])
            apart, size = f.mul(row, self.rows), self.size
            p["far"] = f.choose(by_columns, column, row)
            near = f.mul(f.choose(by_columns, column, i64(size)), self.unroll)
            p["near"] = f.choose(packed, near, i64(0))  # where B is small, A is near already
            p["row"] = f.choose(copied, i64(size), row)
            p["column"] = f.choose(copied, i64(self.rows * size), column)
            p["apart"] = f.choose(copied, i64(self.rows * thresholds.GEMM_DEPTH * size), apart)
            after = f.sub(f.mul(apart, f.add(group, 1)), 1)  # of the same tile of the next group
            after = f.choose(by_columns, after, f.mul(apart, group))
            most = f.mul(group, self.rows)
            bottom = f.mul(high, self.rows)
            bottom = f.choose(f.compare("slt", p["m"], bottom), p["m"], bottom)
            shares = [
                f.binary("sdiv", f.add(f.sub(high, low), n - 1), n)
                for n in (self.group, thresholds.GEMM_TILES)
            ]
            iterations = f.choose(copied, *shares)  # divisions by constants are quick
            with f.loop(iterations) as number:
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

    def columns_task(self) -> None:
        """The columns of tiles from lo to hi on a block of B that is read where it is."""
        with Function(self.module, "columns_task", "void", "ptr", "i64", "i64") as f:
            context, low, high = f.args
            own = f.slot("i64", len(PARTS))
            p = {part: f.load(context, 8 * n) for n, part in enumerate(PARTS)}
            before = f.sub(low, p["fewer"])
            before = f.choose(f.compare("sgt", before, 0), before, i64(0))
            fewer = f.sub(p["fewer"], f.sub(low, before))
            before = f.mul(f.add(f.mul(low, p["base"]), before), self.bytes)
            is_last = f.compare("eq", high, p["slivers"])
            p |= {part: f.add(p[part], before) for part in ("b", "c")}
            p |= {"slivers": f.sub(high, low), "fewer": fewer}
            p["shift"] = f.choose(is_last, p["shift"], i64(0))
            for n, part in enumerate(PARTS):
                f.store(p[part], own, 8 * n)
            iterations = f.binary("sdiv", f.add(p["m"], self.rows - 1), self.rows)
            f.call("rows_task", "void", own, i64(0), iterations)
            f.ret()

    def copy_rows(
        self, f: Function, k: Value, a: Value, column: Value, rows: Value, copies: Value
    ) -> None:
        """A's rows of a group of tiles, which are contiguous columns: one column after the other."""
        kit = Vectors(self.dtype, self.rows, self.module)
        panel = self.rows * thresholds.GEMM_DEPTH * self.size
        with f.choice(f.compare("eq", rows, self.group * self.rows)) as (whole, some):
            with whole, f.loop(k) as p:
                source, to = f.at(a, f.mul(column, p)), f.at(copies, f.mul(p, kit.bytes))
                for byte in range(0, self.group * kit.bytes, LINE * 2):
                    self.prefetch(
                        f, f.at(f.at(source, f.mul(column, thresholds.PACKED_AHEAD)), byte)
                    )
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
            parts = self.shares(f, slivers, thresholds.GEMM_VECTORS // self.wide)
            # What is not packed is one block.
            whole = i64(1), slivers, i64(1)
            count, base, fewer = (f.choose(reads, *x) for x in zip(whole, parts, strict=True))
            with f.loop(
                f.binary("sdiv", f.add(k, thresholds.GEMM_DEPTH - 1), thresholds.GEMM_DEPTH)
            ) as block:
                low, first = f.mul(block, thresholds.GEMM_DEPTH), f.variable("i64", 0)
                depth = f.sub(k, low)
                depth = f.choose(
                    f.compare("slt", depth, thresholds.GEMM_DEPTH),
                    depth,
                    i64(thresholds.GEMM_DEPTH),
                )
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
        everything, few = (
            self.scaled(f, f.mul(n, k)),
            thresholds.GEMM_FEW[8 * self.bytes] * self.rows,
        )
        few = f.both(f.compare("sle", m, few), f.compare("sle", everything, thresholds.GEMM_FAR))
        small = f.compare("slt", everything, thresholds.GEMM_NEAR * self.rows)
        pays = f.either(f.either(f.compare("sle", m, self.rows), few), small)
        return f.both(f.compare("eq", column, 1), f.compare("sge", n, self.lanes), pays)

    def block(self, f: Function, given: dict[str, Value], vectors: Value) -> None:
        """Threads share the rows of tiles of a block."""
        context = f.slot("i64", len(PARTS))
        for number, part in enumerate(PARTS):
            f.store(given[part], context, 8 * number)
        iterations = f.binary("sdiv", f.add(given["m"], self.rows - 1), self.rows)
        each = f.mul(f.mul(given["k"], vectors), self.rows * self.lanes)
        across = f.both(
            f.compare("eq", given["packed"], 0), f.compare("slt", iterations, given["slivers"])
        )
        task = f.choose(across, f.routine("columns_task"), f.routine("rows_task"))
        with f.choice(f.compare("sle", f.mul(iterations, each), thresholds.GEMM_PIECE)) as (
            little,
            much,
        ):
            with little:
                f.call("rows_task", "void", context, i64(0), iterations)
            with much:
                column = f.mul(f.mul(given["k"], given["m"]), self.wide * self.lanes)
                grain = f.binary("sdiv", i64(thresholds.GEMM_PIECE), f.choose(across, column, each))
                count = f.choose(across, given["slivers"], iterations)
                f.call("fnx_parallel_for", "void", task, context, count, f.add(grain, 1))

    def shares(self, f: Function, total: Value, most: int) -> tuple[Value, Value, Value]:
        """Even shares: how many, what the first have, how many those are; others have one more."""
        count = f.binary("sdiv", f.add(total, most - 1), most)
        base = f.variable("i64", total)
        with f.when(f.compare("sgt", count, 1)):
            base.set(f.binary("sdiv", total, count))
        base = base.get()
        return count, base, f.sub(f.mul(f.add(base, 1), count), total)
