"""Reductions to more results than registers hold, a few at a time over a strip of rounds.

The gradient of all centres, from all points, is as many sums as centres have coordinates. One loop that
carries them all would bring each from memory and back in every round. Here what several of them need
(weights, distances) is computed first, for the rounds of a strip, into small arrays on the stack; then
loops over the strip sum up a few results each, in registers.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fnx.core import scalar
from fnx.core.records import dataclass
from fnx.core.scalar import Expr
from fnx.lowering.emit import blocks
from fnx.lowering.ir.expressions import buffers_read, nodes, replacing
from fnx.lowering.ir.formats import itemsize
from fnx.lowering.ir.kernel import Let, Loop, Stmt, Store

from . import fuse, views

if TYPE_CHECKING:
    from .storage import Storage

STACK = 1 << 14  # bytes of a strip's arrays
LONGEST = 128  # rounds of a strip, at most,
SHORTEST = 32  # and at least
_REAL = ("float32", "float64")


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
        few = fuse.FEW_TOTALS
        self.together = [order[k : k + few] for k in range(0, len(order), few)]
        groups = [[rounds.yields[k] for k in some] for some in self.together]
        self.shared = dict.fromkeys(_shared(groups, rounds.var))
        row = sum(itemsize(e.dtype) for e in self.shared)
        length = min(LONGEST, STACK // max(row, 1)) // fuse.SMALL * fuse.SMALL
        self.length = min(length, rounds.count)
        self.count = -(
            -rounds.count // max(self.length, 1)
        )  # strips, of which the last may overlap

    def pay(self) -> bool:
        """Whether there are enough rounds; and those of two strips may be made twice."""
        stores = self.rounds.stores
        read = buffers_read([*self.rounds.yields, *(e for s in stores for e in (s.index, s.value))])
        again = read.isdisjoint(s.buffer for s in stores)
        return self.length >= SHORTEST and again and bool(self.shared)

    def loop(self, first: Expr, count: Expr, init: list[Expr], results: list[Expr]) -> Loop:
        """`count` strips from the strip `first` on."""
        number = scalar.var("int64", "p")
        body, yields = self._strip(scalar.add(first, number), results)
        return Loop(number, count, body, results, init, yields)

    def _strip(self, number: Expr, totals: list[Expr]) -> tuple[list[Stmt], list[Expr]]:
        """One strip, and the totals after it."""
        rounds, length = self.rounds, scalar.const(self.length, "int64")
        begin = scalar.mul(number, length)
        start = scalar.apply("min", begin, scalar.size(rounds.count - self.length))
        done = scalar.sub(begin, start)  # rounds of the last strip that the one before has made
        lane = scalar.counter("l", self.length)
        here = replacing({rounds.var: scalar.add(start, lane)})
        arrays = [self.builder.new_stack(e.dtype, self.length) for e in self.shared]
        values = [here(e) for e in (*self.shared, *(s.value for s in rounds.stores))]
        names = [scalar.var(e.dtype) for e in values]
        places = [(a, lane) for a in arrays] + [(s.buffer, here(s.index)) for s in rounds.stores]
        body: list[Stmt] = [Let(names, values)]  # of which many have parts in common
        body += [Store(*place, e) for place, e in zip(places, names, strict=True)]
        stmts: list[Stmt] = [Loop(lane, length, body, vector=True)]
        after = list(totals)
        for some in self.together:
            round_ = scalar.counter("l", self.length)
            place = scalar.add(done, round_)
            known = {rounds.var: scalar.add(begin, round_)}
            for e, a in zip(self.shared, arrays, strict=True):
                known[e] = scalar.load(a, place, a.dtype)
            inner = [scalar.var(totals[k].dtype, "a") for k in some]
            known |= zip([rounds.carries[k] for k in some], inner, strict=True)
            sums = list(map(replacing(known), self._flat([rounds.yields[k] for k in some])))
            left = scalar.sub(length, done)
            before = [totals[k] for k in some]
            stmts.append(Loop(round_, left, [], inner, before, sums, reassociate=True, unroll=1))
            for k, a in zip(some, inner, strict=True):
                after[k] = a
        return stmts, after

    def _flat(self, sums: list[Expr]) -> list[Expr]:
        """Sums in which a total takes one product after the other: each is one operation then."""
        parents = Counter(a for e in nodes(sums, self.shared) for a in set(e.args))

        def terms(e: Expr, sign: int) -> list[tuple[int, Expr]]:
            if e in self.shared or parents[e] > 1 or e.op not in ("add", "sub", "neg"):
                return [(sign, e)]
            signs = (-sign,) if e.op == "neg" else (sign, -sign if e.op == "sub" else sign)
            return [t for s, a in zip(signs, e.args, strict=True) for t in terms(a, s)]

        found = []
        for e in sums:
            if e.op == "add" and e.args[0] in self.rounds.carries and e.dtype in _REAL:
                total = e.args[0]
                for sign, term in terms(e.args[1], 1):
                    total = scalar.add(total, term) if sign > 0 else scalar.sub(total, term)
                e = total
            found.append(e)
        return found


def _shared(groups: list[list[Expr]], var: Expr) -> list[Expr]:
    """What is worth an array: what several groups need, and what is read with gaps."""
    users: dict[Expr, int] = {}
    for exprs in groups:
        for e in nodes(exprs):
            users[e] = users.get(e, 0) + 1
    cost: dict[Expr, int] = {}
    varies: dict[Expr, bool] = {}
    apart: set[Expr] = set()
    for e in _upwards(nodes([x for exprs in groups for x in exprs])):
        varies[e] = e is var or any(varies[a] for a in e.args)
        cost[e] = 0
        if e.op == "load":
            if varies[e] and users[e] > 1 and not _is_next(e.args[0], var):
                apart.add(e)
        elif e.args:
            cost[e] = 1 + sum(cost[a] for a in e.args)
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()
    todo = [e for exprs in reversed(groups) for e in reversed(exprs)]
    while todo:
        e = todo.pop()
        if e in seen or not varies[e]:
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


def _upwards(exprs: Iterable[Expr]) -> list[Expr]:
    """The same expressions, operands first."""
    found, done = [], set()
    for root in exprs:
        stack = [root]
        while stack:
            e = stack[-1]
            below = [a for a in e.args if a not in done]
            if e in done or not below:
                if e not in done:
                    done.add(e)
                    found.append(e)
                stack.pop()
            else:
                stack += below
    return found
