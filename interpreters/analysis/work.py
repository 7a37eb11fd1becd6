"""How much a program does: operations, and exchanges between members, as far as that is known.

Input: a jaxpr.
Output: numbers of the unit of fnx/core/cost.py.
"""

from math import prod
from typing import Any

from fnx.core import policy
from fnx.core.jaxpr import Eqn, Jaxpr, made_once, subjaxprs
from fnx.interpreters.collectives import AxisIndex, Collective
from fnx.interpreters.control_flow import CondRecord, ScanRecord, WhileRecord
from fnx.ops.linalg.contraction import DotGeneral


def _times(prim: Any) -> int:
    """How often a primitive runs the jaxprs that it carries."""
    if isinstance(prim, ScanRecord):
        return prim.length
    return policy.UNKNOWN_EXTENT if isinstance(prim, WhileRecord) else 1


def _of(prim: Any, found: list[float]) -> float:
    if not found:
        return 0.0
    return max(found) if isinstance(prim, CondRecord) else _times(prim) * sum(found)


@made_once
def work(jaxpr: Jaxpr) -> float:
    """Operations of one run."""
    return sum(_equation(e) + _of(e.prim, [work(j) for j in subjaxprs(e.prim)]) for e in jaxpr.eqns)


def _equation(e: Eqn) -> float:
    prim: Any = e.prim
    size = max((v.aval.size for v in e.outs), default=0)
    if isinstance(prim, DotGeneral):
        (contracting, _), _ = prim.dimension_numbers
        return size * prod(e.inputs[0].aval.shape[k] for k in contracting)
    if prim.cost.of_operand:
        size = sum(a.aval.size for a in e.inputs)
    return size * max(1, prim.cost.operations)


@made_once
def exchanges(jaxpr: Jaxpr) -> float:
    """Exchanges of one run."""
    own = [isinstance(e.prim, Collective) and not isinstance(e.prim, AxisIndex) for e in jaxpr.eqns]
    return sum(own) + sum(
        _of(e.prim, [exchanges(j) for j in subjaxprs(e.prim)]) for e in jaxpr.eqns
    )
