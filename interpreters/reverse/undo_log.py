"""Arrays that a loop updates in place: to go backwards, only what was overwritten is kept.

Each primitive that writes into a part of its first operand has a reader of that part and a writer
that puts it back, bit by bit. A loop within the loop is gone back over by a loop from its other end;
what it overwrites at one place, in all its rounds, is kept once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Var, made_once
from fnx.core.primitive import Primitive
from fnx.interpreters.rewrite import Renaming, dependent, live, reads, splice
from fnx.interpreters.trace import trace_closed
from fnx.ops.structure.dynamic_slice import (
    DynamicSlice,
    DynamicSliceAdd,
    DynamicUpdateSlice,
    dynamic_update_slice,
)
from fnx.ops.structure.gather import AnyScatter, ScatterAdd
from fnx.ops.structure.scatter import Scatter
from fnx.ops.structure.slice import Slice, SliceAdd
from fnx.ops.structure.slice_set import SliceSet

SETS = (DynamicUpdateSlice, SliceSet, Scatter)
ADDS = (DynamicSliceAdd, SliceAdd, ScatterAdd)
UPDATES = (*SETS, *ADDS, AnyScatter)


@dataclass(frozen=True)
class Places:
    """The part of an array that an update writes: `read(x, *where)`, `write(x, old, *where)`."""

    array: ShapedArray
    box: ShapedArray
    reader: Any
    writer: Any
    where: tuple[Atom, ...]

    @property
    def nbytes(self) -> int:
        """How many bytes are overwritten."""
        return self.box.nbytes

    @property
    def needs(self) -> list[Var]:
        """What must be known to go back."""
        return [a for a in self.where if type(a) is Var]

    def record(self, eqns: list[Eqn], before: Atom) -> list[Var]:
        """Append equations that read what will be overwritten."""
        avals = [self.array, *(a.aval for a in self.where)]
        read = trace_closed(lambda x, *where: [self.reader(x, *where)], avals, what="transpose")
        return splice(read, [before, *self.where], eqns)  # type: ignore[return-value]

    def undo(self, eqns: list[Eqn], after: Atom, olds: Iterator[Var]) -> Atom:
        """Append equations that put it back; the array as it was."""
        avals = [self.array, self.box, *(a.aval for a in self.where)]
        write = trace_closed(
            lambda x, old, *where: [self.writer(x, old, *where)], avals, what="transpose"
        )
        return splice(write, [after, next(olds), *self.where], eqns)[0]


def value_at(prim: Primitive) -> int:
    """Which operand of an update is what it writes or adds."""
    return 2 if isinstance(prim, AnyScatter) else 1


def nothing_added(dtype: np.dtype) -> complex:
    """What is added where nothing changes: x + -0.0 is x, bit by bit."""
    if dtypes.is_complex(dtype):
        return complex(-0.0, -0.0)
    return -0.0 if dtypes.is_inexact(dtype) else 0


def places(e: Eqn) -> Places:
    """The places that an update writes to."""
    prim: Any = e.prim
    x, *rest = e.inputs
    if isinstance(prim, (SliceSet, SliceAdd)):
        box = (prim.start_indices, prim.limit_indices, prim.strides)
        return Places(x.aval, rest[0].aval, Slice(*box), SliceSet(*box), ())
    if isinstance(prim, AnyScatter):
        indices, updates = rest
        reader = prim.reader(x.aval, indices.aval, updates.aval)
        return Places(x.aval, updates.aval, reader, _Put(prim.again(Scatter)), (indices,))
    update, *starts = rest
    reader = DynamicSlice(update.aval.shape)
    return Places(x.aval, update.aval, reader, dynamic_update_slice, tuple(starts))


@dataclass(frozen=True)
class _Put:
    """A scatter whose indices come last."""

    scatter: Callable[..., Array]

    def __call__(self, x: Array, old: Array, at: Array) -> Array:
        return self.scatter(x, at, old)


@dataclass(frozen=True)
class Step:
    """An equation that makes an array's next version of the one before: an update or a loop."""

    eqn: Eqn
    before: Var
    after: Var

    @property
    def number(self) -> int:
        """Of the array among the loop's carries."""
        return self.eqn.outs.index(self.after)

    def items(self) -> "list[Places | Rounds]":
        """What must be put back, in the order in which it is overwritten."""
        if isinstance(self.eqn.prim, UPDATES):
            return [places(self.eqn)]
        return _items_of_loop(self.eqn, self.number)


