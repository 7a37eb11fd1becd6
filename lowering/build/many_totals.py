"""Reductions to more results than registers hold, a few at a time over a strip of rounds.

The gradient of all centres, from all points, is as many sums as centres have coordinates. One loop that
carries them all would bring each from memory and back in every round. Here what several of them need
(weights, distances) is computed first, for the rounds of a strip, into small arrays on the stack; then
loops over the strip sum up a few results each, in registers.
"""

from collections import Counter
from collections.abc import Callable, Collection, Container, Sequence
from typing import TYPE_CHECKING

from fnx.core import scalar
from fnx.core.records import dataclass
from fnx.core.scalar import Expr
from fnx.lowering.emit import blocks
from fnx.lowering.ir.expressions import buffers_read, nodes, ordered, replacing
from fnx.lowering.ir.formats import itemsize
from fnx.lowering.ir.kernel import Buffer, Let, Loop, Stmt, Store
from fnx.lowering.target import processor

from . import fuse, stages, sums, views

if TYPE_CHECKING:
    from .storage import Storage

STACK = 1 << 14  # bytes of a strip's arrays
LONGEST = 128  # rounds of a strip, at most,
SHORTEST = 32  # and at least


Combine = Callable[[list[Expr], list[Expr]], list[Expr]]  # of partial results


@dataclass(frozen=True, eq=False)
class Rounds:
    """A loop of so many rounds: what it stores, what it carries."""

    var: Expr
    count: int
    stores: list[Store]
    carries: list[Expr]
    init: list[Expr]
    yields: list[Expr]


