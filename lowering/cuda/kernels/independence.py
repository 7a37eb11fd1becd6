"""Which loops of a nest may be run by threads side by side: no two iterations touch one another's memory.

Source: dependence tests on affine positions (Allen & Kennedy 2001, ch. 3), the strides of which are
looked at as digits: a position tells the iteration that it belongs to.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import dependence, traversal
from fnx.lowering.ir.expressions import depends_on, reads_memory
from fnx.lowering.ir.kernel import (
    Buffer,
    CallHost,
    CallLibrary,
    Copy,
    Fill,
    Loop,
    LoopKind,
    Stmt,
    Store,
    Transpose,
)

from .plan import Axes

_NUMBERS = ("size", "const")
Halves = Mapping[Expr, int]


def is_counted(loop: Loop) -> bool:
    """Whether a loop has no carries, and how often it runs is known."""
    return loop.extent.op in _NUMBERS and loop.extent.attr > 0 and not loop.carries


def chain(stmt: Stmt) -> tuple[list[Loop], list[Stmt]]:
    """A statement as counted loops, in any order of iterations, around a block."""
    loops: list[Loop] = []
    body = [stmt]
    while len(body) == 1 and isinstance(body[0], Loop) and is_counted(body[0]):
        loops.append(body[0])
        body = body[0].body
    return loops, body


def extent(loop: Loop) -> int:
    return int(loop.extent.attr)


def count(loops: Iterable[Loop]) -> int:
    """How many iterations nested loops have together."""
    return prod(map(extent, loops))


def calls(body: Iterable[Stmt]) -> bool:
    """Whether the host is needed inside."""
    return any(isinstance(s, (CallHost, CallLibrary)) for s in traversal.statements(body))


def parallel(loops: Sequence[Loop], body: list[Stmt], halves: Halves) -> list[Loop]:
    """Those of perfectly nested loops around `body` whose iterations are independent."""
    if calls(body):
        return []
    accesses = _Accesses(body)
    return [x for x in loops if accesses.independent(x, loops, halves)]


def may_be_dealt(s: Loop) -> bool:
    """Whether a nest may become a kernel whose threads have iterations of their own."""
    if calls([s]):
        return False
    if s.kind is LoopKind.GRID_BLOCK or s.extent.op not in _NUMBERS:
        return True
    loops, body = chain(s)
    return any(x.kind.vectorized for x in loops) or bool(parallel(loops, body, {}))


class _Accesses:
    """Where a block reads and writes buffers."""

    def __init__(self, body: list[Stmt]) -> None:
        self.writes: dict[Buffer, dict[Expr, None]] = {}
        self.places: dict[Buffer, dict[Expr, None]] = {}
        self.ranges: dict[Expr, tuple[int, int]] = {}
        for s in traversal.statements(body):
            self._take(s)
        for e in traversal.nodes(body):
            if e.op == "load":
                self.places.setdefault(e.attr, {})[e.args[0]] = None

    def _take(self, s: Stmt) -> None:
        if isinstance(s, Store):
            self._write(s.buffer, s.index)
        elif isinstance(s, Loop) and s.extent.op in _NUMBERS:
            self.ranges[s.index] = (0, max(int(s.extent.attr) - 1, 0))
        elif isinstance(s, (Copy, Fill)):
            index = scalar.var("int64", "i")
            if s.count.op in _NUMBERS:
                self.ranges[index] = (0, max(int(s.count.attr) - 1, 0))
            self._write(s.destination.buffer, scalar.add(s.destination.index, index))
            if isinstance(s, Copy):
                place = scalar.add(s.source.index, index)
                self.places.setdefault(s.source.buffer, {})[place] = None
        elif isinstance(s, Transpose):
            i, j = scalar.counter("i", s.rows), scalar.counter("j", s.columns)
            to = scalar.add(scalar.mul(i, s.apart[0]), j)
            self._write(s.destination.buffer, scalar.add(s.destination.index, to))
            of = scalar.add(scalar.mul(j, s.apart[1]), i)
            self.places.setdefault(s.source.buffer, {})[scalar.add(s.source.index, of)] = None

    def _write(self, buffer: Buffer, place: Expr) -> None:
        self.writes.setdefault(buffer, {})[place] = None
        self.places.setdefault(buffer, {})[place] = None

    def independent(self, loop: Loop, loops: Sequence[Loop], halves: Halves) -> bool:
        ranges = self.ranges | {x.index: (0, extent(x) - 1) for x in loops}
        return all(
            self._apart(b, loop, loops, ranges, halves) for b in self.writes if b.space != "private"
        )

    def _apart(
        self,
        buffer: Buffer,
        loop: Loop,
        loops: Sequence[Loop],
        ranges: dict[Expr, tuple[int, int]],
        halves: Halves,
    ) -> bool:
        """Whether iterations of a loop that write a buffer keep to elements of their own."""
        inside = {x.index for x in loops} | self.ranges.keys()
        writes = [_Place(p, inside, ranges) for p in self.writes[buffer]]
        others = [_Place(p, inside, ranges) for p in self.places[buffer]]
        return all(
            w.apart(o, loop, extent(loop)) or _disjoint(w, o, halves)
            for w in writes
            for o in others
        )


class _Place:
    """A position: a multiple of each loop's index, what is fixed in the nest, and a number."""

    def __init__(self, position: Expr, inside: set[Expr], ranges: dict[Expr, tuple[int, int]]):
        found, self.number = dependence.terms(position)
        self.moving: dict[Expr, int] = {}
        self.fixed: dict[Expr, int] = {}
        self.ranges: dict[Expr, tuple[float, float]] = dict(ranges)
        self.is_known = True
        for leaf, factor in found:
            if leaf in inside:
                self.moving[leaf] = factor
            elif depends_on([leaf], inside) or reads_memory(leaf):
                self.moving[leaf] = factor
                self.ranges[leaf] = scalar.bounds(leaf)
                self.is_known = False
            else:
                self.fixed[leaf] = factor

    def range_of(self, leaf: Expr) -> tuple[float, float]:
        return self.ranges[leaf] if leaf in self.ranges else scalar.bounds(leaf)

    def apart(self, other: "_Place", loop: Loop, n: int) -> bool:
        """Whether two iterations of the loop never meet here, whatever the other indices are."""
        c = self.moving.get(loop.index, 0)
        if n == 1:
            return True
        if not c or c != other.moving.get(loop.index) or self.fixed != other.fixed:
            return False
        step, whole = abs(c), abs(c) * n
        if self.moving == other.moving and self.number == other.number and self._tells():
            return True
        low = high = (self.number - other.number) % whole
        for mine, sign in ((self, 1), (other, -1)):
            for leaf, factor in mine.moving.items():
                if leaf is loop.index or factor % whole == 0:
                    continue
                if depends_on([leaf], [loop.index]):
                    return False
                ends = [sign * factor * end for end in mine.range_of(leaf)]
                low, high = low + min(ends), high + max(ends)
        return -step < low and high < step or whole - step < low and high < whole + step

    def _tells(self) -> bool:
        """Whether a position is that of one iteration of all the loops only."""
        if not self.is_known:
            return False
        reach = 0.0
        for leaf, factor in sorted(self.moving.items(), key=lambda x: abs(x[1])):
            low, high = self.range_of(leaf)
            if abs(factor) <= reach:
                return False
            reach += abs(factor) * (high - low)
        return True

    def bounds(self, values: dict[Expr, int]) -> tuple[float, float]:
        """Between which elements the positions lie, for values of what is fixed."""
        low = high = float(self.number)
        for leaf, factor in (self.moving | self.fixed).items():
            known = values.get(leaf)
            ends = [
                factor * e for e in ((known, known) if known is not None else self.range_of(leaf))
            ]
            low, high = low + min(ends), high + max(ends)
        return low, high


