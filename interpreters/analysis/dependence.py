"""Dependence: which results of a call, loop or branch depend on some of its operands.

Binding-time analysis (Jones, Gomard & Sestoft 1993, ch. 4): what does not depend on operands that are
not known can be computed before they are. Loops carry values from one iteration to the next, so their
carries are a least fixed point.
"""

from collections.abc import Sequence

from fnx.core.jaxpr import Jaxpr, Var, made_once
from fnx.interpreters.control_flow import CondRecord, ScanRecord, WhileRecord
from fnx.interpreters.operands import only

Mask = tuple[bool, ...]


@made_once
def of_jaxpr(jaxpr: Jaxpr, inputs: Mask) -> Mask:
    """Which results depend on some of the inputs; calls, loops and branches inside are looked into."""
    found = set(only(inputs, jaxpr.inputs))
    for e in jaxpr.eqns:
        mine = tuple([type(a) is Var and a in found for a in e.inputs])
        if any(mine):
            look = None if e.prim.effects else getattr(e.prim, "independent", None)
            known = look(mine) if look else (False,) * len(e.outs)
            found.update([v for v, k in zip(e.outs, known, strict=True) if not k])
    return tuple([o in found for o in jaxpr.outs])


def carried(scan: ScanRecord, operands: Sequence[bool]) -> Mask:
    """Which carries depend on some of the operands, before an iteration or after any."""
    return of_scan(scan, operands)[: scan.carry]


def of_scan(scan: ScanRecord, operands: Sequence[bool]) -> Mask:
    """Which results of a scan depend on some of its operands."""
    consts, carry, xs = map(tuple, scan.parts(operands))
    if scan.counted and consts[0]:  # how many iterations there are
        return (True,) * len(scan.jaxpr.outs)
    while True:
        outs = of_jaxpr(scan.jaxpr, (*consts, *carry, *xs))
        more = tuple([a or b for a, b in zip(carry, outs)])
        if more == carry:
            return (*carry, *outs[scan.carry :])
        carry = more


def of_while(loop: WhileRecord, operands: Sequence[bool]) -> Mask:
    """Which results of a while loop depend on some of its operands."""
    of_cond, of_body, carry = map(tuple, loop.parts(operands))
    while True:
        if of_jaxpr(loop.cond_jaxpr, (*of_cond, *carry))[0]:  # how many iterations there are
            return (True,) * len(carry)
        more = tuple([a or b for a, b in zip(carry, of_jaxpr(loop.body_jaxpr, (*of_body, *carry)))])
        if more == carry:
            return carry
        carry = more


def of_cond(cond: CondRecord, operands: Sequence[bool]) -> Mask:
    """Which results of a branch depend on some of its operands."""
    if operands[0]:
        return (True,) * len(cond.branches[0].outs)
    found = [of_jaxpr(b, tuple(operands[1:])) for b in cond.branches]
    return tuple([any(column) for column in zip(*found)])
