"""What it costs to compute an equation again, in bytes of memory that could be stored instead.

What an element costs says the primitive (`fnx.core.cost`); here is what that means for an equation.
"""

from math import inf, prod
from typing import Any

from fnx.core import policy
from fnx.core.jaxpr import Eqn, Jaxpr, Literal, Var
from fnx.interpreters.control_flow import ScanRecord
from fnx.ops.linalg.contraction import DotGeneral


def recompute_cost(eqn: Eqn, loops: bool = False) -> float:
    """Bytes that are worth storing to save the equation; `inf`: never compute it again.

    With `loops`, a loop costs what its iterations do.
    """
    prim: Any = eqn.prim
    if loops and isinstance(prim, ScanRecord):
        return prim.length * sum(max(policy.ITERATION_BYTES, _in_loop(e)) for e in prim.jaxpr.eqns)
    if prim.update_operand is not None:  # it costs what it copies
        return float(sum(v.aval.nbytes for v in eqn.outs))
    size = max((v.aval.size for v in eqn.outs), default=0)
    if isinstance(prim, DotGeneral):
        (contracting, _), _ = prim.dimension_numbers
        return policy.BYTES_PER_FLOP * size * prod(eqn.inputs[0].aval.shape[k] for k in contracting)
    worth = prim.cost.worth
    if worth == inf:
        return inf
    count = sum(a.aval.size for a in eqn.inputs) if prim.cost.of_operand else size
    return (
        0.0
        if worth <= policy.RECOMPUTED_BYTES and count <= policy.RECOMPUTED_ELEMENTS
        else worth * count
    )


def _in_loop(eqn: Eqn) -> float:
    """Of an equation of a loop that runs again: what it updates is the loop's own."""
    update = eqn.prim.update_operand
    return recompute_cost(eqn, True) if update is None else float(eqn.inputs[update].aval.nbytes)


def hoistable(body: Jaxpr, consts: int) -> tuple[list[Eqn], list[Eqn]]:
    """The equations of a loop's body that may run once before it, and the others.

    They depend on constants of the loop, and make nothing larger than what they read, unless it is a
    few numbers, or costs much: a broadcast is cheaper to repeat than to load.
    """
    known = set(body.inputs[:consts])
    early, late = [], []
    for e in body.eqns:
        atoms = [a for a in e.inputs if type(a) is Var]
        apart = bool(atoms) and not e.prim.effects and all(a in known for a in atoms)
        if apart and (_shrinks(e) or recompute_cost(e) >= sum(v.aval.nbytes for v in e.outs)):
            early.append(e)
            known.update(e.outs)
        else:
            late.append(e)
    return early, late


def _shrinks(e: Eqn) -> bool:
    read = max((a.aval.nbytes for a in e.inputs if type(a) is not Literal), default=0)
    return max((v.aval.nbytes for v in e.outs), default=0) <= max(read, policy.REGISTER_BYTES)
