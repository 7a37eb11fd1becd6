"""Predictive commoning: a carry stacked before and after each iteration is stacked once.

The rows after an iteration are those before the next one. A loop that goes back over the rows carries
the last row that it read, which is what the iteration it now comes to has made.

Source: Allen & Kennedy 2001, ch. 8.
Input: a jaxpr with loops that stack, and loops that read the stacks.
Output: the same, whose second loops read one stack and carry a row.
Legal when: nobody else needs the other stack, and the second loop goes through it row by row.
Pays when: always; half the memory.
Costs: a carry of one row.
"""

from typing import Any

from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Var

Stacks = dict[Var, "Twice"]


@dataclass(frozen=True)
class Twice:
    """A stack of a carry after each iteration: its loop, the stack before each, the last carry."""

    loop: Eqn
    before: Var
    last: Var


def without_shifted_stacks(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr whose loops read one of two such stacks; nobody may need the other one after that."""
    twice: Stacks = {}
    for e in jaxpr.eqns:
        if e.prim.name == "scan":
            twice |= _stacked_twice(e)
    if not twice:
        return jaxpr
    kept = {a for a in jaxpr.outs if a in twice}
    for e in jaxpr.eqns:
        going_back = _goes_back(e, twice)
        kept.update(a for a in e.inputs if a in twice and a not in going_back)
    left = {a: t for a, t in twice.items() if a not in kept}
    if not left:
        return jaxpr
    eqns = [_carrying(e, _goes_back(e, left)) for e in jaxpr.eqns]
    return jaxpr.with_eqns(eqns)


def _stacked_twice(e: Eqn) -> Stacks:
    """The stacks of a loop that another one, shifted by an iteration, makes superfluous."""
    prim: Any = e.prim
    body: Jaxpr = prim.jaxpr
    stacks: dict[Atom, Var] = dict(zip(body.outs[prim.carry :], e.outs[prim.carry :]))
    found = {}
    own = prim.parts(body.inputs)[1]
    for v, out, last in zip(own, body.outs, e.outs[: prim.carry]):
        if v is not out and v in stacks and out in stacks:
            found[stacks[out]] = Twice(e, stacks[v], last)
    return found


def _goes_back(e: Eqn, twice: Stacks) -> Stacks:
    """The stacks whose rows an equation reads, each with that before it, from the last to the first."""
    if e.prim.name != "scan":
        return {}
    prim: Any = e.prim
    others, _, xs = prim.parts(e.inputs)
    found = {}
    for a in xs:
        t = twice.get(a)
        if t is None or t.before not in xs or a in e.inputs[: prim.consts + prim.carry]:
            continue
        loop: Any = t.loop.prim
        opposite = prim.reverse != loop.reverse and prim.counted == loop.counted
        if opposite and (not prim.counted or others[0] is t.loop.inputs[0]):
            found[a] = t
    return found


def _carrying(e: Eqn, stacks: Stacks) -> Eqn:
    """A loop that carries such rows."""
    if not stacks:
        return e
    prim: Any = e.prim
    consts, carry, xs = prim.parts(e.inputs)
    body: Jaxpr = prim.jaxpr
    own_consts, own, rows = prim.parts(body.inputs)
    row_of = dict(zip(xs, rows))
    moved = [k for k, a in enumerate(xs) if a in stacks]
    rest = [k for k in range(len(xs)) if k not in moved]
    inputs = [*own_consts, *own, *(rows[k] for k in moved), *(rows[k] for k in rest)]
    outs = [*body.outs[: prim.carry], *(row_of[stacks[xs[k]].before] for k in moved)]
    jaxpr = Jaxpr(inputs, body.eqns, [*outs, *body.outs[prim.carry :]], body.consts, name=body.name)
    operands = [*consts, *carry, *(stacks[xs[k]].last for k in moved), *(xs[k] for k in rest)]
    lasts = [Var(stacks[xs[k]].last.aval) for k in moved]
    results = [*e.outs[: prim.carry], *lasts, *e.outs[prim.carry :]]
    loop = prim.with_jaxpr(jaxpr, prim.consts, prim.carry + len(moved))
    return Eqn(loop, operands, results, e.source)
