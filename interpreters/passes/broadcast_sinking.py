"""Repetitions go into loops: what a loop reads of a repeated array it reads of the array itself.

A table that all members of a batch share comes to a loop repeated for each of them, as its batch rule has
it. Before the loop that is an array, written each time that the loop begins; inside it is an index that
nobody looks at.

Source: code sinking (Muchnick 1997, ch. 13).
Input: a jaxpr.
Output: one in which loops repeat their constants themselves.
Legal when: always.
Pays when: the loop reads single elements of it, so that nothing is stored there.
Costs: nothing.
"""

from collections.abc import Sequence
from typing import Any

from fnx.core import policy
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from fnx.interpreters.control_flow import ScanRecord, WhileRecord
from fnx.ops.base.broadcast import Broadcast
from fnx.ops.structure.dynamic_slice import DynamicSlice
from fnx.ops.structure.gather import Gather


def repeated_inside(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr, with repetitions of constants of loops inside these."""
    made = {v: e for e in jaxpr.eqns if isinstance(e.prim, Broadcast) for v in e.outs}
    if not made:
        return jaxpr
    eqns = [_sunk(e, made) for e in jaxpr.eqns]
    same = all(a is b for a, b in zip(eqns, jaxpr.eqns))
    return jaxpr if same else jaxpr.with_eqns(eqns)


def _sunk(e: Eqn, made: dict[Var, Eqn]) -> Eqn:
    prim: Any = e.prim
    if isinstance(prim, ScanRecord) and not prim.counted:
        body = _inside(prim.jaxpr, e.inputs[: prim.consts], made)
        if body is not None:
            new, consts = body
            prim = prim.with_jaxpr(new, prim.consts, prim.carry)
            return Eqn(prim, [*consts, *e.inputs[prim.consts :]], e.outs, e.source)
    elif isinstance(prim, WhileRecord):
        c, b, carry = prim.parts(e.inputs)
        cond = _inside(prim.cond_jaxpr, c, made) or (prim.cond_jaxpr, c)
        body = _inside(prim.body_jaxpr, b, made) or (prim.body_jaxpr, b)
        if cond[0] is not prim.cond_jaxpr or body[0] is not prim.body_jaxpr:
            prim = prim.with_jaxprs(cond[0], body[0])
            return Eqn(prim, [*cond[1], *body[1], *carry], e.outs, e.source)
    return e


def _inside(
    jaxpr: Jaxpr, consts: Sequence[Atom], made: dict[Var, Eqn]
) -> tuple[Jaxpr, list[Atom]] | None:
    """A body that repeats constants itself, and what it repeats."""
    inputs, atoms, before = list(jaxpr.inputs), list(consts), []
    for k, atom in enumerate(consts):
        e = made.get(atom) if type(atom) is Var else None
        if e is None or not _gains(e) or not _reads_elements(jaxpr, inputs[k]):
            continue
        inner = Var(e.inputs[0].aval)
        before.append(Eqn(e.prim, [inner], [inputs[k]], e.source))
        inputs[k], atoms[k] = inner, e.inputs[0]
    if not before:
        return None
    return Jaxpr(inputs, [*before, *jaxpr.eqns], jaxpr.outs, jaxpr.consts, jaxpr.name), atoms


def _gains(e: Eqn) -> bool:
    (x,), (y,) = e.inputs, e.outs
    return type(x) is Var and y.aval.size > policy.SMALL and y.aval.size > x.aval.size > 1


def _reads_elements(jaxpr: Jaxpr, v: Var) -> bool:
    """Whether whatever reads a value reads elements of it, by index."""
    readers = [e for e in jaxpr.eqns if v in e.inputs]
    alone = all(isinstance(e.prim, (Gather, DynamicSlice)) for e in readers)
    return v not in jaxpr.outs and alone


__all__ = ["repeated_inside"]
