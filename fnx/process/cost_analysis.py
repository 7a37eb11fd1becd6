"""Estimates of what a jaxpr costs: floating point operations, transcendental functions, bytes."""

from math import prod

from fnx.core import dtypes
from fnx.core.jaxpr import Eqn, Jaxpr, subjaxprs

_TRANSCENDENTAL = frozenset(
    "exp exp2 expm1 log log1p log2 sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh "
    "pow cbrt logistic erf erfc erf_inv lgamma digamma sqrt rsqrt".split()
)
_MOVES = frozenset(
    "broadcast_in_dim reshape transpose squeeze expand_dims rev slice iota convert_element_type "
    "select_n copy real imag conj bitcast_convert_type stop_gradient name pad concatenate gather "
    "scatter dynamic_slice dynamic_update_slice slice_set".split()
)
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
    name = eqn.prim.name
    bodies = [cost_analysis(j) for j in subjaxprs(eqn.prim)]
    total = {"flops": 0.0, "transcendentals": 0.0}
    if bodies and name == "cond":
        return max(bodies, key=lambda c: c["flops"] + c["transcendentals"])
    if bodies:
        for body in bodies:
            _add(total, body, getattr(eqn.prim, "length", 1))
        return total
    size = sum(v.aval.size for v in eqn.outs)
    if name in _TRANSCENDENTAL:
        return {"transcendentals": float(size)}
    if name in _MOVES or not any(dtypes.is_inexact(v.aval.dtype) for v in eqn.outs):
        return total
    if name == "dot_general":
        (contracted, _), _ = eqn.prim.dimension_numbers  # type: ignore[attr-defined]
        depth = prod(eqn.inputs[0].aval.shape[k] for k in contracted)
        return {"flops": 2.0 * size * depth}
    return {"flops": float(max(size, sum(a.aval.size for a in eqn.inputs) - size))}
