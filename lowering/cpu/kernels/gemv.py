"""Products of matrices and vectors (GEMV) of float32 and float64, limited by memory.

`void fnx_gemv_<dtype>(m, k, a, row, column, x, y)` writes A x to y. Rows and columns of A are that many
elements apart, one of the two being 1; x and y are contiguous.

Contiguous rows are multiplied with x, eight or four at a time, so that x is read once for all of them, and
their sums are added up together. Contiguous columns are multiplied with a number each, COLUMNS at a
time, and added to a strip of y that stays in the first-level cache. Threads share y, or, where columns
are short, runs of columns, so that each reads memory in its order: an element is summed in the same
order whoever does it, and however many they are.
"""

from itertools import product

from fnx.lowering.cpu.llvm.ir_builder import Function, Value, i32, i64
from fnx.lowering.cpu.llvm.ir_vectors import Vectors
from fnx.lowering.cpu.processor import features, thresholds

from .gemm_packing import LINE
from .routine_names import name

PARTS = "m k a apart x y others run".split()


def text(dtype: str) -> str:
    """The LLVM IR of the routine for a dtype."""
    return str(Routine(dtype).module)


class Routine(Vectors):
    """Writes the functions of one dtype."""

    def __init__(self, dtype: str):
        super().__init__(dtype)
        self.rows = 8 if features.vector_bits() == 512 else 4  # what registers can hold
        self.write(dtype)

    def write(self, dtype: str) -> None:
        for rows, depth in sorted({(self.rows, 2), (4, 2), (1, 8)}):
            self.dots(rows, depth)
        for count in (thresholds.GEMV_COLUMNS, thresholds.GEMV_COLUMNS // 2, 1):
            self.sums(count)
        self.rows_task()
        self.columns()
        self.columns_task()
        self.runs_task()
        self.gemv(name("gemv", dtype))

    # --- contiguous rows

    def dots(self, rows: int, depth: int) -> None:
        """Products of `rows` rows and x, `depth` vectors at a time.

        Arguments: k; a, bytes from row to row; x; y.
        """
        with Function(self.module, f"dots{rows}", "void", "i64", "ptr", "i64", "ptr", "ptr") as f:
            k, a, row, x, y = f.args
            sources = [f.at(a, f.mul(row, r)) for r in range(rows)]
            zero = Value(self.v, "zeroinitializer")
            sums = [[f.variable(self.v, zero) for _ in range(depth)] for _ in range(rows)]
            step = self.bytes * depth
            whole = f.binary("sdiv", k, self.lanes * depth)
            with f.loop(whole) as i:
                at = f.mul(i, step)
                vectors = [self.load(f, f.at(f.at(x, at), d * self.bytes)) for d in range(depth)]
                for source, row_sums in zip(sources, sums, strict=True):
                    place = f.at(source, at)
                    for d, (vector, s) in enumerate(zip(vectors, row_sums, strict=True)):
                        y_ = self.load(f, f.at(place, d * self.bytes))
                        s.set(self.fma(f, y_, vector, s.get()))
            done = f.mul(whole, self.lanes * depth)
            rest = f.sub(k, done)
            with f.loop(f.binary("sdiv", f.add(rest, self.lanes - 1), self.lanes)) as i:
                first = f.mul(i, self.lanes)
                mask = self.mask_of(f, f.sub(rest, first))
                at = self.scaled(f, f.add(done, first))
                vector = self.masked_load(f, f.at(x, at), mask)
                for source, row_sums in zip(sources, sums, strict=True):
                    y_ = self.masked_load(f, f.at(source, at), mask)
                    row_sums[0].set(self.fma(f, y_, vector, row_sums[0].get()))
            whole_rows = [self.total(f, [s.get() for s in row_sums]) for row_sums in sums]
            first = ", ".join(f"i32 {r}" for r in range(rows))
            few = f"<{rows} x {self.t}>"
            lanes = f"{self.added_up(f, whole_rows)}, {self.v} poison, <{rows} x i32> <{first}>"
            f.do(f"store {f.emit(few, f'shufflevector {lanes}')}, {y}, align {self.size}")
            f.ret()

    def fma(self, f: Function, a: Value, b: Value, c: Value) -> Value:
        return f.call(f"llvm.fma.{self.suffix}", self.v, a, b, c)

    def total(self, f: Function, vectors: list[Value]) -> Value:
        """The sum of vectors, by halves."""
        while len(vectors) > 1:
            half = len(vectors) // 2
            pairs = zip(vectors[:half], vectors[half:], strict=True)
            vectors = [f.binary("fadd", a, b) for a, b in pairs]
        return vectors[0]

    def added_up(self, f: Function, vectors: list[Value]) -> Value:
        """A vector of the sums of the lanes of each vector.

        While there are several, two become one: of each the sums of lanes half its width apart.
        """
        number, width = 1, self.lanes  # rows in a vector, and lanes of each
        while width > 1:
            width //= 2
            low = [2 * width * r + e for r in range(number) for e in range(width)]
            if len(vectors) > 1:
                low += [self.lanes + e for e in low]
                pairs, number = list(zip(vectors[::2], vectors[1::2], strict=True)), 2 * number
            else:
                low += [0] * (self.lanes - len(low))
                pairs = [(vectors[0], vectors[0])]
            high = [e + width for e in low]
            vectors = [
                f.binary("fadd", self.shuffle(f, a, b, low), self.shuffle(f, a, b, high))
                for a, b in pairs
            ]
        return vectors[0]

    def shuffle(self, f: Function, a: Value, b: Value, lanes: list[int]) -> Value:
        chosen = ", ".join(f"i32 {e}" for e in lanes)
        return f.emit(self.v, f"shufflevector {a}, {b}, <{self.lanes} x i32> <{chosen}>")

    # --- contiguous columns

    def sums(self, count: int) -> None:
        """Add `count` columns, each times its number, to y.

        Arguments: elements; a, bytes from column to column; the numbers; y; whether to ask for lines
        further down, not for those of the next columns.
        """
        kinds = "i64 ptr i64 ptr ptr i64".split()
        with Function(self.module, f"sums{count}", "void", *kinds) as f:
            m, a, column, x, y, down = f.args
            sources = [f.at(a, f.mul(column, c)) for c in range(count)]
            numbers = [self.splat(f, f.load(x, c * self.size, self.t)) for c in range(count)]

            def added(columns: list[Value], before: Value) -> Value:
                total = f.binary("fmul", columns[0], numbers[0])
                for vector, number in zip(columns[1:], numbers[1:], strict=True):
                    total = self.fma(f, vector, number, total)
                return f.binary("fadd", before, total)

            whole = f.binary("sdiv", m, self.lanes)
            near = f.compare("sle", self.scaled(f, m), thresholds.GEMV_NEAR)
            beside = f.choose(near, f.mul(column, count), i64(0))

            def add(*ahead: Value) -> None:
                with f.loop(whole) as i:
                    at = f.mul(i, self.bytes)
                    for source, far in product(sources, ahead):
                        later = f.at(f.at(source, far), at)
                        f.call("llvm.prefetch.p0", "void", later, i32(0), i32(3), i32(1))
                    place = f.at(y, at)
                    columns = [self.load(f, f.at(source, at)) for source in sources]
                    total = added(columns, self.load(f, place))
                    f.do(f"store {total}, {place}, align {self.size}")

            if self.bytes < LINE:
                add()
            else:
                with f.choice(f.compare("eq", down, 0)) as (across, along):
                    with across:
                        add(beside)
                    with along:
                        add(i64(thresholds.GEMV_AHEAD))
            done = f.mul(whole, self.lanes)
            rest = f.sub(m, done)
            with f.when(f.compare("sgt", rest, 0)):
                mask, at = self.mask_of(f, rest), self.scaled(f, done)
                columns = [self.masked_load(f, f.at(source, at), mask) for source in sources]
                place = f.at(y, at)
                before = self.masked_load(f, place, mask)
                self.masked_store(f, added(columns, before), place, mask)
            f.ret()

    # --- what threads do

    def parts(self, f: Function) -> dict[str, Value]:
        return {
            part: f.load(f.args[0], 8 * n, "ptr" if part in ("a", "x", "y", "others") else "i64")
            for n, part in enumerate(PARTS)
        }

    def rows_task(self) -> None:
        """Blocks of rows from lo to hi."""
        with Function(self.module, "rows_task", "void", "ptr", "i64", "i64") as f:
            _, low, high = f.args
            p = self.parts(f)
            done = f.variable("i64", f.mul(low, self.rows))
            end = f.mul(high, self.rows)
            end = f.choose(f.compare("slt", end, p["m"]), end, p["m"])
            for rows in sorted({self.rows, 4, 1}, reverse=True):
                with f.loop(f.binary("sdiv", f.sub(end, done.get()), rows)):
                    first = done.get()
                    a, y = f.at(p["a"], f.mul(first, p["apart"])), f.index(p["y"], first, self.size)
                    f.call(f"dots{rows}", "void", p["k"], a, p["apart"], p["x"], y)
                    done.set(f.add(first, rows))
            f.ret()

    def columns(self) -> None:
        """Columns, each times its number, added up.

        Arguments: elements, at most a strip; how many columns; a, bytes from column to column; the
        numbers; y; bytes of A.
        """
        kinds = "i64 i64 ptr i64 ptr ptr i64".split()
        with Function(self.module, "columns", "void", *kinds) as f:
            m, k, a, column, x, y, everything = f.args
            long = f.compare("sgt", self.scaled(f, m), thresholds.GEMV_LONG)
            down = f.convert(
                "zext", f.both(long, f.compare("sgt", everything, thresholds.GEMV_FAR)), "i64"
            )
            f.call("memset", "ptr", y, Value("i32", "0"), self.scaled(f, m))
            done = f.variable("i64", 0)
            for count in (thresholds.GEMV_COLUMNS, thresholds.GEMV_COLUMNS // 2, 1):
                with f.loop(f.binary("sdiv", f.sub(k, done.get()), count)):
                    place = f.at(a, f.mul(done.get(), column))
                    numbers = f.index(x, done.get(), self.size)
                    f.call(f"sums{count}", "void", m, place, column, numbers, y, down)
                    done.set(f.add(done.get(), count))
            f.ret()

    def columns_task(self) -> None:
        """Vectors of y from lo to hi, strip by strip."""
        with Function(self.module, "columns_task", "void", "ptr", "i64", "i64") as f:
            _, low, high = f.args
            p = self.parts(f)
            start = f.mul(low, self.lanes)
            length = f.sub(least(f, f.mul(high, self.lanes), p["m"]), start)
            most = thresholds.GEMV_STRIP // self.size
            with f.loop(f.binary("sdiv", f.add(length, most - 1), most)) as strip:
                first = f.mul(strip, most)
                m = least(f, f.sub(length, first), i64(most))
                here = self.scaled(f, f.add(start, first))
                a, y = f.at(p["a"], here), f.at(p["y"], here)
                everything = f.mul(p["apart"], p["k"])
                f.call("columns", "void", m, p["k"], a, p["apart"], p["x"], y, everything)
            f.ret()

    def runs_task(self) -> None:
        """Runs of columns from lo to hi; the first goes to y, each other to a vector of its own."""
        with Function(self.module, "runs_task", "void", "ptr", "i64", "i64") as f:
            _, low, high = f.args
            p = self.parts(f)
            with f.loop(high, low) as run:
                first = f.mul(run, p["run"])
                k = least(f, f.sub(p["k"], first), p["run"])
                a, x = f.at(p["a"], f.mul(first, p["apart"])), f.index(p["x"], first, self.size)
                own = f.at(p["others"], f.mul(f.sub(run, 1), self.scaled(f, p["m"])))
                y = f.choose(f.compare("eq", run, 0), p["y"], own)
                everything = f.mul(p["apart"], p["k"])
                f.call("columns", "void", p["m"], k, a, p["apart"], x, y, everything)
            f.ret()

    def gemv(self, public: str) -> None:
        kinds = "i64 i64 ptr i64 i64 ptr ptr".split()
        with Function(self.module, public, "void", *kinds, public=True) as f:
            m, k, a, row, column, x, y = f.args
            context = f.slot("i64", len(PARTS))
            by_rows = f.compare("eq", column, 1)
            apart = self.scaled(f, f.choose(by_rows, row, column))
            for number, value in enumerate((m, k, a, apart, x, y)):
                f.store(value, context, 8 * number)

            with f.when(by_rows):
                iterations = f.binary("sdiv", f.add(m, self.rows - 1), self.rows)
                self.share(f, "rows_task", context, iterations, f.mul(k, self.rows), 1)
                f.ret()
            several = f.compare("sge", f.mul(m, k), 2 * thresholds.GEMV_PIECE)
            with f.when(f.both(several, f.compare("sle", m, thresholds.GEMV_STRIP // self.size))):
                self.runs(f, context)
                f.ret()
            iterations = f.binary("sdiv", f.add(m, self.lanes - 1), self.lanes)
            self.share(
                f, "columns_task", context, iterations, f.mul(k, self.lanes), thresholds.GEMV_NARROW
            )
            f.ret()

    def share(
        self, f: Function, task: str, context: Value, iterations: Value, each: Value, least: int
    ) -> None:
        """Threads share the iterations, of so many multiplications each, at least so many at once."""
        with f.choice(f.compare("sle", f.mul(iterations, each), thresholds.GEMV_PIECE)) as (
            little,
            much,
        ):
            with little:
                f.call(task, "void", context, i64(0), iterations)
            with much:
                grain = self.grain(f, i64(1), each)
                grain = f.choose(f.compare("slt", grain, least), i64(least), grain)
                routine = f.routine(task)
                f.call("fnx_parallel_for", "void", routine, context, iterations, grain)

    def grain(self, f: Function, iterations: Value, work: Value) -> Value:
        """How many iterations are worth a task, if so many have so many multiplications."""
        enough = f.mul(iterations, thresholds.GEMV_GRAIN // self.size)
        return f.add(f.binary("sdiv", enough, f.add(work, 1)), 1)

    def runs(self, f: Function, context: Value) -> None:
        """Short columns, in runs that threads share; what they come to is added up in their order."""
        m, k, y = f.args[0], f.args[1], f.args[-1]
        work = f.mul(m, k)
        count = f.add(f.binary("sdiv", work, thresholds.GEMV_PIECE), thresholds.GEMV_EVEN - 1)
        count = least(
            f, f.binary("and", count, i64(-thresholds.GEMV_EVEN)), i64(thresholds.GEMV_RUNS)
        )
        run = f.binary("sdiv", f.sub(f.add(k, count), 1), count)
        run = f.binary(
            "and", f.add(run, thresholds.GEMV_COLUMNS - 1), i64(-thresholds.GEMV_COLUMNS)
        )
        count = f.binary("sdiv", f.sub(f.add(k, run), 1), run)
        words = f.binary("sdiv", f.add(self.scaled(f, f.mul(m, f.sub(count, 1))), 7), 8)
        others = f.array(words)
        for part, value in (("others", others), ("run", run)):
            f.store(value, context, 8 * PARTS.index(part))
        grain = self.grain(f, count, work)
        f.call("fnx_parallel_for", "void", f.routine("runs_task"), context, count, grain)
        with f.loop(f.sub(count, 1)) as n:
            other = f.at(others, f.mul(n, self.scaled(f, m)))
            with f.loop(m) as i:
                at = self.scaled(f, i)
                total = f.binary("fadd", f.load(y, at, self.t), f.load(other, at, self.t))
                f.store(total, y, at)


def least(f: Function, a: Value, b: Value) -> Value:
    return f.choose(f.compare("slt", a, b), a, b)