@dataclass(frozen=True)
class Rounds:
    """What the rounds of a loop overwrite at places that change from round to round."""

    eqn: Eqn
    number: int
    steps: tuple[tuple[Step, "tuple[Places | Rounds, ...]"], ...]

    @property
    def nbytes(self) -> int:
        prim: Any = self.eqn.prim
        return prim.length * sum(i.nbytes for _, items in self.steps for i in items)

    @property
    def needs(self) -> list[Var]:
        prim: Any = self.eqn.prim
        wanted = self._wanted()
        read = reads(live(prim.jaxpr.eqns, wanted, prim.jaxpr.inputs), wanted)
        pairs = zip(prim.jaxpr.inputs, self.eqn.inputs)
        found = [a for v, a in pairs if v in read and type(a) is Var]
        rounds = self.eqn.inputs[0]
        return [rounds, *found] if prim.counted and type(rounds) is Var else found

    def _wanted(self) -> list[Var]:
        return [v for _, items in self.steps for i in items for v in i.needs]

    def augmented(self) -> tuple[Eqn, list[Var]]:
        """The loop, stacking what is overwritten, too, and the stacks."""
        prim: Any = self.eqn.prim
        body, eqns = prim.jaxpr, list(prim.jaxpr.eqns)
        olds = [v for step, items in self.steps for v in record(eqns, step, items)]
        stacked = dict(zip(body.outs[prim.carry :], self.eqn.outs[prim.carry :]))
        new = [v for v in olds if v not in stacked]
        stacked |= {v: Var(v.aval.update(shape=(prim.length, *v.aval.shape))) for v in new}
        jaxpr = Jaxpr(body.inputs, eqns, [*body.outs, *new], name=body.name)
        loop = prim.with_jaxpr(jaxpr, prim.consts, prim.carry)
        outs = [*self.eqn.outs, *(stacked[v] for v in new)]
        return Eqn(loop, self.eqn.inputs, outs, self.eqn.source), [stacked[v] for v in olds]

    def undo(self, eqns: list[Eqn], after: Atom, olds: Iterator[Var]) -> Atom:
        prim: Any = self.eqn.prim
        body = prim.jaxpr
        array = Var(body.inputs[prim.consts + self.number].aval)
        inner: list[Eqn] = []
        rows: list[Var] = []  # what was overwritten in one round

        def fresh(items: Sequence[Places | Rounds]) -> list[Var]:
            found = [Var(a) for i in items for a in old_avals(i)]
            rows.extend(found)
            return found

        taken = [(items, fresh(items)) for _, items in self.steps]
        x: Atom = array
        for items, found in reversed(taken):
            x = go_back(inner, items, x, found)
        wanted = self._wanted()
        known = live(body.eqns, wanted, body.inputs)
        name = Renaming((v, Var(v.aval)) for v in body.inputs)
        all_eqns = [
            Eqn(e.prim, [name(a) for a in e.inputs], name.outs(e), e.source)
            for e in [*known, *inner]
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
            *(self.eqn.inputs[k] for k in ks), after, *(self.eqn.inputs[k] for k in xs), *stacks,
        ]  # fmt: skip
        out = Var(array.aval)
        eqns.append(Eqn(back, operands, [out], self.eqn.source))
        return out


