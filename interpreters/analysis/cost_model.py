"""What it costs to compute an equation again, in bytes of memory that could be stored instead.

Storing and loading a float64 costs about as much as a dozen fused additions or one exponential.
The tables are the one place for these heuristics.
"""

from math import inf, prod
from typing import Any

from fnx.core.jaxpr import Eqn, Jaxpr, Literal, Var

# Bytes per element of the result.
_FREE = (
    "broadcast_in_dim reshape transpose squeeze expand_dims rev slice iota convert_element_type "
    "select_n copy real imag conj complex bitcast_convert_type reduce_precision stop_gradient name"
)
_CHEAP = (
    "add sub mul neg max min abs sign square integer_pow floor ceil round eq ne lt le gt ge and or "
    "not xor shift_left shift_right_logical shift_right_arithmetic clamp is_finite pad concatenate "
    "nextafter population_count clz add_any"
)
_MODERATE = "div rem sqrt rsqrt gather dynamic_slice"
_HEAVY = (
    "exp exp2 expm1 log log1p log2 sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh "
    "pow cbrt logistic"
)
PER_ELEMENT = dict.fromkeys(_FREE.split(), 0.0)
PER_ELEMENT |= dict.fromkeys(_CHEAP.split(), 0.25)
PER_ELEMENT |= dict.fromkeys(_MODERATE.split(), 1.0)
PER_ELEMENT |= dict.fromkeys(_HEAVY.split(), 4.0)
# Bytes per element of the operand.
_FOLDS = (
    "reduce_sum reduce_prod reduce_max reduce_min reduce_and reduce_or argmax argmin cumsum cumprod"
)
PER_OPERAND = dict.fromkeys(_FOLDS.split(), 0.25)
PER_FLOP = 0.25  # of small matrix products; large ones reach the speed of BLAS, but are not small
ITERATION = 0.5  # at least, of an equation in a loop
COPIES = frozenset(
    {"dynamic_update_slice", "slice_add", "dynamic_slice_add"}
)  # cost what they copy
FEW = 64  # bytes that stay in registers
SMALL = 64  # up to this many elements, what is free or cheap lives in registers


def recompute_cost(eqn: Eqn, loops: bool = False) -> float:
    """Bytes that are worth storing to save the equation; `inf`: never compute it again.

    With `loops`, a loop costs what its iterations do.
    """
    if loops and eqn.prim.name == "scan":
        prim: Any = eqn.prim
        return prim.length * sum(max(ITERATION, _in_loop(e)) for e in prim.jaxpr.eqns)
    name, size = eqn.prim.name, max((v.aval.size for v in eqn.outs), default=0)
    if name in PER_ELEMENT:
        rate = PER_ELEMENT[name]
        return 0.0 if rate <= 0.25 and size <= SMALL else rate * size
    if name in PER_OPERAND:
        count = sum(a.aval.size for a in eqn.inputs)
        return 0.0 if count <= SMALL else PER_OPERAND[name] * count
    if name == "dot_general":
        (contracting, _), _ = eqn.prim.dimension_numbers  # type: ignore[attr-defined]
        depth = prod(eqn.inputs[0].aval.shape[k] for k in contracting)
        return PER_FLOP * size * depth
    if name in COPIES or name.startswith("scatter"):
        return float(sum(v.aval.nbytes for v in eqn.outs))
    return inf


def _in_loop(eqn: Eqn) -> float:
    """Of an equation of a loop that runs again: what it updates is the loop's own."""
    name = eqn.prim.name
    if name in COPIES or name.startswith("scatter"):
        return float(eqn.inputs[2 if name.startswith("scatter") else 1].aval.nbytes)
    return recompute_cost(eqn, True)


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
    return max((v.aval.nbytes for v in e.outs), default=0) <= max(read, FEW)
