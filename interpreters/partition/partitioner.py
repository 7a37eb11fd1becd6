"""The partitioner: walks a program, propagates how arrays are cut, and records one member's program.

Forwards: what an equation computes is cut as its operands are, as far as the rule of its primitive allows
(fnx/ops/base/sharding_rule.py). Backwards: how results are wanted says how values are cut of which operands
say nothing. What disappears is summed over members at once; what must be whole is gathered, and noted.

Source: Xu et al. 2021 (GSPMD).
Input: a jaxpr of whole arrays, and how inputs are cut.
Output: one member's jaxpr, and how results are cut.
Legal when: equations have no effects.
"""

from collections.abc import Sequence
from typing import Any

from fnx.core.array import Array
from fnx.core.jaxpr import Eqn, Jaxpr, Var
from fnx.core.primitive import Primitive
from fnx.core.source import origin
from fnx.interpreters.collectives import PMax, PMin, PSum
from fnx.interpreters.passes.value_numbering import called, expanded
from fnx.interpreters.trace import trace_closed
from fnx.ops.base.sharding_rule import Factors
from fnx.ops.elementwise.arithmetic import add
from fnx.ops.structure.basic import broadcast_to, scalar, slice_axis
from fnx.ops.structure.movement import Broadcast, Concatenate, Pad

from .diagonals import Diagonal, diagonals, picked
from .parts import Cut, Mover, Names, Part, padded, sliced, whole
from .rotations import Rotation, rotations

_REDUCED: dict[str, Any] = {"sum": PSum, "max": PMax, "min": PMin}


