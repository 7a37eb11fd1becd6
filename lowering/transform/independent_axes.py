"""Independent axes: along them statements carry no dependence (Allen & Kennedy 2001, ch. 5).

The columns are the elements of such axes: members of an ensemble, columns of a grid. What a sequence of
statements does to one column touches nothing that another column's does. Each nest has loops over them,
in one or several ways; each array has its columns at a stride, in layers: a position is
`layer * (stride * columns) + stride * column + rest`, where `rest < stride`.
"""

from collections.abc import Callable, Iterator
from functools import partial
from math import prod

from fnx.core import policy, scalar
from fnx.core.fast_dataclasses import dataclass
from fnx.core.scalar import Expr
from fnx.lowering.ir import dependence, traversal
from fnx.lowering.ir.expressions import buffers_read, depends_on, replacing
from fnx.lowering.ir.kernel import Buffer, Copy, Eval, Fill, Let, Loop, LoopKind, Nest, Stmt, Store
from fnx.lowering.transform.statements import Statements


def chain(stmt: Stmt) -> tuple[list[Loop], list[Stmt]]:
    """A statement as loops around a block."""
    loops: list[Loop] = []
    body = [stmt]
    while len(body) == 1 and isinstance(body[0], Loop) and _is_plain(body[0]):
        loops.append(body[0])
        body = body[0].body
    return loops, body


def _is_plain(loop: Loop) -> bool:
    known = loop.extent.op in ("size", "const") and loop.extent.attr > 0
    return known and not (loop.carries or loop.polled or loop.reverse)


def extents(loops: list[Loop]) -> list[int]:
    return [loop.extent.attr for loop in loops]


