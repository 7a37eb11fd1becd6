"""Questions that are asked of a whole batch, and whether members of one see each other by anything else."""

import numpy as np

from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Var, made_once, subjaxprs
from fnx.core.primitive import Primitive
from fnx.interpreters.batching import batch_jaxpr
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.rewrite import bind_into
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.elementwise.pointwise import Pointwise

from .custom_vmap import CustomVmap
from .user_primitives import Foreign

_BOOL = np.dtype(bool)


@made_once
def _is_any(jaxpr: Jaxpr) -> bool:
    """Whether a jaxpr of bools gives whether any is true."""
    small = simplify(jaxpr, final=True)
    (x,), (out,) = small.inputs, small.outs
    name: dict[Atom, Atom] = {}
    eqns = []
    for e in small.eqns:
        if isinstance(e.prim, ConvertElementType) and e.inputs[0].aval.like(e.outs[0].aval):
            name[e.outs[0]] = name.get(e.inputs[0], e.inputs[0])  # of its weak type
        else:
            eqns.append(e)
    asked = name.get(out, out)
    if not eqns:
        return asked is x
    e = eqns[-1]
    axes = getattr(e.prim, "axes", None)
    return (
        len(eqns) == 1
        and e.prim.name == "reduce_or"
        and name.get(e.inputs[0], e.inputs[0]) is x
        and e.outs[0] is asked
        and len(axes or ()) == len(x.aval.shape)
    )


def asks_all(prim: Primitive) -> bool:
    """Whether a user's primitive gives the truth of any of its bools, as one for a whole batch does."""
    if not isinstance(prim, Foreign) or prim.transparent != "final" or len(prim.avals) != 1:
        return False
    outs = prim.abstract()
    return (
        len(outs) == 1
        and prim.avals[0].dtype == outs[0].dtype == _BOOL
        and outs[0].shape == ()
        and _is_any(prim.jaxpr)
    )


@made_once
def holds_question(jaxpr: Jaxpr) -> bool:
    """Whether a question is asked of all members, at any depth."""
    return any(
        asks_all(e.prim) or any(holds_question(j) for j in subjaxprs(e.prim)) for e in jaxpr.eqns
    )


@made_once
def keeps_apart(jaxpr: Jaxpr) -> bool:
    """Whether rules of users for vmap do not let members see each other, but for questions."""
    for e in jaxpr.eqns:
        if isinstance(e.prim, CustomVmap):
            return False
        if isinstance(e.prim, Foreign) and not asks_all(e.prim) and not _is_member_wise(e.prim):
            return False
        if not all(map(keeps_apart, subjaxprs(e.prim))):
            return False
    return True


def _is_member_wise(prim: Foreign) -> bool:
    if prim.transparent != "final":
        return False
    inputs = [Var(a) for a in prim.avals]
    eqns: list[Eqn] = []
    outs = bind_into(eqns, prim, inputs)
    try:
        batched, mask = batch_jaxpr(Jaxpr(inputs, eqns, outs), 2, (True,) * len(inputs))
    except Exception:  # a rule of a user's, which may forbid that
        return prim.jaxpr.outs == prim.jaxpr.inputs or not simplify(prim.jaxpr, final=True).eqns
    return all(mask) and all(moves(e.prim) for e in simplify(batched, final=True).eqns)


_MOVES = {
    "broadcast_in_dim", "concatenate", "dynamic_slice", "dynamic_update_slice", "gather", "iota", "reshape",
    "scatter", "slice", "slice_set", "squeeze", "transpose",
}  # fmt: skip


SUMS = {
    "argmax", "argmin", "dot_general", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod",
    "reduce_sum",
}  # fmt: skip


def moves(prim: Primitive) -> bool:
    return isinstance(prim, Pointwise) or prim.name in _MOVES


__all__ = ["SUMS", "asks_all", "holds_question", "keeps_apart", "moves"]
