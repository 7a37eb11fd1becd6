"""Proof that the members of a masked loop do not wait for each other.

The body is evaluated by value numbering of one member, with an axis of size 1 where the batch axis was, so
that what was asked of all members is a question to that member alone. It is evaluated three times: with
the mask as a variable, down, and up. Two values are equal if they get the same number.

A loop `while any(w) & s` with the mask `p` is apart if
- with `p` down the body hands on all that a member has (or sets it to a constant), and `p` stays down;
- with `p` up the next `p` is `w` of what the body hands on, so that `p` is `w` always if it is so at first;
- `s` and what is carried for all alike depend on nothing of a single member, and `w` on nothing shared;
- any other question asked of all members, in the body, is of a flag that implies that it was up before.

Source: value numbering (Muchnick 1997, ch. 12); induction over iterations.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fnx.core import policy
from fnx.core.array import ConcreteArray
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from fnx.core.primitive import Primitive
from fnx.interpreters.batching import batch_jaxpr
from fnx.interpreters.control_flow import WhileRecord
from fnx.interpreters.operands import only
from fnx.interpreters.passes.dce import dce
from fnx.interpreters.rewrite import bind_into, live, reaching
from fnx.ops.base.broadcast import Broadcast
from fnx.ops.base.permute import Reshape
from fnx.ops.elementwise.arithmetic import add
from fnx.ops.elementwise.select import and_, ne, or_
from fnx.ops.reduction.reduction import ReduceOr

from .questions import SUMS, asks_all, keeps_apart, moves
from .write_out import WritingOut

Mask = tuple[bool, ...]
_BOOL = np.dtype(bool)


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


class Numbering(WritingOut):
    """Value numbering that knows questions, and the algebra of truth."""

    def __init__(self) -> None:
        super().__init__(_as_it_is)
        self.down: set[Atom] = set()  # flags that no member has

    def add(self, eqns: Sequence[Eqn]) -> None:
        for e in eqns:
            if asks_all(e.prim) and e.inputs[0].aval.shape:
                x = self.name(e.inputs[0])
                known = self.truth(x)
                found = _literal(False) if x in self.down else None
                found = found if known is None else _literal(known)
                self.name[e.outs[0]] = found or self.equation(e, (x,))[0]
            else:
                super().add([e])

    def identity(self, prim: Primitive, atoms: tuple) -> Atom | None:
        if prim.name in ("and", "or") and atoms[0].aval.dtype == _BOOL:
            shape = max([a.aval.shape for a in atoms], key=len)
            for x, y in (atoms, atoms[::-1]):
                known = self.truth(x)
                if x is y or known is (prim.name == "and"):
                    return y if y.aval.shape == shape else self.spread(y, shape)
                if known is not None:
                    return self.spread(_literal(known), shape)
        return super().identity(prim, atoms)

    def truth(self, atom: Atom) -> bool | None:
        """What all elements of a bool are, if that is known."""
        if atom.aval.dtype != _BOOL:
            return None
        value = self.constant(atom)
        return None if value is None else bool(value)

    def constant(self, atom: Atom) -> Any:
        """The number that all elements are, if it is known."""
        while (e := self.maker.get(atom)) and e.prim.name in ("broadcast_in_dim", "reshape"):  # type: ignore
            atom = e.inputs[0]
        if type(atom) is Literal and type(atom.value) is ConcreteArray and not atom.aval.shape:
            return atom.value._value
        return None

    def spread(self, atom: Atom, shape: tuple[int, ...]) -> Atom:
        if not shape:
            return atom
        out = Var(atom.aval.update(shape=shape))
        e = Eqn(Broadcast(shape, ()), [atom], [out])
        return self.equation(e, (atom,))[0]

    def made(self, atom: Atom, name: str) -> Eqn | None:
        e = self.maker.get(atom) if type(atom) is Var else None
        return e if e is not None and e.prim.name == name else None

    def later(self, x: Atom, inputs: Sequence[Var], carry: Sequence[Var], outs: list) -> Atom:
        """The same of what an iteration hands on."""
        fixed = [v for v in inputs if v not in carry]
        found = Jaxpr([*fixed, *carry], live(self.eqns, [x]), [x])
        return self.outs(found, [*fixed, *outs])[0]

    def flags(
        self, inputs: Sequence[Var], carry: Sequence[Var], outs: list[Atom]
    ) -> list[Atom] | None:
        """What an iteration asks of all members, if no member has it again once none has."""
        found = []
        for e in live(self.eqns, outs):
            if asks_all(e.prim):
                (x,) = e.inputs
                if not self.implies(self.later(x, inputs, carry, outs), x):
                    return None
                found.append(x)
        return found

    def implies(self, a: Atom, b: Atom) -> bool:
        """Whether `a` is never true where `b` is not."""
        if a is b or self.truth(a) is False:
            return True
        e = self.maker.get(a)  # type: ignore[arg-type]
        if e is None:
            return False
        if e.prim.name == "and":
            return any(self.implies(x, b) for x in e.inputs)
        if e.prim.name in ("or", "select_n"):
            return all(self.implies(x, b) for x in e.inputs[e.prim.name == "select_n" :])
        return False


def _as_it_is(jaxpr: Jaxpr) -> Jaxpr:
    return jaxpr


def _literal(value: bool) -> Literal:
    return Literal(ConcreteArray(np.asarray(value)))


class Proof:
    """What is found out about a loop of one member, of which `batched` operands are those of a batch."""

    def __init__(self, member: WhileRecord, batched: Mask, atoms: Sequence[Atom]):
        self.member, self.batched = member, batched
        self.mask = member.parts(batched)[2]
        c, b, _ = member.parts(batched)
        self.cond = batch_jaxpr(member.cond_jaxpr, 1, (*c, *self.mask))[0]
        self.body = batch_jaxpr(member.body_jaxpr, 1, (*b, *self.mask), self.mask)[0]
        n, m = member.cond_consts, member.body_consts
        avals = [*self.cond.in_avals[:n], *self.body.in_avals]
        self.inputs = [Var(a) for a in avals]
        self.values = Numbering()
        first: dict[Any, Var] = {}
        known: list[Atom] = []
        for atom, v, own in zip(atoms, self.inputs, batched, strict=True):
            same = first.setdefault((atom, own), v) if type(atom) is Var else v
            number = type(atom) is Literal and not own and not atom.aval.shape
            known.append(atom if number else same)
        self.consts, self.carry = known[: n + m], list(self.inputs[n + m :])

    def apart(self) -> Apart | None:
        """The loop of one member, if it is apart, and straight code."""
        if not (keeps_apart(self.member.cond_jaxpr) and keeps_apart(self.member.body_jaxpr)):
            return None
        test, outs = self.test(self.carry), self.step(self.carry)
        goes = self.question(test)
        if goes is None or not self.shares(test, outs):
            return None
        for k in self.masks(outs):
            settled = self.waits(k)
            if settled is None:
                continue
            up = self.step(self.with_mask(k, True))
            again = self.question(self.test(up))
            if again is None or again is not up[k] or not self.own(goes, settled):
                continue
            flags = self.values.flags(self.inputs, self.carry, outs)
            if flags is not None and all(x.aval.shape == (1,) for x in flags):
                return self.made(k, goes, flags, settled, outs)
        return None

    # --- evaluation

    def test(self, carry: Sequence[Atom]) -> Atom:
        return self.values.outs(self.cond, [*self.consts[: self.member.cond_consts], *carry])[0]

    def step(self, carry: Sequence[Atom]) -> list[Atom]:
        return self.values.outs(self.body, [*self.consts[self.member.cond_consts :], *carry])

    def with_mask(self, k: int, value: bool) -> list[Atom]:
        carry: list[Atom] = list(self.carry)
        carry[k] = self.values.spread(_literal(value), self.carry[k].aval.shape)
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

    def own_inputs(self) -> list[Var]:
        return only(self.batched, self.inputs)

    def shares(self, test: Atom, outs: Sequence[Atom]) -> bool:
        """Whether what concerns all members depends on none of them."""
        alike = [o for o, m in zip(outs, self.mask) if not m]
        rest = [t for t in self.terms(test) if not self.asked(t)]
        return self.depends([*alike, *rest]).isdisjoint(self.own_inputs())

    def asked(self, atom: Atom) -> bool:
        e = self.values.maker.get(atom)  # type: ignore[arg-type]
        return e is not None and asks_all(e.prim)

    def masks(self, outs: Sequence[Atom]) -> list[int]:
        """The carries that may be masks: each is and-ed with something."""
        found = []
        for k, (v, o, m) in enumerate(zip(self.carry, outs, self.mask, strict=True)):
            if m and v.aval.dtype == _BOOL and v.aval.shape == (1,) and v in self.terms(o):
                found.append(k)
        return found[: policy.MASKS]

    def waits(self, k: int) -> dict[int, Any] | None:
        """The carries that are a constant once the mask is down; None if others change then."""
        outs = self.step(self.with_mask(k, False))
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

    def own(self, goes: Atom, settled: dict[int, Any]) -> bool:
        """Whether the condition of a member stays as it is while it waits."""
        others = [v for j, (v, m) in enumerate(zip(self.carry, self.mask)) if not m or j in settled]
        return self.depends([goes]).isdisjoint(others)

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
        carried = [v.aval.size for v in self.carry]
        if max(carried) > policy.SMALL or not _is_straight(eqns):
            return None
        return Jaxpr([*self.inputs, count], eqns, [*outs, more], name=self.body.name)


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
    """Whether equations are few operations on small values."""
    work = 0
    for e in eqns:
        sizes = [v.aval.size for v in e.outs]
        if not moves(e.prim) and e.prim.name not in SUMS or max(sizes) > policy.MEMBER_VALUE:
            return False
        work += sum(sizes)
    return work <= policy.MEMBER_WORK


__all__ = ["Apart", "Proof", "without_flags"]
