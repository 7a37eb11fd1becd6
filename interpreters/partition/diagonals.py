"""Diagonals of matrices: slices of a flat matrix, by members who pick what lies in their rows or columns.

A matrix whose columns are cut would have to be exchanged to be flat.
"""

from typing import Any

import numpy as np

from fnx.core.array import Array
from fnx.core.def_use import definitions, use_counts
from fnx.core.jaxpr import Eqn, Jaxpr, Var
from fnx.ops.elementwise.arithmetic import add, max_, min_, mul
from fnx.ops.elementwise.select import and_, ge, lt, select
from fnx.ops.reduction.sorting import take_along
from fnx.ops.structure.basic import full, reshape, scalar
from fnx.ops.structure.movement import Iota, Reshape
from fnx.ops.structure.slice import Slice

from .parts import Part

_INT = np.dtype(np.int32)


class Diagonal:
    """`operand[..., row + i, column + i]` for i up to `size`; `flat` makes the matrices flat."""

    __slots__ = ("column", "flat", "operand", "row", "size")

    def __init__(self, operand: Var, row: int, column: int, size: int, flat: Eqn):
        self.operand, self.row, self.column, self.size, self.flat = operand, row, column, size, flat


def diagonals(jaxpr: Jaxpr) -> dict[Var, Diagonal]:
    """The results that are diagonals of matrices whose flat form nobody else reads."""
    found: dict[Var, Diagonal] = {}
    if not any(type(e.prim) is Slice and e.prim.strides for e in jaxpr.eqns):
        return found
    made, uses = definitions(jaxpr.eqns), use_counts(jaxpr)
    for e in jaxpr.eqns:
        flat = made.get(e.inputs[0]) if type(e.prim) is Slice and e.prim.strides else None  # type: ignore
        if flat is not None and type(flat.prim) is Reshape and uses[e.inputs[0]] == 1:
            diagonal = _of(e, flat)
            if diagonal is not None:
                found[e.outs[0]] = diagonal
    return found


def _of(e: Eqn, flat: Eqn) -> Diagonal | None:
    x, wide, prim = flat.inputs[0], e.inputs[0].aval.shape, e.prim
    if type(x) is not Var or len(wide) != x.aval.ndim - 1 or wide[:-1] != x.aval.shape[:-2]:
        return None
    columns, last = x.aval.shape[-1], len(wide) - 1
    if prim.part_axes(wide) != [last] or prim.steps()[last] != columns + 1:  # type: ignore
        return None
    row, column = divmod(prim.start_indices[last], columns)  # type: ignore[attr-defined]
    size = e.outs[0].aval.shape[last]
    inside = column + size <= columns and row + size <= x.aval.shape[-2]
    return Diagonal(x, row, column, size, flat) if inside else None


def picked(grid: Any, p: Part, d: Diagonal) -> Part | None:
    """A diagonal of matrices of which rows or columns are cut; None if none are."""
    rows, columns = p.ndim - 2, p.ndim - 1
    along, across = (rows, columns) if p.cut[rows] else (columns, rows)
    names, others = p.cut[along], p.cut[across]
    if not names or (others and not grid.can_sum(p.x.dtype)):
        return None
    shift = d.column - d.row if along == rows else d.row - d.column
    first = d.row if along == rows else d.column
    b, m = p.x.shape[along], p.x.shape[across]
    start = add(mul(grid.number(names), scalar(b, _INT)), scalar(shift, _INT))
    if others:
        start = add(start, mul(grid.number(others), scalar(-m, _INT)))
    shape = [*p.x.shape[:-2], 0, 0]
    shape[along], shape[across] = b, 1
    at = add(Iota(along, _INT, tuple(shape))(), start)
    nothing, end = scalar(0, _INT), scalar(m - 1, _INT)
    found: Array = take_along(p.x, min_(max_(at, nothing), end), across)
    if others:
        mine = and_(ge(at, nothing), lt(at, scalar(m, _INT)))
        found = grid.total(select(mine, found, full(found.shape, 0, found.dtype)), others)
    found = reshape(found, (*p.x.shape[:-2], b))
    whole = Part(found, (*p.shape[:-2], p.shape[along]), (*p.cut[:-2], names))
    return grid.window(whole, rows, first, d.size)


__all__ = ["Diagonal", "diagonals", "picked"]
