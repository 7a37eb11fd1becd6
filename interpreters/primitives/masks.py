"""Proof that the members of a masked loop do not wait for each other.

The body is evaluated by value numbering of one member, with an axis of size 1 where the batch axis was, so
that what was asked of all members is a question to that member alone. It is evaluated three times: with
the mask as a variable, down, and up. Two values are equal if they get the same number.

A loop `while any(w) & s` with the mask `p` is apart if
- with `p` down the body hands on all that a member has (or sets it to a constant), and `p` stays down;
- with `p` up the next `p` is `w` of what the body hands on, so that `p` is `w` always if it is so at first;
- `s` and what is carried for all alike depend on nothing of a single member, and `w` on nothing shared;
- any other question asked of all members, in the body, is of a flag that implies that it was up before;
- a loop in the body is apart, too: its mask is `w` at first, and what it has for all alike is not used.

Source: value numbering (Muchnick 1997, ch. 12); induction over iterations.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fnx.core import policy
from fnx.core.array import ConcreteArray
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var, subjaxprs
from fnx.interpreters.batching import batch_jaxpr
from fnx.interpreters.control_flow import WhileRecord
from fnx.interpreters.operands import only
from fnx.interpreters.passes.dce import dce
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.rewrite import bind_into, live, reaching, reads
from fnx.ops.base.permute import Reshape
from fnx.ops.elementwise.arithmetic import add
from fnx.ops.elementwise.select import and_, ne, or_
from fnx.ops.reduction.reduction import ReduceOr

from .numbering import SUMS, Numbering, asks_all, holds_question, keeps_apart, literal, moves

Mask = tuple[bool, ...]
_BOOL = np.dtype(bool)
_VIEWS = ("broadcast_in_dim", "reshape", "squeeze")


@dataclass(frozen=True)
class Apart:
    """A masked loop, member by member. All jaxprs have an axis of size 1 for the batch axis.

    `loop`: of one member; condition and body get the constants of both, and its carry has a counter of
    its iterations at the end. `pending`: (constants of the condition, of the body, carry) -> what forbids
    to begin with it, or None. `settled`: the carries, by number, that have a certain value once a member
    has waited. `shared`: (constants, carries) -> carries, of those alone that all members have in common;
    None if there are none.
    """

    loop: WhileRecord
    pending: Jaxpr | None
    settled: dict[int, Any]
    shared: Jaxpr | None


class Waiting:
    """A loop in which members may wait: its condition, its body, and which carries are members' own."""

    def __init__(self, values: Numbering, loop: Any, consts: list, carry: list[Var], mask: Mask):
        self.values, self.carry, self.mask = values, carry, mask
        self.cond, self.body, self.cond_consts = loop.cond_jaxpr, loop.body_jaxpr, loop.cond_consts
        self.consts = consts

    # --- evaluation

    def test(self, carry: Sequence[Atom]) -> Atom:
        return self.values.outs(self.cond, [*self.consts[: self.cond_consts], *carry])[0]

    def step(self, carry: Sequence[Atom]) -> list[Atom]:
        return self.values.outs(self.body, [*self.consts[self.cond_consts :], *carry])

    def with_mask(self, k: int, value: bool) -> list[Atom]:
        carry: list[Atom] = list(self.carry)
        carry[k] = self.values.spread(literal(value), self.carry[k].aval.shape)
        return carry

    def terms(self, test: Atom) -> list[Atom]:
        e = self.values.made(test, "and")
        return [t for x in e.inputs for t in self.terms(x)] if e is not None else [test]

    def question(self, test: Atom) -> Atom | None:
        """What the condition asks of all members; it asks once."""
        found = []
        for t in self.terms(test):
            e = self.values.maker.get(t)  # type: ignore[arg-type]
            if e is not None and asks_all(e.prim):
                found += e.inputs
        return found[0] if len(found) == 1 and found[0].aval.shape == (1,) else None

    # --- what has to hold

    def depends(self, atoms: Sequence[Atom]) -> set[Var]:
        return reaching(self.values.eqns, atoms)

    def shares(self, test: Atom, outs: Sequence[Atom], own: Sequence[Var]) -> bool:
        """Whether what concerns all members depends on none of them, who have their `own`."""
        alike = [o for o, m in zip(outs, self.mask) if not m]
        rest = [t for t in self.terms(test) if not self.asked(t)]
        return self.depends([*alike, *rest]).isdisjoint(own)

    def asked(self, atom: Atom) -> bool:
        e = self.values.maker.get(atom)  # type: ignore[arg-type]
        return e is not None and asks_all(e.prim)

    def masks(self, outs: Sequence[Atom]) -> list[int]:
        """The carries that may be masks: each is and-ed with something, or with what the loop asks."""
        found = []
        for k, (v, o, m) in enumerate(zip(self.carry, outs, self.mask, strict=True)):
            if m and v.aval.dtype == _BOOL and v.aval.shape == (1,) and v in self.terms(o):
                found.append(k)
        return found[: policy.MASKS]

    def waits(self, k: int) -> dict[int, Any] | None:
        """The carries that are a constant once the mask is down; None if others change then."""
        self.values.keeps = True
        outs = self.step(self.with_mask(k, False))
        self.values.keeps = False
        settled: dict[int, Any] = {}
        for j, (v, o, m) in enumerate(zip(self.carry, outs, self.mask, strict=True)):
            if j == k:
                if self.values.truth(o) is not False:
                    return None
            elif m and o is not v:
                value = self.values.constant(o)
                if value is None:
                    return None
                settled[j] = value
        return settled

    def settled_by(self, k: int, goes: Atom) -> dict[int, Any] | None:
        """What `waits` says of a mask, if it is what the condition asks, from one iteration to the next."""
        settled = self.waits(k)
        if settled is None:
            return None
        up = self.step(self.with_mask(k, True))
        again = self.question(self.test(up))
        return settled if again is not None and again is up[k] and self.own(goes, settled) else None

    def own(self, goes: Atom, settled: dict[int, Any]) -> bool:
        """Whether the condition of a member stays as it is while it waits."""
        others = [v for j, (v, m) in enumerate(zip(self.carry, self.mask)) if not m or j in settled]
        return self.depends([goes]).isdisjoint(others)


