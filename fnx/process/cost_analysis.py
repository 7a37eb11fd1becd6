"""Estimates of what a jaxpr costs: floating point operations, transcendental functions, bytes."""

from math import prod
from typing import Any

from fnx.core import dtypes
from fnx.core.jaxpr import Eqn, Jaxpr, subjaxprs
from fnx.core.primitive import Primitive
from fnx.interpreters.control_flow import CondRecord
from fnx.ops.linalg.contraction import DotGeneral

Costs = dict[str, float]


def cost_analysis(jaxpr: Jaxpr) -> Costs:
    """Flops and transcendentals of one run, and the bytes of arguments and results.

    Loops whose length depends on values count once; of branches the dearest counts.
    """
    total = {"flops": 0.0, "transcendentals": 0.0}
    for eqn in jaxpr.eqns:
        _add(total, _of_eqn(eqn))
    atoms = [*jaxpr.inputs, *jaxpr.outs]
    total["bytes accessed"] = float(sum(a.aval.nbytes for a in atoms))
    return total


def _add(total: Costs, more: Costs, times: float = 1.0) -> None:
    for name in ("flops", "transcendentals"):
        total[name] += times * more.get(name, 0.0)


def _of_eqn(eqn: Eqn) -> Costs:
    prim: Any = eqn.prim
    bodies = [cost_analysis(j) for j in subjaxprs(prim)]
    total = {"flops": 0.0, "transcendentals": 0.0}
    if bodies and isinstance(prim, CondRecord):
        return max(bodies, key=lambda c: c["flops"] + c["transcendentals"])
    if bodies:
        for body in bodies:
            _add(total, body, getattr(prim, "length", 1))
        return total
    size = sum(v.aval.size for v in eqn.outs)
    if prim.cost.transcendental:
        return {"transcendentals": float(size)}
    if _computes_nothing(prim) or not any(dtypes.is_inexact(v.aval.dtype) for v in eqn.outs):
        return total
    if isinstance(prim, DotGeneral):
        (contracted, _), _ = prim.dimension_numbers
        depth = prod(eqn.inputs[0].aval.shape[k] for k in contracted)
        return {"flops": 2.0 * size * depth}
    return {"flops": float(max(size, sum(a.aval.size for a in eqn.inputs) - size))}


def _computes_nothing(prim: Primitive) -> bool:
    """Whether elements of the result are those of operands."""
    return prim.moves or prim.cost.worth == 0 or prim.update_kind == "set"