class Grid(Mover):
    """Performs equations on parts."""

    # --- programs

    def evaluate(self, jaxpr: Jaxpr, parts: Sequence[Part]) -> list[Part]:
        """A jaxpr's results, of parts of its inputs."""
        env: dict[Any, Part] = dict(zip(jaxpr.inputs, parts, strict=True))
        wishes, turns, picks = self.wishes(jaxpr), rotations(jaxpr), diagonals(jaxpr)
        later = {id(e) for turn in turns.values() for e in turn.slices}
        later |= {id(d.flat) for d in picks.values()}
        before = origin.set(origin.get())
        try:
            for e in jaxpr.eqns:
                if id(e) in later:
                    continue
                if e.source is not None:
                    origin.set(e.source)
                turn = turns.get(e.outs[0]) if e.outs else None
                pick = picks.get(e.outs[0]) if e.outs else None
                if pick is not None:
                    outs = [self.pick(e, pick, env[pick.operand])]
                elif turn is not None:
                    outs = [self.turn(e, turn, env[turn.operand], wishes.get(e.outs[0]))]
                else:
                    given = [env[a] if type(a) is Var else whole(a.value) for a in e.inputs]
                    outs = self.equation(e, given, [wishes.get(v) for v in e.outs])
                for v, p in zip(e.outs, outs, strict=True):
                    env[v] = self.typed(p, v.aval)
        finally:
            origin.reset(before)
        return [
            env[o] if type(o) is Var else whole(o.value)  # type: ignore[union-attr]
            for o in jaxpr.outs
        ]

    def turn(self, e: Eqn, turn: Rotation, p: Part, wanted: Cut | None) -> Part:
        """A rotation, as one if its operand's parts allow it."""
        found = self.rotated(p, turn.axis, turn.by) if p.cut[turn.axis] else None
        if found is None:
            pieces = [self.apply(s.prim, [p])[0] for s in turn.slices]
            (found,) = self.apply(e.prim, pieces, [wanted])
        return found

    def pick(self, e: Eqn, diagonal: Diagonal, p: Part) -> Part:
        """A diagonal, as one if its operand's rows or columns are cut."""
        found = picked(self, p, diagonal)
        if found is None:
            (found,) = self.apply(e.prim, self.apply(diagonal.flat.prim, [p]))
        return found

    def equation(self, e: Eqn, parts: list[Part], wanted: Sequence[Cut | None]) -> list[Part]:
        if not hasattr(e.prim, "partition"):
            inner = called(e.prim, True, e.inputs) or expanded(e.prim)
            if inner is not None:
                return self.evaluate(inner, parts)
        return self.apply(e.prim, parts, wanted)

    def body(
        self, jaxpr: Jaxpr, cuts: Sequence[Cut], wanted: Sequence[Cut] | None = None
    ) -> tuple[Jaxpr, list[Cut]]:
        """One member's jaxpr of another, and how its results are cut: as wanted, if that is given."""
        found: list[Cut] = []

        def member(*xs: Array) -> list[Array]:
            shapes = [a.shape for a in jaxpr.in_avals]
            outs = self.evaluate(jaxpr, list(map(Part, xs, shapes, cuts)))
            if wanted is not None:
                outs = [self.lay(p, c) for p, c in zip(outs, wanted, strict=True)]
            outs = [self.typed(p, a) for p, a in zip(outs, jaxpr.out_avals)]
            found[:] = [p.cut for p in outs]
            return [p.x for p in outs]

        avals = [
            a.update(shape=tuple([self.block(n, names) for n, names in zip(a.shape, c)]))
            for a, c in zip(jaxpr.in_avals, cuts, strict=True)
        ]
        return trace_closed(member, avals, name=jaxpr.name), found

    def shapes(self, prim: Primitive, parts: Sequence[Part]) -> list[tuple[int, ...]]:
        return [a.shape for a in prim.abstract(*[p.aval for p in parts])]

    # --- one equation

    def apply(
        self, prim: Any, parts: Sequence[Part], wanted: Sequence[Cut | None] = ()
    ) -> list[Part]:
        """The results of a primitive, by its own rule, or on whole operands."""
        if hasattr(prim, "partition"):
            return prim.partition(self, list(parts))
        rule = rule_of(prim, parts)
        if rule is not None and hasattr(prim, "along"):
            if any(
                n and f is None for p, fs in zip(parts, rule.operands) for n, f in zip(p.cut, fs)
            ):
                found = prim.along(self, list(parts))
                if found is not None:
                    return found
        if rule is None:
            parts = [self.gathered(p) for p in parts]
            outs = prim.apply(*[p.x for p in parts])
            return [whole(x) for x in outs]
        return self.by_factors(prim, rule, parts, wanted)

    def by_factors(
        self, prim: Any, rule: Factors, parts: Sequence[Part], wanted: Sequence[Cut | None]
    ) -> list[Part]:
        shapes = self.shapes(prim, parts)
        chosen = self.names_of(rule, parts, shapes, wanted)
        given = [
            self.lay(p, tuple([chosen.get(f, ()) for f in fs]))
            for p, fs in zip(parts, rule.operands, strict=True)
        ]
        for f, (_, identity) in rule.combined.items():
            if chosen.get(f):
                given = [
                    self.masked(p, fs.index(f), identity) if f in fs else p
                    for p, fs in zip(given, rule.operands)
                ]
        counts = {f: self.count(n) for f, n in chosen.items()}
        local = prim if rule.local is None else rule.local(counts)
        outs = local.apply(*[p.x for p in given])
        for f, (op, _) in rule.combined.items():
            if chosen.get(f):
                outs = [self.reduced(x, op, chosen[f]) for x in outs]
        cuts = [tuple([chosen.get(f, ()) for f in fs]) for fs in rule.results]
        found = list(map(Part, outs, shapes, cuts))
        if type(prim) is Broadcast and given[0].aval.size < found[0].aval.size:
            found[0].made = prim, given[0]
        return [self.cut_again(p, fs, parts, rule) for p, fs in zip(found, rule.results)]

    def lay(self, p: Part, cut: Cut) -> Part:
        """The same array, cut otherwise; what repeats a smaller one is made again of that."""
        if p.made is not None and p.cut != cut:
            prim, q = p.made
            (axes,) = rule_of(prim, [q]).operands  # type: ignore[union-attr]
            q = self.lay(q, tuple([() if f is None else cut[f] for f in axes]))
            (again,) = self.apply(prim, [q], [cut])
            if again.cut == cut:
                return again
        return super().lay(p, cut)

    def cut_again(self, p: Part, factors: Sequence, parts: Sequence[Part], rule: Factors) -> Part:
        """A result, cut along axes along which operands had to be whole and were not."""
        for q, given in zip(parts, rule.operands):
            if q.ndim != p.ndim or tuple(factors) != tuple(given):
                continue
            for axis, (f, names) in enumerate(zip(given, q.cut)):
                if f is not None or not names or p.shape[axis] % self.count(names):
                    continue
                # What was exchanged goes back.
                cut = [old if own == old + names[::-1] else own for own, old in zip(p.cut, q.cut)]
                if not cut[axis] and set(names).isdisjoint([n for own in cut for n in own]):
                    p = self.lay(p, (*cut[:axis], names, *cut[axis + 1 :]))
        return p

    def reduced(self, x: Array, op: Any, names: Names) -> Array:
        """What all members along names have, as one."""
        if op in _REDUCED:
            return _REDUCED[op](names)(x)
        return op((0,))(self.rows(x, names))

    def names_of(
        self, rule: Factors, parts: Sequence[Part], shapes: Sequence, wanted: Sequence[Cut | None]
    ) -> dict[Any, Names]:
        """The names along which each factor is cut: those of the largest operand, then of others."""
        chosen: dict[Any, Names] = {}
        sides = sorted(zip(parts, rule.operands), key=lambda s: -s[0].aval.size)
        for p, factors in sides:
            for f, names, n in zip(factors, p.cut, p.shape):
                self._choose(rule, chosen, f, names, n)
        for p, factors in sides:
            self._turn_aside(rule, chosen, p, factors)
        for cut, factors, shape in zip(wanted, rule.results, shapes):
            for f, names, n in zip(factors, cut or (), shape):
                self._choose(rule, chosen, f, names, n)
        return chosen

    def _turn_aside(self, rule: Factors, chosen: dict, p: Part, factors: Sequence) -> None:
        """Cut along another axis, if an exchange gives that, instead of one that must be whole."""
        kept = {f for fs in rule.results for f in fs}
        for axis, (f, names) in enumerate(zip(factors, p.cut)):
            if f is not None or not names or p.shape[axis] % self.count(names):
                continue
            for g, own, n in zip(factors, p.cut, p.shape):
                more = own + names[::-1]
                if g in kept and chosen.get(g, ()) == own and n % self.count(more) == 0:
                    others = {f: c for f, c in chosen.items() if f != g}
                    self._choose(rule, others, g, more, n)
                    if others.get(g) == more:
                        chosen[g] = more
                        break

    def _choose(self, rule: Factors, chosen: dict, f: Any, names: Names, size: int) -> None:
        if f is None or f in chosen or not names or size == 0:
            return
        used = {n for taken in chosen.values() for n in taken}
        multiple = rule.multiple.get(f)
        fits = multiple is None or multiple % self.count(names) == 0
        if used.isdisjoint(names) and fits:
            chosen[f] = names

    # --- backwards

    def wishes(self, jaxpr: Jaxpr) -> dict[Var, Cut]:
        """How values are wanted, by what is made of them."""
        found: dict[Var, Cut] = {}
        for e in reversed(jaxpr.eqns):
            prim: Any = e.prim
            known = [found.get(v) for v in e.outs]
            if hasattr(prim, "wish"):
                wanted = prim.wish(self, known)
            elif any(known) and (rule := rule_of(prim, e.inputs)) is not None:
                names: dict[Any, Names] = {}
                for cut, factors in zip(known, rule.results):
                    names.update({f: n for f, n in zip(factors, cut or ()) if n})
                wanted = [tuple([names.get(f, ()) for f in fs]) for fs in rule.operands]
            else:
                continue
            for a, cut in zip(e.inputs, wanted):
                if type(a) is Var and cut is not None and any(cut):
                    found.setdefault(a, cut)
        return found

    # --- for rules

    part = staticmethod(Part)
    padded = staticmethod(padded)
    sliced = staticmethod(sliced)

    def fixed_point(self, cuts: Sequence[Cut], body: Any) -> tuple[list[Cut], Any]:
        """How what a loop carries is cut, the same at both ends; `body(cuts)` says how it leaves it."""
        cuts = list(cuts)
        while True:
            outs = body(cuts)
            more = [merged(a, b) for a, b in zip(cuts, outs)]
            if more == cuts:
                return cuts, outs
            cuts = more

    def beside(self, p: Part, axis: int, names: Names) -> Cut:
        """How a part is cut, but for names along one axis, and then along no other."""
        free = [c if set(c).isdisjoint(names) else () for c in p.cut]
        return (*free[:axis], names, *free[axis + 1 :])

    def spread(self, p: Part, axis: int, step: int, value: Array) -> Part:
        """With `step` - 1 values after each element along an axis, and behind the last one."""
        if step == 1:
            return p
        x = self.masked(p, axis, value).x
        config = [(0, 0, 0)] * p.ndim
        config[axis] = (0, step - 1, step - 1)
        size = step * x.shape[axis] * self.count(p.cut[axis])
        shape = (*p.shape[:axis], size, *p.shape[axis + 1 :])
        return Part(Pad(tuple(config))(x, value), shape, p.cut)

    def reach(
        self, p: Part, axis: int, blocks: int, step: int, size: int, lo: int, spread: int, fill: Any
    ) -> Part | None:
        """What members need along an axis for their parts of `blocks` windows, as arrays of their own.

        Window k is of `size` elements from k step - lo on, of the array with `spread` - 1 fills after
        each element, and fills around it. None where other members than neighbours have them.
        """
        names, value = p.cut[axis], scalar(fill, p.x.dtype)
        mine = self.block(blocks, names)
        p = self.spread(p, axis, spread, value)
        more, length = max(0, size - step), (mine - 1) * step + size
        total = mine * step * self.count(names)
        ends = max(0, lo), max(0, total + more - lo - p.shape[axis])
        shapes = [(*p.x.shape[:axis], n, *p.x.shape[axis + 1 :]) for n in ends]
        before, after = [broadcast_to(value, shape) for shape in shapes]
        found = self.near(p, axis, -lo, total, before, after, more)
        if found is None:
            return None
        found = slice_axis(found, 0, length, axis)
        shape = (*p.shape[:axis], length, *p.shape[axis + 1 :])
        return Part(found, shape, p.with_axis(axis, ()))

    def sum_reached(
        self, p: Part, axis: int, names: Names, room: int, size: int
    ) -> list[Part] | None:
        """The sum of members' arrays, of which each begins `room` elements after the one before."""
        x, length = p.x, p.x.shape[axis]
        more = max(0, length - room)
        if more > room:
            return None
        own = slice_axis(padded(x, axis, 0, max(0, room - length)), 0, room, axis)
        after = max(more, size - room * self.count(names))  # behind the last member's
        beyond = slice_axis(
            padded(x, axis, 0, max(0, room + after - length)), room, room + after, axis
        )
        if more:
            halo = self._from(slice_axis(x, room, length, axis), names, 1)
            own = add(own, padded(halo, axis, 0, room - more))
        whole = (*p.shape[:axis], room * self.count(names), *p.shape[axis + 1 :])
        found = self.near(Part(own, whole, p.with_axis(axis, names)), axis, 0, size, None, beyond)
        shape = (*p.shape[:axis], size, *p.shape[axis + 1 :])
        return None if found is None else [Part(found, shape, p.with_axis(axis, names))]

    def without(self, p: Part, names: Names) -> Part:
        """A part that is cut along none of these names."""
        return self.lay(p, tuple([c if set(c).isdisjoint(names) else () for c in p.cut]))

    def along_one(self, p: Part, axis: int, size: int, names: Names) -> Part:
        """What members have of an axis by themselves, as parts of one array."""
        shape = (*p.shape[:axis], size, *p.shape[axis + 1 :])
        return Part(p.x, shape, p.with_axis(axis, names))

    def join(self, parts: Sequence[Part], axis: int) -> list[Part] | None:
        """Arrays one after the other: one that is cut, and what fits into a part before and after it."""
        k, main = max(enumerate(parts), key=lambda kp: (bool(kp[1].cut[axis]), kp[1].shape[axis]))
        sides = [[p for p in some if p.shape[axis]] for some in (parts[:k], parts[k + 1 :])]
        lengths = [sum(p.shape[axis] for p in some) for some in sides]
        if max(lengths) > main.x.shape[axis]:
            return None
        cut = main.with_axis(axis, ())
        given = []
        for some in sides:
            xs = [self.lay(p, cut).x for p in some]
            given.append(Concatenate(axis)(*xs) if len(xs) > 1 else xs[0] if xs else None)
        total = sum(p.shape[axis] for p in parts)
        found = self.near(main, axis, -lengths[0], total, *given)
        shape = (*main.shape[:axis], total, *main.shape[axis + 1 :])
        return None if found is None else [Part(found, shape, main.cut)]


def merged(one: Cut, other: Cut) -> Cut:
    """Cut as one is, and along axes along which that is not, as the other, where names are free."""
    used = {n for names in one for n in names}
    found = []
    for a, b in zip(one, other, strict=True):
        free = not a and used.isdisjoint(b)
        found.append(b if free else a)
        used |= set(b) if free else set()
    return tuple(found)


def rule_of(prim: Any, values: Sequence[Any]) -> Factors | None:
    """The rule of a primitive for operands of these types; None if they must be whole."""
    rule = getattr(prim, "sharding", None)
    return None if rule is None else rule(*[v.aval for v in values])


__all__ = ["Grid", "rule_of"]