class Inside(Waiting):
    """A loop in the body of such a loop, of one member: it may run its own iterations there, too."""

    def __init__(self, values: Numbering, e: Eqn):
        prim: Any = e.prim
        c, b, self.start = prim.parts(e.inputs)
        carry = [Var(v.aval) for v in e.outs]
        mask = tuple([v.aval.shape[:1] == (1,) for v in carry])
        super().__init__(values, prim, [*c, *b], carry, mask)

    def is_apart(self, own: Sequence[Var], used: Sequence[bool]) -> bool:
        """Whether a member has what it has without others; `used` of its carries alone."""
        test, outs = self.test(self.carry), self.step(self.carry)
        goes, at_first = self.question(test), self.question(self.test(self.start))
        if goes is None or not self.shares(test, outs, [*own, *only(self.mask, self.carry)]):
            return False
        if any(asks_all(e.prim) for e in live(self.values.eqns, outs)):
            return False
        for k in self.masks(outs):
            settled = self.settled_by(k, goes) if at_first is self.start[k] else None
            if settled is not None:
                mine = [m and j != k and j not in settled for j, m in enumerate(self.mask)]
                return not any(u and not m for u, m in zip(used, mine, strict=True))
        return False


class Proof(Waiting):
    """What is found out about a loop of one member, of which `batched` operands are those of a batch."""

    def __init__(self, member: WhileRecord, batched: Mask, atoms: Sequence[Atom]):
        self.member, self.batched = member, batched
        c, b, mask = member.parts(batched)
        cond = batch_jaxpr(member.cond_jaxpr, 1, (*c, *mask))[0]
        body = batch_jaxpr(member.body_jaxpr, 1, (*b, *mask), mask)[0]
        n, m = member.cond_consts, member.body_consts
        avals = [*cond.in_avals[:n], *body.in_avals]
        self.inputs = [Var(a) for a in avals]
        first: dict[Any, Var] = {}
        known: list[Atom] = []
        for atom, v, own in zip(atoms, self.inputs, batched, strict=True):
            same = first.setdefault((atom, own), v) if type(atom) is Var else v
            number = type(atom) is Literal and not own and not atom.aval.shape
            known.append(atom if number else same)
        loop = member.with_jaxprs(cond, body)
        super().__init__(Numbering(), loop, known[: n + m], list(self.inputs[n + m :]), mask)

    def apart(self) -> Apart | None:
        """The loop of one member, if it is apart, and straight code."""
        if not (keeps_apart(self.member.cond_jaxpr) and keeps_apart(self.member.body_jaxpr)):
            return None
        test, outs = self.test(self.carry), self.step(self.carry)
        goes = self.question(test)
        if goes is None or not self.shares(test, outs, self.own_inputs()):
            return None
        for k in self.masks(outs):
            settled = self.settled_by(k, goes)
            if settled is None:
                continue
            flags = self.values.flags(self.inputs, self.carry, outs)
            if flags is not None and all(x.aval.shape == (1,) for x in flags):
                return self.made(k, goes, flags, settled, outs)
        return None

    def own_inputs(self) -> list[Var]:
        return only(self.batched, self.inputs)

    # --- what becomes of it

    def made(
        self, k: int, goes: Atom, flags: list[Atom], settled: dict[int, Any], outs: list[Atom]
    ) -> Apart | None:
        pending = self.pending(k, goes, flags)
        shared = self.shared(outs)
        self.values.down = set(flags)
        body, cond = self.last_body(), self.last_cond(goes)
        if body is None or cond is None:
            return None
        n = len(self.consts)
        loop = replace(self.member, cond_jaxpr=cond, cond_consts=n, body_jaxpr=body, body_consts=n)
        return Apart(loop, pending, settled, shared)

    def jaxpr(self, inputs: Sequence[Var], outs: Sequence[Atom], name: str) -> Jaxpr:
        eqns = live(self.values.eqns, outs)
        new = Jaxpr(inputs, eqns, outs, name=name)
        return dce(new, (True,) * len(outs))

    def pending(self, k: int, goes: Atom, flags: Sequence[Atom]) -> Jaxpr | None:
        if goes is self.carry[k] and not flags:
            return None
        eqns: list[Eqn] = []
        (found,) = bind_into(eqns, ne, [goes, self.carry[k]])
        for x in flags:
            (found,) = bind_into(eqns, or_, [found, x])
        before = live(self.values.eqns, [goes, *flags])
        return Jaxpr(self.inputs, [*before, *eqns], [found], name="pending")

    def shared(self, outs: Sequence[Atom]) -> Jaxpr | None:
        alike = [not m for m in self.mask]
        if not any(alike):
            return None
        n = len(self.consts)
        consts = only([not m for m in self.batched[:n]], self.inputs[:n])
        return self.jaxpr([*consts, *only(alike, self.carry)], only(alike, outs), "shared")

    def last_cond(self, goes: Atom) -> Jaxpr | None:
        """The condition of one member."""
        test = self.test(self.carry)
        rest = [t for t in self.terms(test) if not self.asked(t)]
        eqns = live(self.values.eqns, [goes, *rest])
        (found,) = bind_into(eqns, Reshape(()), [goes])
        for t in rest:
            (found,) = bind_into(eqns, and_, [found, t])
        return Jaxpr([*self.inputs, Var(_count())], eqns, [found], name=self.cond.name)

    def last_body(self) -> Jaxpr | None:
        """The body of one member, with a counter, if it is straight code of small values."""
        outs = self.step(self.carry)
        eqns = live(self.values.eqns, outs)
        count, one = Var(_count()), Literal(ConcreteArray(np.asarray(1, np.int64)))
        (more,) = bind_into(eqns, add, [count, one])
        arrays = [(v, o) for v, o in zip(self.carry, outs) if v.aval.size > policy.SMALL]
        if not all(self.is_replaced(v, o) for v, o in arrays) or not _is_straight(eqns):
            return None
        if not all(self.is_apart_inside(e, outs) for e in eqns if e.prim.name == "while"):
            return None
        return Jaxpr([*self.inputs, count], eqns, [*outs, more], name=self.body.name)

    def is_replaced(self, array: Var, out: Atom) -> bool:
        """Whether parts of an array are replaced, and no more."""
        while out is not array:
            e = self.values.maker.get(out)  # type: ignore[arg-type]
            if e is None or e.prim.update_kind != "set" and e.prim.name != "while":
                return False
            out = e.inputs[0 if e.prim.name != "while" else e.outs.index(out) - len(e.outs)]
        return True

    def is_apart_inside(self, e: Eqn, outs: Sequence[Atom]) -> bool:
        """Whether a loop in the body has no member wait for others."""
        if not holds_question(e.prim.cond_jaxpr) and not holds_question(e.prim.body_jaxpr):  # type: ignore
            return True
        read = reads(live(self.values.eqns, outs), outs)
        return Inside(self.values, e).is_apart(self.own_inputs(), [v in read for v in e.outs])


