"""Two products of a matrix, with a vector from either side, while its rows are near (BiCGK, AtAx).

`void fnx_gemv_pair_<dtype>(m, k, a, row, x, y, u, v, work, run)` writes A x to y and u A to v; u may be y.
Rows of A are contiguous, and `row` elements apart. A large A comes from memory once, not twice: a
few rows are multiplied with x, then each is multiplied with its number and added to v.

Threads share runs of `run` rows, each with a v of its own: the first has v, the others are in `work`. They
are added up in order, so that a result does not depend on how many threads there are.
Source: Siek, Karlin and Jessup, "Build to order linear algebra kernels", 2008.
"""

from fnx.lowering.cpu.llvm.ir_builder import Function, Value, i64
from fnx.lowering.cpu.processor import thresholds

from .gemv import Routine, least
from .routine_names import name

PARTS = "m k a apart x y u v work run".split()
_POINTERS = ("a", "x", "y", "u", "v", "work")


def text(dtype: str) -> str:
    """The LLVM IR of the routine for a dtype."""
    return str(_Pair(dtype).module)


def pays(m: int, k: int, itemsize: int) -> bool:
    """Whether a matrix is far away, and a few of its rows are near."""
    row = k * itemsize
    return m * row >= thresholds.GEMV_PAIR and 8 * row <= thresholds.GEMV_PAIR_ROWS


def rows_of_run(m: int) -> int:
    """Rows that have a result of their own: an even share of the runs that there are at most."""
    share = -(-m // thresholds.GEMV_RUNS)
    return -(-max(share, thresholds.GEMV_PAIR_RUN) // 8) * 8


def work_elements(m: int, k: int) -> int:
    return (-(-m // rows_of_run(m)) - 1) * k


class _Pair(Routine):
    """Writes the functions of one dtype."""

    def write(self, dtype: str) -> None:
        self.counts = sorted({self.rows, 4, 1}, reverse=True)
        for rows in self.counts:
            self.dots(rows, 8 if rows == 1 else 2)
            self.sums(rows)
        self.add()
        self.runs_task()
        self.pair(name("gemv_pair", dtype))

    def parts(self, f: Function) -> dict[str, Value]:
        return {
            part: f.load(f.args[0], 8 * n, "ptr" if part in _POINTERS else "i64")
            for n, part in enumerate(PARTS)
        }

    def runs_task(self) -> None:
        """Runs of rows from lo to hi; the first adds up to v, each other to a vector of its own."""
        with Function(self.module, "runs_task", "void", "ptr", "i64", "i64") as f:
            _, low, high = f.args
            p = self.parts(f)
            with f.loop(high, low) as run:
                begin = f.mul(run, p["run"])
                end = least(f, f.add(begin, p["run"]), p["m"])
                own = f.at(p["work"], f.mul(f.sub(run, 1), self.scaled(f, p["k"])))
                v = f.choose(f.compare("eq", run, 0), p["v"], own)
                f.call("memset", "ptr", v, Value("i32", "0"), self.scaled(f, p["k"]))
                done = f.variable("i64", begin)
                for rows in self.counts:
                    with f.loop(f.binary("sdiv", f.sub(end, done.get()), rows)):
                        first = done.get()
                        a = f.at(p["a"], f.mul(first, p["apart"]))
                        y, u = (f.index(p[part], first, self.size) for part in "yu")
                        f.call(f"dots{rows}", "void", p["k"], a, p["apart"], p["x"], y)
                        f.call(f"sums{rows}", "void", p["k"], a, p["apart"], u, v, i64(0))
                        done.set(f.add(first, rows))
            f.ret()

    def add(self) -> None:
        """Add vectors that lie one after the other to v. Arguments: elements; how many; the first; v."""
        with Function(self.module, "add", "void", "i64", "i64", "ptr", "ptr") as f:
            k, count, others, v = f.args
            with f.loop(count) as n:
                other = f.at(others, f.mul(n, self.scaled(f, k)))
                whole = f.binary("sdiv", k, self.lanes)
                with f.loop(whole) as i:
                    at = f.mul(i, self.bytes)
                    place = f.at(v, at)
                    total = f.binary("fadd", self.load(f, place), self.load(f, f.at(other, at)))
                    f.do(f"store {total}, {place}, align {self.size}")
                done = f.mul(whole, self.lanes)
                with f.loop(f.sub(k, done)) as i:
                    at = self.scaled(f, f.add(done, i))
                    total = f.binary("fadd", f.load(v, at, self.t), f.load(other, at, self.t))
                    f.store(total, v, at)
            f.ret()

    def pair(self, public: str) -> None:
        kinds = "i64 i64 ptr i64 ptr ptr ptr ptr ptr i64".split()
        with Function(self.module, public, "void", *kinds, public=True) as f:
            m, k, a, row, x, y, u, v, work, run = f.args
            context = f.slot("i64", len(PARTS))
            values = (m, k, a, self.scaled(f, row), x, y, u, v, work, run)
            for number, value in enumerate(values):
                f.store(value, context, 8 * number)
            runs = f.binary("sdiv", f.sub(f.add(m, run), 1), run)
            self.share(f, "runs_task", context, runs, f.mul(run, k), 1)
            f.call("add", "void", k, f.sub(runs, 1), work, v)
            f.ret()
