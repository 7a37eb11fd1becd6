"""Reductions to more results than registers hold, a few at a time over a strip of rounds.

The gradient of all centres, from all points, is as many sums as centres have coordinates. One loop that
carries them all would bring each from memory and back in every round. Here what several of them need
(weights, distances) is computed first, for the rounds of a strip, into small arrays on the stack; then
loops over the strip sum up a few results each, in registers.
"""

from collections import Counter
from collections.abc import Collection, Container, Sequence
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

STACK = 1 << 14
LONGEST = 128  # rounds of a strip, at most,
SHORTEST = 32  # and at least


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

    def __init__(self, builder: "Storage", rounds: Rounds, order: Sequence[int]):
        self.builder, self.rounds = builder, rounds
        self.sums = sums.flat(rounds.carries, rounds.yields, rounds.var)
        self.together = self._grouped(order)
        groups = [[self.sums.yields[k] for k in some] for some in self.together]
        varies = sums.varying(self.sums.yields, [rounds.var])
        shared = _shared(groups, rounds.var, varies)
        self.stages = stages.cut(shared, varies)
        self.together = [self._ordered(some, set(shared)) for some in self.together]
        row = sum(itemsize(e.dtype) for e in shared)
        length = min(LONGEST, STACK // max(row, 1)) // fuse.SMALL * fuse.SMALL
        self.length = min(length, rounds.count)
        self.count = -(
            -rounds.count // max(self.length, 1)
        )  # strips, of which the last may overlap

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
        """`count` strips from the strip `first` on."""
        number = scalar.var("int64", "p")
        more = [scalar.var(w.dtype, "a") for w in self.sums.factors]
        later = self.sums.later
        own = [scalar.var(a.dtype, "a") if k in later else a for k, a in enumerate(results)]
        totals = [*own, *more]
        body, yields = self._strip(scalar.add(first, number), totals)
        strips: list[Stmt] = [Loop(number, count, body, totals, self.sums.begin(init), yields)]
        ends = {results[k]: self.sums.end(k, init[k], totals) for k in later}
        return [*strips, Let(list(ends), list(ends.values()))] if ends else strips

    def _strip(self, number: Expr, totals: list[Expr]) -> tuple[list[Stmt], list[Expr]]:
        """One strip, and the totals after it."""
        rounds, length = self.rounds, scalar.const(self.length, "int64")
        begin = scalar.mul(number, length)
        start = scalar.apply("min", begin, scalar.size(rounds.count - self.length))
        done = scalar.sub(begin, start)  # rounds of the last strip that the one before has made
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
            names = [scalar.var(s.value.dtype) for s in stores]
            values = [s.value for s in stores]  # of which many have parts in common
            body = [Let(names, values), *map(_stored_as, stores, names)]
            stmts += [Loop(lane, length, body, vector=True)] if stores else []
            arrays |= new
        after = list(totals)
        for some in self.together:
            round_ = scalar.counter("l", self.length)
            place = scalar.add(done, round_)
            known = {rounds.var: scalar.add(begin, round_)}
            known |= {e: scalar.load(a, place, a.dtype) for e, a in arrays.items()}
            inner = [scalar.var(totals[k].dtype, "a") for k in some]
            known |= zip([self.sums.carries[k] for k in some], inner, strict=True)
            values = list(map(replacing(known), [self.sums.yields[k] for k in some]))
            left = scalar.sub(length, done)
            before = [totals[k] for k in some]
            stmts.append(Loop(round_, left, [], inner, before, values, reassociate=True, unroll=1))
            for k, a in zip(some, inner, strict=True):
                after[k] = a
        return stmts, after


def _stored_as(s: Store, value: Expr) -> Store:
    return Store(s.buffer, s.index, value)


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