def without_flags(loop: WhileRecord, atoms: Sequence[Atom]) -> tuple[Jaxpr, WhileRecord] | None:
    """(constants of the body, carry) -> whether any flag is up, and the loop that is left once none is.

    None if flags may rise again, or nothing gets simpler without them.
    """
    values, inputs = Numbering(), [Var(a) for a in loop.body_jaxpr.in_avals]
    m, n = loop.body_consts, loop.cond_consts
    known = [
        a if type(a) is Literal and not a.aval.shape else v
        for a, v in zip(atoms[n : n + m], inputs)
    ]
    carry = inputs[m:]
    outs = values.outs(loop.body_jaxpr, [*known, *carry])
    flags = values.flags(inputs, carry, outs)
    if not flags:
        return None
    before = live(values.eqns, flags)
    found = [bind_into(before, ReduceOr(tuple(range(len(x.aval.shape)))), [x])[0] for x in flags]
    for x in found[1:]:
        (found[0],) = bind_into(before, or_, [found[0], x])
    values.down = set(flags)
    outs = values.outs(loop.body_jaxpr, [*known, *carry])
    body = Jaxpr(inputs, live(values.eqns, outs), outs, name=loop.body_jaxpr.name)
    return Jaxpr(inputs, before, found[:1], name="flags"), replace(loop, body_jaxpr=body)


def _count() -> Any:
    return ConcreteArray(np.zeros((), np.int64)).aval


def _is_straight(eqns: Sequence[Eqn]) -> bool:
    """Whether equations are few operations on small values, and parts of arrays that are replaced."""
    work = 0
    for e in eqns:
        if e.prim.name == "while":
            inner = [simplify(j, final=True) for j in subjaxprs(e.prim)]
            if not all(_is_straight(j.eqns) for j in inner):
                return False
            continue
        if e.prim.update_kind == "set":
            sizes = [a.aval.size for a in e.inputs[1:]]
        elif e.prim.name in _VIEWS and e.inputs[0].aval.size == e.outs[0].aval.size:
            sizes = [0]  # of an array that is read
        else:
            sizes = [v.aval.size for v in e.outs]
        if not moves(e.prim) and e.prim.name not in SUMS or max(sizes) > policy.MEMBER_VALUE:
            return False
        work += sum(sizes)
    return work <= policy.MEMBER_WORK


__all__ = ["Apart", "Proof", "without_flags"]
