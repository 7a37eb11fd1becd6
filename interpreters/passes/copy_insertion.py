"""Copy insertion for carries that are handed on.

A leapfrog keeps the field of the step before, `(now, before) -> (new, now)`. After the iteration, that
would be a copy of an array, by way of a third one. Made where the old field is last read, it is stored
by the loops that compute the new one, which have read it anyway.

Source: XLA; copies for phis, Boissinot et al. 2009.
Input: a jaxpr with loops in which one carry's next value is another carry.
Output: the same, where an equation of the body makes that value.
Legal when: always; a copy changes nothing.
Pays when: the carry does not live in registers.
Costs: a store for each element, in place of a copy of the array.
"""

from dataclasses import replace
from typing import Any

from fnx.core import policy
from fnx.core.jaxpr import Eqn, Jaxpr, Var
from fnx.ops.elementwise.arithmetic import copy


def handed_on(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with such equations in its loops."""
    eqns = [_with_copies(e) for e in jaxpr.eqns]
    if all(a is b for a, b in zip(eqns, jaxpr.eqns)):
        return jaxpr
    return jaxpr.with_eqns(eqns)


def _with_copies(e: Eqn) -> Eqn:
    prim: Any = e.prim
    if prim.name == "scan":
        field, consts, carry = "jaxpr", prim.consts, prim.carry
    elif prim.name == "while":
        field, consts, carry = "body_jaxpr", prim.body_consts, len(e.outs)
    else:
        return e
    body: Jaxpr = getattr(prim, field)
    own = body.inputs[consts : consts + carry]
    passed = {
        k: a
        for k, (a, old) in enumerate(zip(body.outs, own))
        if a is not old and a in own and a.aval.size > policy.COPIED_ELEMENTS
    }
    if not passed:
        return e
    return Eqn(replace(prim, **{field: _copying(body, own, passed)}), e.inputs, e.outs, e.source)


def _copying(body: Jaxpr, own: list[Var], passed: dict[int, Var]) -> Jaxpr:
    """A body whose results `passed` are equations, each before the last one that reads what it replaces."""
    last = {a: n for n, e in enumerate(body.eqns) for a in e.inputs}
    outs = list(body.outs)
    made: dict[int, list[Eqn]] = {}
    for k, a in passed.items():
        outs[k] = new = Var(a.aval)
        made.setdefault(last.get(own[k], 0), []).append(Eqn(copy, [a], [new]))
    eqns = [x for n, e in enumerate(body.eqns) for x in (*made.pop(n, ()), e)]
    eqns += [x for rest in made.values() for x in rest]
    return body.with_eqns(eqns, outs)
