"""Rotations: where a program makes an array of the end and the beginning of another, as `roll` does.

Two slices that are one after the other are a rotation, whose parts are those of two members; each slice by
itself may have to be gathered. XLA's partitioner knows them alike.
"""

from fnx.core.def_use import definitions, use_counts
from fnx.core.jaxpr import Eqn, Jaxpr, Var
from fnx.ops.structure.join import Concatenate
from fnx.ops.structure.slice import Slice


class Rotation:
    """`result[i] = operand[i + by]` along an axis, around the ends; `slices` are what it is made of."""

    __slots__ = ("axis", "by", "operand", "slices")

    def __init__(self, operand: Var, axis: int, by: int, slices: tuple[Eqn, Eqn]):
        self.operand, self.axis, self.by, self.slices = operand, axis, by, slices


def rotations(jaxpr: Jaxpr) -> dict[Var, Rotation]:
    """The results that are rotations, of slices that nobody else reads."""
    found: dict[Var, Rotation] = {}
    if not any(type(e.prim) is Concatenate for e in jaxpr.eqns):
        return found
    made, uses = definitions(jaxpr.eqns), use_counts(jaxpr)
    for e in jaxpr.eqns:
        if type(e.prim) is not Concatenate or len(e.inputs) != 2:
            continue
        slices = [made.get(a) for a in e.inputs if type(a) is Var and uses[a] == 1]
        if len(slices) == 2 and all(s is not None and type(s.prim) is Slice for s in slices):
            end, start = slices
            by = _by(e.prim.dimension, end, start)
            if by is not None:
                found[e.outs[0]] = Rotation(end.inputs[0], e.prim.dimension, by, (end, start))  # type: ignore
    return found


def _by(axis: int, end: Eqn, start: Eqn) -> int | None:
    """Where the first slice begins, if the other is what comes before it."""
    x = end.inputs[0]
    if type(x) is not Var or start.inputs[0] is not x:
        return None
    by, shape = end.prim.start_indices[axis], x.aval.shape
    for e, lo, hi in ((end, by, shape[axis]), (start, 0, by)):
        first, last = [0] * len(shape), list(shape)
        first[axis], last[axis] = lo, hi
        if e.prim.dense_box() != (tuple(first), tuple(last)):
            return None
    return by


__all__ = ["Rotation", "rotations"]