@dataclass(frozen=True)
class Part:
    """Columns `start` to `start + width * blocks` along the last axis, `width` of them at a time."""

    axes: tuple[int, ...]
    index: tuple[Expr, ...]  # along the axes but the last one, then the number of the strip
    width: int
    start: int
    blocks: int

    @classmethod
    def of(cls, axes: tuple[int, ...], width: int, start: int, blocks: int) -> "Part":
        index = [scalar.counter("i", n) for n in (*axes[:-1], blocks)]
        if blocks == 1:
            index[-1] = scalar.size(0)
        return cls(axes, tuple(index), width, start, blocks)

    def first(self) -> Expr:
        """The place of a strip along the last axis."""
        return scalar.add(
            scalar.size(self.start), scalar.mul(self.index[-1], scalar.size(self.width))
        )

    def ways(self, stmt: Stmt) -> Iterator[tuple[Stmt, int]]:
        """What a statement does to one strip, in all the ways in which its loops may hold the columns.

        With each: how many columns make its innermost loop long enough.
        """
        loops, body = chain(stmt)
        sizes, k, n = extents(loops), len(self.axes), prod(self.axes)
        deep = any(isinstance(s, Loop) for s in body)
        for at, size in enumerate(sizes):
            least = 1 if deep or at + k < len(sizes) else policy.INNERMOST_ITERATIONS
            if sizes[at : at + k] == list(self.axes):
                outer = [x.index for x in loops[at : at + k - 1]]
                names = dict(zip(outer, self.index, strict=False))
                place = partial(scalar.add, self.first())
                yield self._around(loops, at, at + k, names, self.width, place, body), least
            elif size % n == 0:
                yield from self._flat(loops, at, size // n, body, least)

    def _flat(
        self, loops: list[Loop], at: int, m: int, body: list[Stmt], least: int
    ) -> Iterator[tuple[Stmt, int]]:
        """A single loop over all columns and `m` elements of each, which are next to each other or not."""
        position = scalar.linear_index((*self.index[:-1], self.first()), self.axes)
        place = partial(scalar.add, scalar.mul(position, scalar.size(m)))
        whole = self._around(loops, at, at + 1, {}, self.width * m, place, body)
        yield whole, -(-least // m)
        if m == 1:
            return
        element = scalar.counter("k", m)
        layer = scalar.mul(element, scalar.size(prod(self.axes)))
        place = partial(scalar.add, scalar.add(layer, position))
        made = self._around(loops, at, at + 1, {}, self.width, place, body)
        yield Loop(element, scalar.size(m), [made]), least

    def _around(
        self,
        loops: list[Loop],
        a: int,
        b: int,
        names: dict[Expr, Expr],
        n: int,
        place: Callable[[Expr], Expr],
        body: list[Stmt],
    ) -> Stmt:
        """The loops, of which one over `n` elements of a strip replaces some."""
        new = [
            Loop(x.index, x.extent, [], kind=x.kind.shared(False), rolled=x.rolled) for x in loops
        ]
        old, i = new[b - 1], scalar.counter("l", n)
        new[a:b] = [
            Loop(
                i,
                scalar.const(n, "int64"),
                [],
                kind=old.kind.shared(False),
                rolled=old.rolled,
            )
        ]
        anew = replacing(names | {old.index: place(i)})
        body = [traversal.rewritten(s, anew) for s in body]
        for loop in reversed(new):
            loop.body = body
            body = [loop]
        return body[0]


class IndependentColumns:
    """Statements in which columns never meet, and how each buffer is laid out along them."""

    def __init__(self, builder: Statements, axes: tuple[int, ...], skipped: int = 0):
        self.builder, self.axes, self.count = builder, axes, prod(axes)
        self.skipped = skipped  # ways of the first loop that are passed over
        self.one = Part.of(axes, 1, 0, axes[-1])  # strips of one column, on which is seen who meets
        self.places: dict[Buffer, list[Expr]] = {}  # where each buffer is read and written
        self.written: set[Buffer] = set()
        self.strides: dict[Buffer, int] = {}  # from column to column, of what is written
        self.halves: dict[Expr, int] = {}  # variables that are 0 or this
        self.scalars: list[Expr] = []  # that are computed for all columns at once
        self.parts: dict[Stmt, list[Stmt]] = {}  # nests and copies as loops
        self.chosen: dict[Stmt, int] = {}  # in which of its ways each loop is seen
        self.least = 1  # columns of a strip that make all innermost loops long enough

    def join(self, stmt: Stmt) -> bool:
        """Take in a statement, if columns still keep to themselves."""
        before = self.places, self.written, self.strides, self.scalars
        self.scalars = list(self.scalars)
        if self._take(stmt) and buffers_read(self.scalars).isdisjoint(self.written):
            return True
        self.places, self.written, self.strides, self.scalars = before
        return False

    def _take(self, stmt: Stmt) -> bool:
        match stmt:
            case Let() | Eval():
                self.scalars += traversal.expressions(stmt)
                return True
            case Nest() if not stmt.results:
                self.parts[stmt] = self.builder.plain.get(stmt, stmt.body)
                return all(map(self._choose, self.parts[stmt]))
            case Copy() | Fill():
                self.parts[stmt] = [_as_loop(stmt)]
                return all(map(self._choose, self.parts[stmt]))
            case Loop() if not stmt.kind.parallel:
                self.scalars += traversal.expressions(stmt)
                self.halves |= dependence.halves(stmt)
                return all(map(self._take, stmt.body))
        return False

    def _choose(self, stmt: Stmt) -> bool:
        """See the columns of a loop in the first way that fits to what is known of the buffers."""
        if any(type(s) not in traversal.REWRITTEN for s in traversal.statements([stmt])):
            return False
        first = 0 if self.chosen else self.skipped
        for number, (way, least) in enumerate(self.one.ways(stmt)):
            if number >= first and self._fits(way):
                self.chosen[stmt] = number
                self.least = max(self.least, least)
                return True
        return False

    def _fits(self, stmt: Stmt) -> bool:
        places, ranges = _places(stmt), _ranges(stmt)
        written = self.written | {b for b in traversal.all_writes(stmt) if b.space != "private"}
        strides = dict(self.strides)
        for b in written:
            known = b in self.written  # then the places of before are known to be apart
            new = places.get(b, []) + ([] if known else self.places.get(b, []))
            for position in new:
                stride = self.stride(position, ranges)
                if stride is None or strides.setdefault(b, stride) != stride:
                    return False
        self.places = self.places | {b: self.places.get(b, []) + x for b, x in places.items()}
        self.written, self.strides = written, strides
        return True

    def stride(self, position: Expr, ranges: dict[Expr, int]) -> int | None:
        """How far columns are apart, if each keeps to elements of its own."""
        found, number = dependence.terms(position)
        parts = dict(found)
        steps = [parts.pop(i, 0) for i in self.one.index]
        stride = steps[-1]
        whole = stride * self.axes[-1]
        for n, step in zip(self.axes[-2::-1], steps[-2::-1], strict=True):
            if step != whole:
                return None
            whole *= n
        if stride <= 0:
            return None
        low = high = number % whole
        for leaf, factor in parts.items():
            if self.is_far(leaf, factor, whole):
                continue
            if depends_on([leaf], self.one.index):
                return None
            a, b = (0, ranges[leaf] - 1) if leaf in ranges else scalar.bounds(leaf)
            low, high = low + min(factor * a, factor * b), high + max(factor * a, factor * b)
        return stride if low >= 0 and high < stride else None

    def is_far(self, leaf: Expr, factor: int, whole: int) -> bool:
        """Whether a term of a position leads to the same place of another layer of all columns."""
        return factor % whole == 0 or abs(factor) == 1 and self.halves.get(leaf, 1) % whole == 0


def _as_loop(stmt: Copy | Fill) -> Loop:
    i = scalar.var("int64", "i")
    value = stmt.value if isinstance(stmt, Fill) else None
    if isinstance(stmt, Copy):
        source = stmt.source
        value = scalar.load(source.buffer, scalar.add(source.index, i), source.buffer.dtype)
    store = Store(stmt.destination.buffer, scalar.add(stmt.destination.index, i), value)
    return Loop(i, stmt.count, [store], kind=LoopKind.VECTORIZED)


def _places(stmt: Stmt) -> dict[Buffer, list[Expr]]:
    """Where a statement reads and writes each buffer of memory."""
    found: dict[Buffer, dict[Expr, None]] = {}
    for s in traversal.statements([stmt]):
        if isinstance(s, Store):
            found.setdefault(s.buffer, {})[s.index] = None
    for e in traversal.nodes([stmt]):
        if e.op == "load":
            found.setdefault(e.attr, {})[e.args[0]] = None
    return {b: list(x) for b, x in found.items() if b.space != "private"}


def _ranges(stmt: Stmt) -> dict[Expr, int]:
    """The trip counts of the loops of a statement."""
    loops = [s for s in traversal.statements([stmt]) if isinstance(s, Loop)]
    return {s.index: s.extent.attr for s in loops if s.extent.op in ("size", "const")}


__all__ = ["IndependentColumns", "Part", "chain", "extents"]
