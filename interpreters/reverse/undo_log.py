"""Undo log: of arrays updated in place, what was overwritten is taped.

Each primitive that writes into a part of its first operand has a reader of that part and a writer that
puts it back, bit by bit. A loop within the loop is gone back over by a loop from its other end; what it
overwrites at one place, in all its iterations, is kept once.

Source: "store on kill", Naumann 2012.
Input: a jaxpr, and the chains of updates that `analysis/updates.py` finds.
Output: equations that read what will be overwritten, and equations that put it back.
Legal when: the places do not depend on what the loop carries.
Pays when: what is overwritten is less than the array.
Costs: memory in the number of writes, not in size times iterations; a read for each write.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fnx.core.aval import ShapedArray
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from fnx.interpreters.analysis.updates import LoopUpdates, Places, Step, needed, overwritten
from fnx.interpreters.rewrite import Renaming, live, reads, splice
from fnx.interpreters.trace import trace_closed


def old_avals(item: Places | LoopUpdates) -> list[ShapedArray]:
    """The types of what is kept to go back."""
    if isinstance(item, Places):
        return [item.box]
    prim: Any = item.eqn.prim
    found = [a for _, items in item.steps for i in items for a in old_avals(i)]
    return [a.update(shape=(prim.length, *a.shape)) for a in found]


def record(eqns: list[Eqn], step: Step, items: Sequence[Places | LoopUpdates]) -> list[Var]:
    """Let the equations also give what a step overwrites."""
    found: list[Var] = []
    for i in items:
        at = next(k for k, e in enumerate(eqns) if step.after in e.outs)
        if isinstance(i, Places):
            new: list[Eqn] = []
            (old,) = _read(i, new, step.before)
            same = _like(eqns, new[0]) if len(new) == 1 else None
            if same is None:
                eqns[at:at] = new
            found.append(same or old)
        else:
            eqns[at], olds = _augmented(replace(i, eqn=eqns[at]))
            found += olds
    return found


def _like(eqns: Sequence[Eqn], new: Eqn) -> Var | None:
    """What an equation would make, if another one makes it already."""

    def key(a: Atom) -> Any:
        return a if type(a) is Var else (a.aval, repr(a))

    inputs = [key(a) for a in new.inputs]
    for e in eqns:
        if e.prim == new.prim and [key(a) for a in e.inputs] == inputs:
            return e.outs[0]
    return None


def _read(place: Places, eqns: list[Eqn], before: Atom) -> list[Var]:
    """Append equations that read what will be overwritten."""
    avals = [place.array, *(a.aval for a in place.where)]
    read = trace_closed(lambda x, *where: [place.reader(x, *where)], avals, what="transpose")
    return splice(read, [before, *place.where], eqns)  # type: ignore[return-value]


def _restore_place(place: Places, eqns: list[Eqn], after: Atom, olds: Iterator[Var]) -> Atom:
    """Append equations that put it back; the array as it was."""
    avals = [place.array, place.box, *(a.aval for a in place.where)]
    write = trace_closed(
        lambda x, old, *where: [place.writer(x, old, *where)], avals, what="transpose"
    )
    return splice(write, [after, next(olds), *place.where], eqns)[0]


def _augmented(loop: LoopUpdates) -> tuple[Eqn, list[Var]]:
    """The loop, stacking what is overwritten, too, and the stacks."""
    prim: Any = loop.eqn.prim
    body, eqns = prim.jaxpr, list(prim.jaxpr.eqns)
    olds = [v for step, items in loop.steps for v in record(eqns, step, items)]
    stacked = dict(zip(body.outs[prim.carry :], loop.eqn.outs[prim.carry :]))
    new = [v for v in olds if v not in stacked]
    stacked |= {v: Var(v.aval.update(shape=(prim.length, *v.aval.shape))) for v in new}
    jaxpr = Jaxpr(body.inputs, eqns, [*body.outs, *new], name=body.name)
    stacking = prim.with_jaxpr(jaxpr, prim.consts, prim.carry)
    outs = [*loop.eqn.outs, *(stacked[v] for v in new)]
    return Eqn(stacking, loop.eqn.inputs, outs, loop.eqn.source), [stacked[v] for v in olds]


def _restore_loop(loop: LoopUpdates, eqns: list[Eqn], after: Atom, olds: Iterator[Var]) -> Atom:
    prim: Any = loop.eqn.prim
    body = prim.jaxpr
    array = Var(body.inputs[prim.consts + loop.number].aval)
    inner: list[Eqn] = []
    rows: list[Var] = []  # what was overwritten in one iteration

    def fresh(items: Sequence[Places | LoopUpdates]) -> list[Var]:
        found = [Var(a) for i in items for a in old_avals(i)]
        rows.extend(found)
        return found

    taken = [(items, fresh(items)) for _, items in loop.steps]
    x: Atom = array
    for items, found in reversed(taken):
        x = go_back(inner, items, x, found)
    wanted = loop.wanted()
    known = live(body.eqns, wanted, body.inputs)
    name = Renaming((v, Var(v.aval)) for v in body.inputs)
    all_eqns = [
        Eqn(e.prim, [name(a) for a in e.inputs], name.outs(e), e.source) for e in [*known, *inner]
    ]
    read = reads(known, wanted)
    n, m = prim.consts, prim.consts + prim.carry
    ks = [k for k in range(n) if body.inputs[k] in read or (k == 0 and prim.counted)]
    xs = [k for k in range(m, len(body.inputs)) if body.inputs[k] in read]
    inputs = [
        *(name(body.inputs[k]) for k in ks),
        array,
        *(name(body.inputs[k]) for k in xs),
        *rows,
    ]
    back = replace(
        prim,
        jaxpr=Jaxpr(inputs, all_eqns, [name(x)], name=body.name),  # type: ignore[arg-type]
        consts=len(ks),
        carry=1,
        reverse=not prim.reverse,
    )
    stacks = [next(olds) for _ in rows]
    operands = [
        *(loop.eqn.inputs[k] for k in ks), after, *(loop.eqn.inputs[k] for k in xs), *stacks,
    ]  # fmt: skip
    out = Var(array.aval)
    eqns.append(Eqn(back, operands, [out], loop.eqn.source))
    return out


def go_back(
    eqns: list[Eqn], items: Sequence[Places | LoopUpdates], after: Atom, olds: Sequence[Var]
) -> Atom:
    """Append the equations that put back what a step overwrote; the array before it."""
    groups, k = [], 0
    for i in items:
        n = len(old_avals(i))
        groups.append((i, olds[k : k + n]))
        k += n
    for i, own in reversed(groups):
        restore = _restore_place if isinstance(i, Places) else _restore_loop
        after = restore(i, eqns, after, iter(own))  # type: ignore[operator]
    return after


@dataclass(frozen=True)
class Rewind:
    """An array that a jaxpr updates in steps."""

    start: Var
    steps: tuple[Step, ...]

    @property
    def versions(self) -> list[Var]:
        """The array before the first step, and after each."""
        return [self.start, *(s.after for s in self.steps)]

    @property
    def price(self) -> float:
        """The bytes to be kept."""
        return float(overwritten(self.steps))


def go_back_over(
    jaxpr: Jaxpr, rewinds: Sequence[Rewind], olds: Sequence[Sequence[list[Var]]], known: set[Var]
) -> tuple[list[Eqn], list[Var], dict[Var, Atom]]:
    """Equations that go back from new variables, the arrays after all steps; what each version is."""
    eqns = live(jaxpr.eqns, [v for r in rewinds for v in needed(r.steps)], known)
    lasts = [Var(r.start.aval) for r in rewinds]
    values: dict[Var, Atom] = {}
    for r, last, own in zip(rewinds, lasts, olds):
        values[r.versions[-1]] = last
        for s, found in zip(reversed(r.steps), reversed(own)):
            values[s.before] = go_back(eqns, s.items(), values[s.after], found)
    return eqns, lasts, values
