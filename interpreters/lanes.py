"""Lanes with courses of their own: vmap of a loop or a branch that each lane takes in its own way.

A loop whose condition differs between lanes becomes a `Scan` without carries, whose rounds are the
lanes: each lane runs its loop to its own end, and compilers may run lanes side by side.
"""

from collections.abc import Sequence
from typing import Any

from fnx.core import dtypes
from fnx.core.jaxpr import Eqn, Jaxpr, Var, subjaxprs
from fnx.core.primitive import Primitive
from fnx.core.recipe import Host

from .batching import axis_names
from .call import only
from .scan import Scan

Mask = tuple[bool, ...]


def may_part(prim: Primitive, size: int) -> bool:
    """Whether lanes may take a primitive that carries jaxprs one after the other.

    They may not if they speak to each other, to the user, or to Python, which would be called for
    each lane.
    """
    name = getattr(size, "name", None)
    if name is not None and name in axis_names(prim):
        return False
    return not prim.effects and not any([_calls_host(j) for j in subjaxprs(prim)])


def _calls_host(jaxpr: Jaxpr) -> bool:
    if "calls host" not in jaxpr.memo:
        jaxpr.memo["calls host"] = any(_is_host(e) for e in jaxpr.eqns)
    return jaxpr.memo["calls host"]


class _Operand:
    """What a `lower` rule may know of an operand before its elements are asked for."""

    def __init__(self, aval: Any):
        self.shape, self.dtype = aval.shape, dtypes.NAME[aval.dtype]


def _is_host(eqn: Eqn) -> bool:
    inner = list(subjaxprs(eqn.prim))
    if inner:
        return any(_calls_host(j) for j in inner)
    recipe = eqn.prim.lower(*[_Operand(a.aval) for a in eqn.inputs])  # type: ignore[misc]
    return isinstance(recipe, Host)


def one_by_one(prim: Primitive, backend: Any, size: int, args: Sequence, lanes: Mask) -> list:
    """Results of a primitive for all lanes, with the lanes in front; `lanes` says which operands
    have them, in front too.
    """
    shared = [x for x, lane in zip(args, lanes) if not lane]
    own = only(lanes, args)
    avals = [x.aval.update(shape=x.shape[1:]) if lane else x.aval for x, lane in zip(args, lanes)]
    memo, key = next(subjaxprs(prim)).memo, ("one lane", prim, lanes, *avals)
    if key not in memo:
        memo[key] = _one_lane(prim, avals, lanes)
    body = memo[key]
    loop = Scan(body, len(shared), 0, int(size), backend=backend, lanes=True)
    return list(loop(*shared, *own))


def _one_lane(prim: Primitive, avals: Sequence, lanes: Mask) -> Jaxpr:
    inputs = [Var(a) for a in avals]
    outs = [Var(a) for a in prim.abstract(*avals)]
    rest = [v for v, lane in zip(inputs, lanes) if not lane]
    return Jaxpr([*rest, *only(lanes, inputs)], [Eqn(prim, inputs, outs)], outs, name=prim.name)
