"""Store sinking: branches say what goes where, and the update follows the branch.

A branch that returns a large array, changed in a few places or not at all, would have to copy it, and
loops around it could not tell what it overwrites. A branch that changes nothing writes back what was
there before, or adds nothing.

Source: LLVM's SimplifyCFG and Sink.
Input: a jaxpr with branches that return arrays.
Output: the same, whose branches return values and places, with the updates after them.
Legal when: every branch makes its result of the same operand by at most `SUNK_UPDATES` updates of one kind.
Pays when: the array is larger than `SELECTED_ELEMENTS`.
Costs: writing back what was there.
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from fnx.core import policy
from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.def_use import definitions, use_counts
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Var, eval_jaxpr, subjaxprs
from fnx.core.primitive import Primitive
from fnx.interpreters.analysis.updates import nothing_added, places
from fnx.interpreters.rewrite import live, splice
from fnx.interpreters.trace import trace_closed
from fnx.ops.base.broadcast import full
from fnx.ops.structure.basic import zeros

from .simplify import simplify


@dataclass(frozen=True)
class Slot:
    """One update: whose first operand is the array, the others are results of the new branches.

    `where`: (the branches' operands) -> all of the others but the values, if that can be told without
    the branch.
    """

    prim: Primitive
    operands: tuple[ShapedArray, ...]  # after the array
    where: Jaxpr | None

    @property
    def value(self) -> int:
        """Which of the operands are the values."""
        return cast(int, self.prim.update_operand) - 1

    @property
    def count(self) -> int:
        """How many results of a branch it takes."""
        return len(self.operands) if self.where is None else 1

    def apply(self, x: Array, operands: Sequence[Array], rest: Sequence[Array]) -> Array:
        """The array after the update."""
        if self.where is not None:
            places = eval_jaxpr(self.where, operands)
            rest = [*places[: self.value], *rest, *places[self.value :]]
        return self.prim.apply(x, *rest)[0]


@dataclass(frozen=True)
class Updates:
    """Result number `result` is operand number `operand` of the branches, after these updates."""

    result: int
    operand: int
    slots: tuple[Slot, ...]
    own: tuple[tuple[Eqn | None, ...], ...]  # of each branch the equation for each slot

    @property
    def only_adds(self) -> bool:
        return all(s.prim.update_kind == "add" for s in self.slots)

    @property
    def count(self) -> int:
        """How many results of a branch they take."""
        return sum(s.count for s in self.slots)

    def apply(self, x: Array, operands: Sequence[Array], rest: Sequence[Array]) -> Array:
        """The array after the updates."""
        k = 0
        for s in self.slots:
            x = s.apply(x, operands, rest[k : k + s.count])
            k += s.count
        return x


@dataclass(frozen=True)
class Sunk:
    """Branches whose results are the others first, then what the updates take."""

    branches: tuple[Jaxpr, ...]
    others: tuple[int, ...]  # which of the old results these are
    updates: tuple[Updates, ...]

    def pieces(self, outs: Sequence[Any]) -> list[Sequence[Any]]:
        """What each array's updates take of the new results."""
        found, k = [], len(self.others)
        for u in self.updates:
            found.append(outs[k : k + u.count])
            k += u.count
        return found


def sink(branches: Sequence[Jaxpr], results: Sequence[int] | None = None) -> Sunk | None:
    """Take updates out of branches, if there are any; of these results alone."""
    branches = [simplify(b) for b in branches]
    updates = []
    for k, out in enumerate(branches[0].outs):
        if out.aval.size > policy.SELECTED_ELEMENTS and (results is None or k in results):
            found = _updates(branches, k)
            if found is not None:
                updates.append(found)
    if not updates:
        return None
    sunk = [u.result for u in updates]
    others = tuple([k for k in range(len(branches[0].outs)) if k not in sunk])
    new = []
    for j, b in enumerate(branches):
        eqns, rest = list(b.eqns), []
        for u in updates:
            for slot, e in zip(u.slots, u.own[j]):
                atoms = _nothing(eqns, slot, b, u.operand) if e is None else e.inputs[1:]
                rest += atoms if slot.where is None else [atoms[slot.value]]
        outs = [*(b.outs[k] for k in others), *rest]
        new.append(simplify(Jaxpr(b.inputs, eqns, outs, name=b.name)))
    return Sunk(tuple(new), others, tuple(updates))


def _updates(branches: Sequence[Jaxpr], result: int) -> Updates | None:
    """The updates that lead to a result of the branches, if they all begin with the same operand."""
    operands, chains = set(), []
    for b in branches:
        maker, uses = definitions(b.eqns), use_counts(b)
        chain: list[Eqn] = []
        at: Atom = b.outs[result]
        while type(at) is Var and at in maker:
            e = maker[at]
            if e.prim.update_kind not in ("set", "add") or uses[at] != 1:
                return None
            chain.append(e)
            at = e.inputs[0]
        if type(at) is not Var:
            return None
        operands.add(b.inputs.index(at))
        chains.append(chain[::-1])
    every = [(j, e) for j, chain in enumerate(chains) for e in chain]
    if len(operands) != 1 or not every:
        return None
    slots, own = [], []
    if all(
        e.prim.update_kind == "add" for _, e in every
    ):  # each adds nothing for the other branches
        for j, e in every:
            slots.append(Slot(e.prim, _types(e), _where(branches[j], e)))
            own.append(tuple([e if i == j else None for i in range(len(branches))]))
    else:  # a branch has all of them, or none
        full_ones = [(j, c) for j, c in enumerate(chains) if c]
        if len({_kind(c) for _, c in full_ones}) != 1:
            return None
        for k, e in enumerate(full_ones[0][1]):
            places = [_where(branches[j], c[k]) for j, c in full_ones]
            same = len({str(p) for p in places}) == 1
            slots.append(Slot(e.prim, _types(e), places[0] if same else None))
            own.append(tuple([c[k] if c else None for c in chains]))
    boxes = sum(s.operands[s.value].size for s in slots)
    if len(slots) > policy.SUNK_UPDATES or 4 * boxes > branches[0].outs[result].aval.size:
        return None
    return Updates(result, operands.pop(), tuple(slots), tuple(zip(*own)))


def _types(e: Eqn) -> tuple[ShapedArray, ...]:
    return tuple([a.aval.strong() for a in e.inputs[1:]])


def _kind(chain: Sequence[Eqn]) -> tuple:
    """What the updates of two branches must have in common."""
    return tuple([e.prim for e in chain]), tuple([_types(e) for e in chain])


def _where(branch: Jaxpr, e: Eqn) -> Jaxpr | None:
    """What says where an update writes, if that takes a few integers alone."""
    slot = Slot(e.prim, _types(e), None)
    atoms = [a for k, a in enumerate(e.inputs[1:]) if k != slot.value]
    eqns = live(branch.eqns, atoms)
    for x in eqns:
        whole = all(
            v.aval.dtype.kind in "iub" and v.aval.size <= policy.SUNK_INDICES for v in x.outs
        )
        if x.prim.effects or not whole or any(True for _ in subjaxprs(x.prim)):
            return None
    return Jaxpr(branch.inputs, eqns, atoms, name="where")


def _nothing(eqns: list[Eqn], slot: Slot, branch: Jaxpr, operand: int) -> list[Atom]:
    """Operands with which an update changes nothing."""
    box = slot.operands[slot.value]

    def run(*operands: Array) -> list[Array]:
        rest = [zeros(a) for k, a in enumerate(slot.operands) if k != slot.value]
        if slot.where is not None:
            rest = eval_jaxpr(slot.where, operands)
        if slot.prim.update_kind == "add":
            values = full(box.shape, nothing_added(box.dtype), box.dtype)
        else:
            array = operands[operand]
            inputs = [Var(array.aval), *map(Var, slot.operands)]
            p = places(Eqn(slot.prim, inputs, [Var(array.aval)]))
            values = p.reader(array, *rest)
        return [*rest[: slot.value], values, *rest[slot.value :]]

    return splice(trace_closed(run, branch.in_avals), branch.inputs, eqns)


def sunk_jaxpr(cond: Any) -> Jaxpr | None:
    """What an equation of a cond can be replaced with: another cond, and updates."""
    found = sink(cond.branches)
    if found is None:
        return None

    def run(index: Array, *operands: Array) -> list[Array]:
        outs = cond.with_branches(found.branches)(index, *operands)
        results = dict(zip(found.others, outs))
        for u, rest in zip(found.updates, found.pieces(outs)):
            results[u.result] = u.apply(operands[u.operand], operands, rest)
        return [results[k] for k in range(len(results))]

    index = ShapedArray((), np.dtype(np.int32))
    return trace_closed(run, [index, *cond.branches[0].in_avals], name=cond.branches[0].name)