def _items_of_loop(e: Eqn, number: int) -> list[Places | Rounds]:
    """Places that are the same in all rounds first."""
    prim: Any = e.prim
    outer = dict(zip(prim.jaxpr.inputs[: prim.consts], e.inputs))
    same: list[Places] = []
    rest = []
    for step in steps_of_loop(prim, number) or ():
        varying = []
        for i in step.items():
            if isinstance(i, Places) and all(v in outer for v in i.needs):
                where = tuple([outer[a] if type(a) is Var else a for a in i.where])
                same.append(replace(i, where=where))
            else:
                varying.append(i)
        if varying:
            rest.append((step, tuple(varying)))
    found: list[Places | Rounds] = list(dict.fromkeys(same))
    return [*found, Rounds(e, number, tuple(rest))] if rest else found


def old_avals(item: Places | Rounds) -> list[ShapedArray]:
    """The types of what is kept to go back."""
    if isinstance(item, Places):
        return [item.box]
    prim: Any = item.eqn.prim
    found = [a for _, items in item.steps for i in items for a in old_avals(i)]
    return [a.update(shape=(prim.length, *a.shape)) for a in found]


def record(eqns: list[Eqn], step: Step, items: Sequence[Places | Rounds]) -> list[Var]:
    """Let the equations also give what a step overwrites."""
    found: list[Var] = []
    for i in items:
        at = next(k for k, e in enumerate(eqns) if step.after in e.outs)
        if isinstance(i, Places):
            new: list[Eqn] = []
            (old,) = i.record(new, step.before)
            same = _like(eqns, new[0]) if len(new) == 1 else None
            if same is None:
                eqns[at:at] = new
            found.append(same or old)
        else:
            eqns[at], olds = replace(i, eqn=eqns[at]).augmented()
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


def go_back(
    eqns: list[Eqn], items: Sequence[Places | Rounds], after: Atom, olds: Sequence[Var]
) -> Atom:
    """Append the equations that put back what a step overwrote; the array before it."""
    groups, k = [], 0
    for i in items:
        n = len(old_avals(i))
        groups.append((i, olds[k : k + n]))
        k += n
    for i, own in reversed(groups):
        after = i.undo(eqns, after, iter(own))
    return after


def chain(maker: dict[Var, Eqn], start: Var, end: Atom) -> list[Step] | None:
    """The steps that lead from `start` to `end`, in order; None if there is anything else."""
    found: list[Step] = []
    while end is not start:
        e = maker.get(end) if type(end) is Var else None  # type: ignore[arg-type]
        if e is None:
            return None
        if isinstance(e.prim, UPDATES):
            before = e.inputs[0]
        elif e.prim.name == "scan":
            prim: Any = e.prim
            k = e.outs.index(end)  # type: ignore[arg-type]
            if k >= prim.carry or steps_of_loop(prim, k) is None:
                return None
            before = e.inputs[prim.consts + k]
        else:
            return None
        if type(before) is not Var:
            return None
        found.append(Step(e, before, end))  # type: ignore[arg-type]
        end = before
    return found[::-1] or None


def steps_of_loop(prim: Any, number: int) -> list[Step] | None:
    """The steps of a round, if they write at places that do not depend on what the loop carries."""
    return _steps(prim.jaxpr, prim.consts, prim.carry, number)


@made_once
def _steps(body: Jaxpr, consts: int, carry: int, number: int) -> list[Step] | None:
    steps = chain(makers(body.eqns), body.inputs[consts + number], body.outs[number])
    moved = dependent(body.eqns, body.inputs[consts : consts + carry])
    needs = [v for s in steps or () for i in s.items() for v in i.needs]
    return None if any(v in moved for v in needs) else steps


def makers(eqns: Iterable[Eqn]) -> dict[Var, Eqn]:
    """The equation that makes each variable."""
    return {v: e for e in eqns for v in e.outs}


def overwritten(steps: Sequence[Step]) -> int:
    """The bytes that a chain of steps overwrites."""
    return sum(i.nbytes for s in steps for i in s.items())


def needed(steps: Sequence[Step]) -> list[Var]:
    """What must be known to go back over a chain."""
    return list(dict.fromkeys(v for s in steps for i in s.items() for v in i.needs))


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