class Strips:
    """A loop by strips. `order`: numbers of carries, neighbours of which are best computed together."""

    def __init__(self, builder: "Storage", rounds: Rounds, order: Sequence[int], combine: Combine):
        self.builder, self.rounds, self.combine = builder, rounds, combine
        self.sums = sums.flat(rounds.carries, rounds.yields, rounds.var)
        self.together = self._grouped(order)
        groups = [[self.sums.yields[k] for k in some] for some in self.together]
        varies = sums.varying(self.sums.yields, [rounds.var])
        shared = _shared(groups, rounds.var, varies)
        self.stages = stages.cut(shared, varies)
        stored = {e for stage in self.stages for e in stage}
        self.together = [self._ordered(some, stored) for some in self.together]
        row = sum(itemsize(e.dtype) for e in stored)
        length = min(LONGEST, STACK // max(row, 1)) // fuse.SMALL * fuse.SMALL
        self.length = min(length, rounds.count)
        bits = 8 * max([itemsize(a.dtype) for a in rounds.carries])
        self.lanes = max(1, processor.vector_bits() // bits)
        self.count = -(-rounds.count // max(self.length, 1))  # the last strip may overlap

    def _grouped(self, order: Sequence[int]) -> list[list[int]]:
        """As many carries as there are registers for, each sum of a factor with the first that needs it."""
        few = processor.vector_registers() // 2  # the others hold what is summed
        number = {w: len(order) + k for k, w in enumerate(self.sums.factors)}
        found: list[list[int]] = []
        size = few
        for k in order:
            if size >= few:
                found.append([])
                size = 0
            terms = self.sums.later[k][1] if k in self.sums.later else []
            new = [number.pop(w) for _, e in terms for w in e.args if w in number]
            own = [k] if self.sums.yields[k] is not self.sums.carries[k] else []
            found[-1] += [*new, *own]
            size += len(own or new)
        return [some for some in found if some]

    def _ordered(self, some: list[int], stored: Collection[Expr]) -> list[int]:
        """Carries such that those which read what few others read are neighbours."""
        reads = {
            k: [a for e in nodes([self.sums.yields[k]], stored) for a in e.args if a in stored]
            for k in some
        }
        users = Counter(a for read in reads.values() for a in dict.fromkeys(read))
        first = {a: k for k, a in enumerate(users)}
        rarest = {k: min([(users[a], first[a]) for a in reads[k]], default=(0, 0)) for k in some}
        return sorted(some, key=rarest.__getitem__)

    def pay(self) -> bool:
        """Whether there are enough rounds; and those of two strips may be made twice."""
        stores = self.rounds.stores
        read = buffers_read([*self.rounds.yields, *(e for s in stores for e in (s.index, s.value))])
        again = read.isdisjoint(s.buffer for s in stores)
        helps = any(self.stages) or bool(self.sums.factors)
        return self.length >= SHORTEST and again and helps

    def loop(self, first: Expr, count: Expr, init: list[Expr], results: list[Expr]) -> list[Stmt]:
        """`count` strips from the strip `first` on.

        Each total is a vector of partial ones, which are joined after the last strip.
        """
        begin, number = self.sums.begin(init), scalar.var("int64", "p")
        own = {k: self.sums.carries[k].dtype for some in self.together for k in some}
        totals = {k: self.builder.new_stack(dtype, self.lanes) for k, dtype in own.items()}
        whole = [scalar.var(own[k], "a") if k in own else e for k, e in enumerate(begin)]
        lane, lanes = scalar.counter("l", self.lanes), scalar.const(self.lanes, "int64")
        start: list[Stmt] = [Store(t, lane, begin[k]) for k, t in totals.items()]
        body = self._strip(scalar.add(first, number), totals)
        later = self.sums.later
        ends = [self.sums.end(k, e, whole) if k in later else whole[k] for k, e in enumerate(init)]
        return [
            Loop(lane, lanes, start, vector=True),
            Loop(number, count, body),
            *(self._joined(some, begin, totals, whole) for some in self.together),
            Let(results, ends),
        ]

    def _joined(
        self, some: list[int], begin: list[Expr], totals: dict[int, Buffer], whole: list[Expr]
    ) -> Loop:
        """Some totals of their partial ones."""
        lane = scalar.counter("l", self.lanes)
        parts = [
            scalar.load(t, lane, t.dtype) if (t := totals.get(k)) else e
            for k, e in enumerate(begin)
        ]
        n = len(self.rounds.carries)
        new = [*self.combine(whole[:n], parts[:n]), *map(scalar.add, whole[n:], parts[n:])]
        values = ([x[k] for k in some] for x in (whole, begin, new))
        lanes = scalar.const(self.lanes, "int64")
        return Loop(lane, lanes, [], *values, reassociate=True, unroll=1)

    def _strip(self, number: Expr, totals: dict[int, Buffer]) -> list[Stmt]:
        """What a strip adds to partial totals."""
        rounds, length = self.rounds, scalar.const(self.length, "int64")
        begin = scalar.mul(number, length)
        start = scalar.apply("min", begin, scalar.size(rounds.count - self.length))
        arrays: dict[Expr, Buffer] = {}
        stmts: list[Stmt] = []
        for k, stage in enumerate(self.stages):
            lane = scalar.counter("l", self.length)
            known = {e: scalar.load(a, lane, e.dtype) for e, a in arrays.items()}
            here = replacing({rounds.var: scalar.add(start, lane), **known})
            new = {e: self.builder.new_stack(e.dtype, self.length) for e in stage}
            stores = [Store(a, lane, here(e)) for e, a in new.items()]
            if k == len(self.stages) - 1:
                stores += [Store(s.buffer, here(s.index), here(s.value)) for s in rounds.stores]
            stmts += [Loop(lane, length, _at_once(stores), vector=True)] if stores else []
            arrays |= new
        done = scalar.sub(begin, start)  # rounds of the last strip that the one before has made
        vectors, rest = scalar.divmod_size(scalar.sub(length, done), self.lanes)

        def added(some: list[int], lane: Expr, place: Expr) -> list[Stmt]:
            known = {rounds.var: scalar.add(start, place)}
            known |= {e: scalar.load(a, place, a.dtype) for e, a in arrays.items()}
            known |= {
                self.sums.carries[k]: scalar.load(t, lane, t.dtype) for k, t in totals.items()
            }
            anew = replacing(known)
            return _at_once([Store(totals[k], lane, anew(self.sums.yields[k])) for k in some])

        for some in self.together:
            row, lane = scalar.counter("v", self.length), scalar.counter("l", self.lanes)
            lanes = scalar.const(self.lanes, "int64")
            place = scalar.add(done, scalar.add(scalar.mul(row, lanes), lane))
            vector = Loop(lane, lanes, added(some, lane, place), vector=True, unroll=1)
            stmts.append(Loop(row, vectors, [vector]))
            if rounds.count % self.lanes:
                last = scalar.counter("l", self.lanes)
                place = scalar.add(scalar.sub(length, rest), last)
                stmts.append(Loop(last, rest, added(some, scalar.size(0), place), unroll=1))
        return stmts


def _at_once(stores: list[Store]) -> list[Stmt]:
    """Stores of values that have many parts in common."""
    names = [scalar.var(s.value.dtype) for s in stores]
    new = [Store(s.buffer, s.index, x) for s, x in zip(stores, names, strict=True)]
    return [Let(names, [s.value for s in stores]), *new]


def _shared(groups: list[list[Expr]], var: Expr, varies: Container[Expr]) -> list[Expr]:
    """What is worth an array: what several groups need, and what is read with gaps."""
    users: dict[Expr, int] = {}
    for exprs in groups:
        for e in nodes(exprs):
            users[e] = users.get(e, 0) + 1
    cost: dict[Expr, int] = {}
    apart: set[Expr] = set()
    for e in ordered(x for exprs in groups for x in exprs):
        cost[e] = 0
        if e.op == "load":
            if e in varies and users[e] > 1 and not _is_next(e.args[0], var):
                apart.add(e)
        elif e.args:
            cost[e] = 1 + sum(cost[a] for a in e.args)
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()
    todo = [e for exprs in reversed(groups) for e in reversed(exprs)]
    while todo:
        e = todo.pop()
        if e in seen or e not in varies:
            continue
        seen.add(e)
        dear = users[e] > 1 and cost[e] > fuse.CHEAP_USES or e in apart
        if dear and blocks.can(e.dtype):
            found[e] = None
        elif e.op != "load":
            todo += reversed(e.args)
    return list(found)


def _is_next(index: Expr, var: Expr) -> bool:
    """Whether neighbouring rounds read neighbours, or all rounds the same."""
    at = views.linear(index, {id(var): 0})
    return at is not None and at[1].get(0, 0) in (0, 1)
