"""Blocked reductions: more results than registers hold, a few at a time over a strip of iterations.

The gradient of all centres, from all points, is as many sums as centres have coordinates. One loop that
carries them all would bring each from memory and back in every iteration. Here what several of them need
(weights, distances) is computed first, for the iterations of a strip, into small arrays on the stack; then
loops over the strip sum up a few results each, in registers.

Source: loop distribution, Allen & Kennedy 2001, ch. 6, of a strip-mined loop (ch. 9); register pressure.
Input: a loop that carries many accumulators.
Output: a loop over strips, with loops over the iterations of a strip inside.
Legal when: the reductions may reassociate.
Pays when: there are more carries than registers, and several strips.
Costs: what is shared goes through the stack, at most `REDUCED_STACK` bytes.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Container, Sequence

from fnx.core import policy, scalar
from fnx.core.fast_dataclasses import dataclass
from fnx.core.scalar import Expr
from fnx.lowering.cpu.llvm import register_transpose
from fnx.lowering.cpu.processor import features, thresholds
from fnx.lowering.generate.generation import Generation
from fnx.lowering.ir import affine
from fnx.lowering.ir.expressions import buffers_read, nodes, ordered, replacing
from fnx.lowering.ir.kernel import Buffer, Let, Loop, LoopKind, Stmt, Store
from fnx.lowering.ir.number_formats import itemsize
from fnx.lowering.planning import fusion_policy
from fnx.lowering.transform import reduction_factoring

from . import loop_distribution

Combine = Callable[[list[Expr], list[Expr]], list[Expr]]  # of partial results
Place = tuple[Buffer, Expr]  # where the totals of a kind begin


@dataclass(frozen=True, eq=False)
class Iterations:
    """A loop of so many iterations: what it stores, what it carries."""

    var: Expr
    count: int
    stores: list[Store]
    carries: list[Expr]
    init: list[Expr]
    yields: list[Expr]


@dataclass(frozen=True, eq=False)
class Kind:
    """Totals that begin alike and are joined alike: neighbours in memory, so that one loop is enough."""

    members: list[int]  # numbers of carries
    begin: Expr
    joined: Callable[[Expr, Expr], Expr]

    @property
    def dtype(self) -> str:
        return self.begin.dtype

    @property
    def size(self) -> int:
        return len(self.members)


class Strips:
    """A loop by strips. `order`: numbers of carries, neighbours of which are best computed together."""

    def __init__(
        self, builder: Generation, iterations: Iterations, order: Sequence[int], combine: Combine
    ):
        self.builder, self.iterations = builder, iterations
        self.sums = reduction_factoring.flat(iterations.carries, iterations.yields, iterations.var)
        self.begin = self.sums.begin(iterations.init)
        self.together = self._grouped(order)
        self.kinds = self._kinds(combine)
        groups = [[self.sums.yields[k] for k in some] for some in self.together]
        varies = reduction_factoring.varying(self.sums.yields, [iterations.var])
        shared = _shared(groups, iterations.var, varies)
        self.stages = loop_distribution.cut(shared, varies)
        stored = {e for stage in self.stages for e in stage}
        self.together = [self._ordered(some, stored) for some in self.together]
        row = sum(itemsize(e.dtype) for e in stored)
        length = (
            min(thresholds.LONGEST_STRIP, thresholds.REDUCED_STACK // max(row, 1))
            // policy.SMALL
            * policy.SMALL
        )
        self.length = min(length, iterations.count)
        bits = 8 * max([itemsize(a.dtype) for a in iterations.carries])
        self.lanes = max(1, features.vector_bits() // bits)
        self.count = -(-iterations.count // max(self.length, 1))  # the last strip may overlap

    def _grouped(self, order: Sequence[int]) -> list[list[int]]:
        """As many carries as there are registers for, each sum of a factor with the first that needs it."""
        few = features.vector_registers() // 2  # the others hold what is summed
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

    def _kinds(self, combine: Combine) -> list[Kind]:
        """The totals by kind; none if what joins one needs others besides."""
        n, carries = len(self.iterations.carries), self.sums.carries
        parts = [scalar.var(a.dtype, "a") for a in carries]
        new = [*combine(carries[:n], parts[:n]), *map(scalar.add, carries[n:], parts[n:])]
        found: dict[tuple, list[int]] = {}
        for k in (k for some in self.together for k in some):
            e = new[k]
            if e.args != (carries[k], parts[k]):
                return []
            found.setdefault((e.op, e.dtype, e.attr, self.begin[k]), []).append(k)
        return [
            Kind(
                members,
                begin,
                lambda a, b, op=op, attr=attr: scalar.node(op, a.dtype, (a, b), attr),
            )
            for (op, _, attr, begin), members in found.items()
        ]

    def pay(self) -> bool:
        """Whether there are enough iterations; and those of two strips may be made twice."""
        stores = self.iterations.stores
        read = buffers_read(
            [*self.iterations.yields, *(e for s in stores for e in (s.index, s.value))]
        )
        again = read.isdisjoint(s.buffer for s in stores)
        helps = (
            any(self.stages) or bool(self.sums.factors) or len(self.sums.carries) > policy.PROBLEM
        )
        return self.length >= thresholds.SHORTEST_STRIP and again and helps and bool(self.kinds)

    def loop(self, first: Expr, count: Expr, places: list[Place]) -> list[Stmt]:
        """`count` strips from the strip `first` on; the totals of each kind are left in its place.

        Each total is a vector of partial ones, which are joined after the last strip.
        """
        lanes, number = self.lanes, scalar.var("int64", "p")
        partial = [self.builder.new_stack(kind.dtype, lanes * kind.size) for kind in self.kinds]
        begun = [_filled(a, kind.begin) for a, kind in zip(partial, self.kinds, strict=True)]
        body = self._strip(scalar.add(first, number), partial)
        joined: list[Stmt] = []
        for kind, array, place in zip(self.kinds, partial, places, strict=True):
            k, lane = scalar.counter("k", kind.size), scalar.counter("l", lanes)
            at = scalar.add(scalar.mul(k, scalar.const(lanes, "int64")), lane)
            total = scalar.var(kind.dtype, "a")
            new = kind.joined(total, scalar.load(array, at, kind.dtype))
            extent = scalar.const(lanes, "int64")
            loop = Loop(
                lane, extent, [], [total], [kind.begin], [new], reassociate=True, rolled=True
            )
            joined.append(Loop(k, scalar.size(kind.size), [loop, Store(*_at(place, k), total)]))
        return [*begun, Loop(number, count, body), *joined]

    def parts(self, each: int) -> tuple[Loop, list[Stmt], list[Place]]:
        """Parts of `each` strips, which threads share; what joins their totals, and leaves them where."""
        count, part = -(-self.count // each), scalar.var("int64", "p")
        arrays = [self.builder.new_buffer(kind.dtype, count * kind.size) for kind in self.kinds]
        of = lambda p: [
            (array, scalar.mul(p, scalar.size(kind.size)))
            for array, kind in zip(arrays, self.kinds, strict=True)
        ]
        first = scalar.mul(part, scalar.size(each))
        left = scalar.sub(scalar.size(self.count), first)
        number = scalar.apply("min", scalar.size(each), left)
        loop = Loop(
            part, scalar.size(count), self.loop(first, number, of(part)), kind=LoopKind.PARALLEL
        )
        totals, joined = self.places(), list[Stmt]()
        p = scalar.counter("p", count)
        for kind, more, place in zip(self.kinds, of(p), totals, strict=True):
            k = scalar.counter("k", kind.size)
            new = kind.joined(_load(place, k), _load(more, k))
            row = Loop(
                k, scalar.size(kind.size), [Store(*_at(place, k), new)], kind=LoopKind.VECTORIZED
            )
            joined += [_filled(place[0], kind.begin), Loop(p, scalar.size(count), [row])]
        return loop, joined, totals

    def places(self) -> list[Place]:
        """Places on the stack for the totals."""
        new = self.builder.new_stack
        return [(new(kind.dtype, kind.size), scalar.size(0)) for kind in self.kinds]

    def results(self, places: list[Place]) -> list[Expr]:
        """The values of the carries after all strips."""
        whole = list(self.begin)
        for kind, place in zip(self.kinds, places, strict=True):
            for at, k in enumerate(kind.members):
                whole[k] = _load(place, scalar.const(at, "int64"))
        later, init = self.sums.later, self.iterations.init
        return [self.sums.end(k, e, whole) if k in later else whole[k] for k, e in enumerate(init)]

    def _strip(self, number: Expr, partial: list[Buffer]) -> list[Stmt]:
        """What a strip adds to partial totals."""
        totals = {
            k: (array, scalar.const(at * self.lanes, "int64"))
            for kind, array in zip(self.kinds, partial, strict=True)
            for at, k in enumerate(kind.members)
        }
        iterations, length = self.iterations, scalar.const(self.length, "int64")
        begin = scalar.mul(number, length)
        start = scalar.apply("min", begin, scalar.size(iterations.count - self.length))
        arrays: dict[Expr, Buffer] = {}
        stmts: list[Stmt] = []
        for k, stage in enumerate(self.stages):
            lane = scalar.counter("l", self.length)
            known = {e: scalar.load(a, lane, e.dtype) for e, a in arrays.items()}
            here = replacing({iterations.var: scalar.add(start, lane), **known})
            new = {e: self.builder.new_stack(e.dtype, self.length) for e in stage}
            stores = [Store(a, lane, here(e)) for e, a in new.items()]
            if k == len(self.stages) - 1:
                stores += [Store(s.buffer, here(s.index), here(s.value)) for s in iterations.stores]
            stmts += (
                [Loop(lane, length, _at_once(stores), kind=LoopKind.VECTORIZED)] if stores else []
            )
            arrays |= new
        done = scalar.sub(begin, start)  # iterations of the last strip that the one before has made
        vectors, rest = scalar.divmod_size(scalar.sub(length, done), self.lanes)

        def added(some: list[int], lane: Expr, place: Expr) -> list[Stmt]:
            known = {iterations.var: scalar.add(start, place)}
            known |= {e: scalar.load(a, place, a.dtype) for e, a in arrays.items()}
            known |= {self.sums.carries[k]: _load(t, lane) for k, t in totals.items()}
            anew = replacing(known)
            return _at_once([Store(*_at(totals[k], lane), anew(self.sums.yields[k])) for k in some])

        for some in self.together:
            row, lane = scalar.counter("v", self.length), scalar.counter("l", self.lanes)
            lanes = scalar.const(self.lanes, "int64")
            place = scalar.add(done, scalar.add(scalar.mul(row, lanes), lane))
            vector = Loop(
                lane, lanes, added(some, lane, place), kind=LoopKind.VECTORIZED, rolled=True
            )
            stmts.append(Loop(row, vectors, [vector]))
            if iterations.count % self.lanes:
                last = scalar.counter("l", self.lanes)
                place = scalar.add(scalar.sub(length, rest), last)
                stmts.append(Loop(last, rest, added(some, scalar.size(0), place), rolled=True))
        return stmts


def in_strips(
    builder: Generation,
    dim: tuple[Expr, int],
    stores: list[Store],
    carries: tuple[list[Expr], list[Expr], list[Expr]],
    order: Sequence[int],
    combine: Combine,
) -> Strips | None:
    """The reductions of one loop, if a few results at a time pay."""
    strips = Strips(builder, Iterations(*dim, stores, *carries), order, combine)
    return strips if strips.pay() else None


def _at(place: Place, k: Expr) -> Place:
    return place[0], scalar.add(place[1], k)


def _load(place: Place, k: Expr) -> Expr:
    array, index = _at(place, k)
    return scalar.load(array, index, array.dtype)


def _filled(array: Buffer, value: Expr) -> Loop:
    i = scalar.counter("i", array.size)
    return Loop(i, scalar.size(array.size), [Store(array, i, value)], kind=LoopKind.VECTORIZED)


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
            cost[e] = fusion_policy.scalar_operations(e.op) + sum(cost[a] for a in e.args)
    # Few groups rather compute again: what is stored could not be computed in stages.
    cheap = policy.CHEAP if len(groups) > policy.SMALL else math.inf
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()
    todo = [e for exprs in reversed(groups) for e in reversed(exprs)]
    while todo:
        e = todo.pop()
        if e in seen or e not in varies:
            continue
        seen.add(e)
        worth = cost[e] > policy.CHEAP_USES or cost[e] * users[e] >= cheap
        dear = users[e] > 1 and worth or e in apart
        if dear and register_transpose.can(e.dtype):
            found[e] = None
        elif e.op != "load":
            todo += reversed(e.args)
    return list(found)


def _is_next(index: Expr, var: Expr) -> bool:
    """Whether neighbouring iterations read neighbours, or all iterations the same."""
    at = affine.linear(index, {id(var): 0})
    return at is not None and at[1].get(0, 0) in (0, 1)
