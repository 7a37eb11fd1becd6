"""Sorting the rows of an array: stable merges in work memory, from both ends of two runs at once.

Merging from both ends, half of the elements from each, keeps two chains of dependent loads going
and needs no test for the end of a run. Short rows are sorted in registers.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from fnx.core import policy, scalar
from fnx.core.scalar import Expr
from fnx.lowering.generate.generation import Generation
from fnx.lowering.generate.values import Shape
from fnx.lowering.ir.kernel import Copy, If, Let, Loop, Ref, Stmt, Store, While

from . import comparators as order
from .batched_matrices import each_item, loop
from .comparators import Less, Values

ZERO, ONE = scalar.size(0), scalar.size(1)


def with_index(row: Sequence[Expr], axis: int, i: Expr) -> tuple[Expr, ...]:
    return (*row[:axis], i, *row[axis:])


class SortedRows:
    """What is sorted along an axis: values that move together, and their order.

    `nans` says where nans of the first value go, "last" or "first", if it alone decides: they are
    put aside, and `less` need not know of them.
    """

    def __init__(self, shape: Shape, axis: int, moved: list[Callable[..., Expr]], less: Less):
        self.shape, self.axis, self.moved, self.less = shape, axis, moved, less
        self.n = shape[axis]
        self.others = (*shape[:axis], *shape[axis + 1 :])
        self.nans = ""

    def by_one_key(self, dtype: str, first: bool = False) -> None:
        """The order is that of the first value, of this dtype."""
        if "float" in dtype:
            self.nans = "first" if first else "last"
            self.less = order.greater if first else order.less

    def values(self, row: Sequence[Expr], i: Expr) -> list[Expr]:
        index = with_index(row, self.axis, i)
        return [fn(*index) for fn in self.moved]

    def repeat(self, n: int, make: Callable[[Expr], list[Stmt]]) -> list[Stmt]:
        """make(i) for each i < n: a loop, or unrolled for short rows."""
        if self.n > policy.SORTED_BY_NETWORK:
            return [loop(n, make)]
        return [s for i in range(n) for s in make(scalar.size(i))]


class Memory:
    """Work memory for the values that move together, an array each."""

    def __init__(self, builder: Generation, rows: SortedRows, size: int):
        corner = [ZERO] * len(rows.others)
        probe = builder.evaluated(lambda: rows.values(corner, ZERO))
        self.buffers = [builder.new_buffer(e.dtype, size) for e in probe]

    def load(self, i: Expr) -> list[Expr]:
        return [scalar.load(b, i, b.dtype) for b in self.buffers]

    def store(self, i: Expr, values: Values) -> list[Stmt]:
        return [Store(b, i, e) for b, e in zip(self.buffers, values, strict=True)]

    def copy(self, target: Expr, source: Expr, count: Expr) -> list[Stmt]:
        return [Copy(Ref(b, target), Ref(b, source), count) for b in self.buffers]


def sort_in_memory(builder: Generation, rows: SortedRows, take: Any) -> None:
    """Sort each row; `take(row, read)` gives the statements that use read(i), the i-th values."""
    if rows.n <= policy.SORTED_BY_NETWORK:
        _networks(builder, rows, take)
        return
    half = rows.n + 1  # a merge may look at the element after the last
    memory = Memory(builder, rows, 2 * half)

    def one(row: tuple[Expr, ...]) -> list[Stmt]:
        source = scalar.var("int64", "h")
        n = count = scalar.size(rows.n)
        values = lambda i: rows.values(row, i)
        body: list[Stmt] = []
        read: Any = lambda i: memory.load(scalar.add(source, i))
        if rows.nans:
            count = scalar.var("int64", "c")
            body += _without_nans(values, count, n, half, memory)
            values = memory.load
        body += _blocks(rows.less, count, values, memory)
        body += _merges(rows.less, count, half, source, memory)
        if rows.nans:
            at = scalar.add(count, scalar.size(half))
            rest = scalar.sub(n, count)
            body += memory.copy(at, count, rest)
        if rows.nans == "first":

            def read(i: Expr) -> list[Expr]:
                is_nan = scalar.compare("lt", i, rest)
                from_ = scalar.select(is_nan, scalar.add(count, i), scalar.sub(i, rest))
                return memory.load(scalar.add(source, from_))

        return [*body, *take(row, read)]

    each_item(builder, rows.others, one, "sort")


def _networks(builder: Generation, rows: SortedRows, take: Any) -> None:
    """Short rows, each sorted in registers."""

    def one(row: tuple[Expr, ...]) -> list[Stmt]:
        items = [rows.values(row, scalar.size(i)) for i in range(rows.n)]
        found, let = named_groups(order.network(items, rows.less))
        return [let, *take(row, lambda i: found[i.attr])]

    work = prod(rows.shape) * rows.n * len(rows.moved)
    each_item(builder, rows.others, one, "sort", work >= builder.machine.parallel_work)


def _without_nans(values: Any, count: Expr, n: Expr, half: int, memory: Memory) -> list[Stmt]:
    """The values in memory, those whose key is nan behind the others; `count` is that of the others."""
    i, other = scalar.var("int64", "i"), scalar.size(half)
    (new,), let = named_groups([values(i)])
    is_nan = scalar.compare("ne", new[0], new[0])
    where = scalar.select(is_nan, scalar.add(other, scalar.sub(i, count)), count)
    part = Loop(
        i,
        n,
        [let, *memory.store(where, new)],
        [count],
        [ZERO],
        [scalar.add(count, as_int(order.negated(is_nan)))],
        rolled=True,
    )

    return [part, *memory.copy(count, other, scalar.sub(n, count))]


def named_groups(groups: Sequence[Values]) -> tuple[list[list[Expr]], Stmt]:
    names = [[scalar.var(e.dtype, "v") for e in g] for g in groups]
    return names, Let([v for g in names for v in g], [e for g in groups for e in g])


def _blocks(less: Less, n: Expr, values: Any, memory: Memory) -> list[Stmt]:
    """Sorted blocks of a few elements; those that are left over are inserted into the last."""
    load, store = memory.load, memory.store
    three = scalar.const(policy.SORTED_BLOCK - 1, "int64")
    rest = scalar.node("and", "int64", (n, three))
    whole = scalar.node("and", "int64", (n, scalar.const(-policy.SORTED_BLOCK, "int64")))

    def block(q: Expr) -> list[Stmt]:
        start = scalar.mul(q, scalar.size(policy.SORTED_BLOCK))
        items = [values(scalar.add(start, scalar.size(c))) for c in range(policy.SORTED_BLOCK)]
        names, let = named_groups(order.network(items, less))
        found: list[Stmt] = [let]
        for c, item in enumerate(names):
            found += store(scalar.add(start, scalar.size(c)), item)
        return found

    def insert(q: Expr) -> list[Stmt]:
        at = scalar.add(whole, q)
        (new,), let = named_groups([values(at)])
        j = scalar.var("int64", "j")
        previous = scalar.sub(j, ONE)
        safe = scalar.node("max", "int64", (previous, ZERO))
        more = scalar.logical_and(scalar.compare("gt", j, whole), less(new, load(safe)))
        move = store(j, load(previous))
        while_ = While([], more, move, [j], [at], [previous])
        return [let, while_, *store(j, new)]

    count = scalar.node("div", "int64", (whole, scalar.size(policy.SORTED_BLOCK)))
    return [loop(count, block), loop(rest, insert)]


def minimum(a: Expr, b: Expr) -> Expr:
    return scalar.node("min", "int64", (a, b))


def as_int(flag: Expr) -> Expr:
    return scalar.cast(flag, "int64")


def _merges(less: Less, n: Expr, half: int, source: Expr, memory: Memory) -> list[Stmt]:
    """Merge runs, twice as long each time; `source` is where the sorted elements begin."""
    width = scalar.var("int64", "w")
    target = scalar.sub(scalar.size(half), source)
    two = scalar.add(width, width)

    def pair(p: Expr) -> list[Stmt]:
        lo = scalar.mul(p, two)
        mid = minimum(scalar.add(lo, width), n)
        hi = minimum(scalar.add(lo, two), n)
        return _merge(less, source, target, lo, mid, hi, memory)

    count = scalar.node("div", "int64", (scalar.add(n, scalar.sub(two, ONE)), two))
    more = scalar.compare("lt", width, n)
    start = scalar.size(policy.SORTED_BLOCK)
    body: list[Stmt] = [loop(count, pair)]
    return [While([], more, body, [width, source], [start, ZERO], [two, target])]


def _merge(
    less: Less, source: Expr, target: Expr, lo: Expr, mid: Expr, hi: Expr, memory: Memory
) -> list[Stmt]:
    """Merge two runs of the source into the target; copy them if they are in order."""
    before = memory.load(scalar.add(source, scalar.sub(mid, ONE)))
    crossed = scalar.logical_and(
        scalar.compare("lt", mid, hi), less(memory.load(scalar.add(source, mid)), before)
    )
    copy = memory.copy(scalar.add(target, lo), scalar.add(source, lo), scalar.sub(hi, lo))
    return [If(crossed, _merged(less, source, target, lo, mid, hi, memory), copy)]


def _merged(
    less: Less, source: Expr, target: Expr, lo: Expr, mid: Expr, hi: Expr, memory: Memory
) -> list[Stmt]:
    """Merge from both ends at once, without branches, and then what is left of the longer run."""
    store = memory.store

    def read(i: Expr) -> list[Expr]:
        return memory.load(scalar.add(source, i))

    def chosen(take: Expr, a: Values, b: Values) -> list[Expr]:
        return [scalar.select(take, x, y) for x, y in zip(a, b, strict=True)]

    steps = minimum(scalar.sub(mid, lo), scalar.sub(hi, mid))
    i, j, i2, j2, s = (scalar.var("int64", v) for v in ("i", "j", "y", "z", "s"))
    (a, b, a2, b2), let = named_groups([read(k) for k in (i, j, i2, j2)])
    right, left = less(b, a), less(b2, a2)
    last = scalar.sub(hi, ONE)
    both = Loop(
        s,
        steps,
        [
            let,
            *store(scalar.add(target, scalar.add(lo, s)), chosen(right, b, a)),
            *store(scalar.add(target, scalar.sub(last, s)), chosen(left, a2, b2)),
        ],
        [i, j, i2, j2],
        [lo, mid, scalar.sub(mid, ONE), last],
        [
            scalar.add(i, as_int(order.negated(right))),
            scalar.add(j, as_int(right)),
            scalar.sub(i2, as_int(left)),
            scalar.sub(j2, as_int(order.negated(left))),
        ],
        rolled=True,
    )

    def middle() -> Stmt:
        """What is left, when one run is longer."""
        k, x, y = (scalar.var("int64", v) for v in ("k", "i", "j"))
        (c, d), let = named_groups([read(x), read(y)])
        in_left, in_right = scalar.compare("le", x, i2), scalar.compare("le", y, j2)
        take = order.either(order.negated(in_left), scalar.logical_and(in_right, less(d, c)))
        nexts = [ONE, as_int(order.negated(take)), as_int(take)]
        return While(
            [],
            scalar.compare("lt", k, scalar.sub(hi, steps)),
            [let, *store(scalar.add(target, k), chosen(take, d, c))],
            [k, x, y],
            [scalar.add(lo, steps), i, j],
            [scalar.add(v, by) for v, by in zip((k, x, y), nexts, strict=True)],
        )

    return [both, middle()]
