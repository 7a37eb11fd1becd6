"""Uniformity: which values are the same in all members of a named axis, and which may differ.

Divergence analysis of SIMT programs (Coutinho et al. 2011), with named axes for the lanes: a value varies
along the axes along which something that it is computed from varies; sums over an axis, and what is
gathered along it, do not.

Input: one member's jaxpr, and the names along which each input varies.
Output: the names along which each result varies; whether all members make the same exchanges: where a
branch or a loop has a collective, its condition is the same in all; and of linear systems along which the
solutions vary.
Legal when: always; operations it does not know vary with their operands, and with what is inside them.
"""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from fnx.core.jaxpr import Eqn, Jaxpr, Var, made_once, subjaxprs
from fnx.interpreters.batching import axis_names
from fnx.interpreters.collectives import AllGather, Collective, PMax, PMin, PSum
from fnx.interpreters.control_flow import CondRecord, ScanRecord, WhileRecord

Names = frozenset[Hashable]
_NONE: Names = frozenset()


class Solved(NamedTuple):
    """Names of axes that an equation which solves a linear system has exchanges over (`exchanged`);
    those along which its solution varies; and along which that of the transposed system may."""

    exchanged: Names
    varies: Names = _NONE
    back: Names = _NONE


class Uniformity:
    """What is found of a program: `same_exchanges`, and `solves`, by the identities of the equations."""

    def __init__(self) -> None:
        self.same_exchanges = True
        self.solves: dict[int, Solved] = {}

    def jaxpr(self, jaxpr: Jaxpr, inputs: Sequence[Names]) -> list[Names]:
        varies: dict[Any, Names] = dict(zip(jaxpr.inputs, inputs, strict=True))
        for e in jaxpr.eqns:
            given = [varies[a] if type(a) is Var else _NONE for a in e.inputs]
            varies.update(zip(e.outs, self.equation(e, given), strict=True))
        return [varies[o] if type(o) is Var else _NONE for o in jaxpr.outs]

    def equation(self, e: Eqn, given: list[Names]) -> list[Names]:
        prim: Any = e.prim
        if isinstance(prim, Collective):
            return [_collective(prim, given)]
        if isinstance(prim, CondRecord):
            return self.branch(prim, given)
        if isinstance(prim, ScanRecord):
            return self.scan(prim, given)
        if isinstance(prim, WhileRecord):
            return self.while_(prim, given)
        if prim.name == "custom_linear_solve":  # as its solver says
            return self.solve(e, prim.parts(given))
        inner = list(subjaxprs(prim))
        if len(inner) == 1 and len(inner[0].inputs) == len(given):
            return self.jaxpr(inner[0], given)
        everything = _NONE.union(*given, *[_inside(j) for j in inner])
        for j in inner:  # whose operands nobody knows: all may vary
            self.jaxpr(j, [everything] * len(j.inputs))
        return [everything] * len(e.outs)

    def solve(self, e: Eqn, parts: list) -> list[Names]:
        prim: Any = e.prim
        outs = self.jaxpr(prim.solve, [*parts[1], *parts[4]])
        exchanged = _inside(prim.solve) | _inside(prim.matvec)
        back: list[Names] = []
        for j, consts in zip((prim.vecmat, prim.transpose_solve), parts[2:4]):
            back += [] if j is None else Uniformity().jaxpr(j, [*consts, *parts[4]])
        old = self.solves.get(id(e), Solved(exchanged))
        self.solves[id(e)] = Solved(exchanged, old.varies.union(*outs), old.back.union(*back))
        return outs

    def guard(self, condition: Names, inside: Sequence[Jaxpr]) -> None:
        if condition and any(_exchanges(j) for j in inside):
            self.same_exchanges = False

    def branch(self, prim: Any, given: list[Names]) -> list[Names]:
        self.guard(given[0], prim.branches)
        found = [self.jaxpr(b, given[1:]) for b in prim.branches]
        return [given[0].union(*each) for each in zip(*found)]

    def scan(self, prim: Any, given: list[Names]) -> list[Names]:
        n, m = prim.consts, prim.consts + prim.carry
        carry = given[n:m]
        if prim.counted:
            self.guard(given[0], [prim.jaxpr])
        while True:
            outs = self.jaxpr(prim.jaxpr, [*given[:n], *carry, *given[m:]])
            new = [a | b for a, b in zip(carry, outs)]
            if new == carry:
                return [*carry, *outs[prim.carry :]]
            carry = new

    def while_(self, prim: Any, given: list[Names]) -> list[Names]:
        n, m = prim.cond_consts, prim.cond_consts + prim.body_consts
        carry = given[m:]
        while True:
            (going,) = self.jaxpr(prim.cond_jaxpr, [*given[:n], *carry])
            outs = self.jaxpr(prim.body_jaxpr, [*given[n:m], *carry])
            new = [a | b | going for a, b in zip(carry, outs)]
            if new == carry:
                self.guard(going, [prim.cond_jaxpr, prim.body_jaxpr])
                return carry
            carry = new


def _collective(prim: Collective, given: list[Names]) -> Names:
    names, before = frozenset(prim.axis_names), _NONE.union(*given)
    if isinstance(prim, (PSum, PMax, PMin, AllGather)) and prim.groups is None:
        return before - names
    return before | names


@made_once
def _exchanges(jaxpr: Jaxpr) -> bool:
    """Whether there is a collective in a jaxpr, at whatever depth."""
    return bool(_inside(jaxpr))


@made_once
def _inside(jaxpr: Jaxpr) -> Names:
    return frozenset([name for e in jaxpr.eqns for name in axis_names(e.prim)])


def uniformity(jaxpr: Jaxpr, inputs: Sequence[Names]) -> tuple[list[Names], bool]:
    """The names along which each result varies; and whether all members make the same exchanges."""
    found = Uniformity()
    outs = found.jaxpr(jaxpr, inputs)
    return outs, found.same_exchanges
