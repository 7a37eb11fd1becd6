"""Products of matrices and vectors of float32 and float64: routines of fnx's own, made with LLVM.

`void fnx_gemv_<dtype>(m, k, a, row, column, x, y)` writes A x to y. Rows and columns of A are that many
elements apart, one of the two being 1; x and y are contiguous.

Contiguous rows are multiplied with x, eight or four at a time, so that x is read once for all of them, and
their sums are added up together. Contiguous columns are multiplied with a number each, COLUMNS at a
time, and added to a strip of y that stays in the first-level cache. Threads share y: an element is
summed in the same order whoever does it.
"""

from fnx.lowering.target import processor

from . import machine
from .compiler import once
from .irtext import Function, Value, i64
from .irvectors import Vectors

COLUMNS = 8  # added at a time
STRIP = 1 << 14  # bytes of y
PIECE = 1 << 17  # multiplications that are worth a task of their own
LEAST = 1 << 10  # bytes of a column that a task reads at once, or memory is read in too short runs
PARTS = "m k a apart x y".split()


def name(dtype: str) -> str:
    return f"fnx_gemv_{dtype}"


@once
def address(dtype: str) -> int:
    """The address of the routine."""
    from . import threads

    imports = {"fnx_parallel_for": threads.address()}
    made = machine.routine(name(dtype), lambda: text(dtype), [name(dtype)], imports)
    return made.addresses[name(dtype)]


def text(dtype: str) -> str:
    """The LLVM IR of the routine for a dtype."""
    return str(_Routine(dtype).module)


class _Routine(Vectors):
    """Writes the functions of one dtype."""

    def __init__(self, dtype: str):
        super().__init__(dtype)
        self.rows = 8 if processor.vector_bits() == 512 else 4  # what registers can hold
        for rows, depth in sorted({(self.rows, 2), (4, 2), (1, 8)}):
            self.dots(rows, depth)
        for count in (COLUMNS, COLUMNS // 2, 1):
            self.sums(count)
        self.rows_task()
        self.columns_task()
        self.gemv(name(dtype))

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

        Arguments: elements; a, bytes from column to column; the numbers; y.
        """
        with Function(self.module, f"sums{count}", "void", "i64", "ptr", "i64", "ptr", "ptr") as f:
            m, a, column, x, y = f.args
            sources = [f.at(a, f.mul(column, c)) for c in range(count)]
            numbers = [self.splat(f, f.load(x, c * self.size, self.t)) for c in range(count)]

            def added(columns: list[Value], before: Value) -> Value:
                total = f.binary("fmul", columns[0], numbers[0])
                for vector, number in zip(columns[1:], numbers[1:], strict=True):
                    total = self.fma(f, vector, number, total)
                return f.binary("fadd", before, total)

            whole = f.binary("sdiv", m, self.lanes)
            with f.loop(whole) as i:
                at = f.mul(i, self.bytes)
                place = f.at(y, at)
                columns = [self.load(f, f.at(source, at)) for source in sources]
                f.do(f"store {added(columns, self.load(f, place))}, {place}, align {self.size}")
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
            part: f.load(f.args[0], 8 * n, "ptr" if part in ("a", "x", "y") else "i64")
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

    def columns_task(self) -> None:
        """Vectors of y from lo to hi, strip by strip."""
        with Function(self.module, "columns_task", "void", "ptr", "i64", "i64") as f:
            _, low, high = f.args
            p = self.parts(f)
            start = f.mul(low, self.lanes)
            end = f.mul(high, self.lanes)
            end = f.choose(f.compare("slt", end, p["m"]), end, p["m"])
            length, most = f.sub(end, start), STRIP // self.size
            with f.loop(f.binary("sdiv", f.add(length, most - 1), most)) as strip:
                first = f.mul(strip, most)
                m = f.sub(length, first)
                m = f.choose(f.compare("slt", m, most), m, i64(most))
                here = self.scaled(f, f.add(start, first))
                a, y = f.at(p["a"], here), f.at(p["y"], here)
                size = self.scaled(f, m)
                f.call("memset", "ptr", y, Value("i32", "0"), size)
                done = f.variable("i64", 0)
                for count in (COLUMNS, COLUMNS // 2, 1):
                    rounds = f.binary("sdiv", f.sub(p["k"], done.get()), count)
                    with f.loop(rounds):
                        place = f.at(a, f.mul(done.get(), p["apart"]))
                        x = f.index(p["x"], done.get(), self.size)
                        f.call(f"sums{count}", "void", m, place, p["apart"], x, y)
                        done.set(f.add(done.get(), count))
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

            def share(task: str, each: int, least: int) -> None:
                rounds = f.binary("sdiv", f.add(m, each - 1), each)
                grain = f.add(f.binary("sdiv", i64(PIECE), f.add(f.mul(k, each), 1)), 1)
                grain = f.choose(f.compare("slt", grain, least), i64(least), grain)
                f.call("fnx_parallel_for", "void", f.routine(task), context, rounds, grain)

            with f.choice(by_rows) as (yes, no):
                with yes:
                    share("rows_task", self.rows, 1)
                with no:
                    share("columns_task", self.lanes, LEAST // self.bytes)
            f.ret()