def _disjoint(a: _Place, b: _Place, halves: Halves, last: _Place | None = None) -> bool:
    """Whether two positions lie in different parts of a buffer, whichever half is the old one.

    With `last`, all positions from a to it are meant, which move alike.
    """
    leaves = [x for x in dict.fromkeys([*a.fixed, *b.fixed]) if x in halves]
    others = {x for x in (*a.fixed, *b.fixed) if x not in halves}
    if any(a.fixed.get(x, 0) != b.fixed.get(x, 0) for x in others) or len(leaves) > 3:
        return False
    zero = dict.fromkeys(others, 0)
    for chosen in product(*[(0, halves[x]) for x in leaves]):
        values = zero | dict(zip(leaves, chosen, strict=True))
        (low, _), (_, high), (least, most) = (x.bounds(values) for x in (a, last or a, b))
        if not (high < least or most < low):
            return False
    return True


def never_met(ends: tuple[Expr, Expr], place: Expr, axes: Axes, halves: Halves) -> bool:
    """Whether what lies between two positions is never at another one, in any iterations of axes."""
    ranges = {i: (0, int(n.attr) - 1) for i, n in axes}
    first, last, other = (_Place(p, {*ranges}, ranges) for p in (*ends, place))
    return first.is_known and other.is_known and _disjoint(first, other, halves, last)


__all__ = ["calls", "chain", "count", "extent", "is_counted", "never_met", "parallel"]
