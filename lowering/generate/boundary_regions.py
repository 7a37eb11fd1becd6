"""Loop partitioning: arrays of a large piece and thin ones, which stencils read as they are.

A field that is rolled, or padded by what lies at its other end or at its edge, need not be stored before
its neighbours are added up. Where an element comes from is a choice by its index; loops are cut where
the choice changes, so that none is left inside, and around lie thin slabs.

Source: loop partitioning (Halide, TVM's LoopPartition); index-set splitting, Allen & Kennedy 2001, ch. 5.
Input: pieces, or expressions of elements with choices by index.
Output: an inlined value; the regions of an iteration space in each of which all choices are decided, row
by row where that keeps lines in cache.
Legal when: all readers read along (elementwise, slices, concatenations, reductions to one number).
Pays when: one piece is three quarters of each axis, and computing the pieces again is cheap.
Costs: the choices stay in a nest that has no such region; code for each slab.
"""

from collections.abc import Sequence
from itertools import pairwise

from fnx.core import policy, recipe
from fnx.core.jaxpr import Eqn
from fnx.core.scalar import Expr
from fnx.lowering.ir.expressions import nodes
from fnx.lowering.transform import index_set_splitting

from .generation import Generation
from .values import Inlined, Materialized, Scalars, Shape, Value

_TOTALS = ("reduce_sum", "reduce_max", "reduce_min")

Span = tuple[Shape, Shape]


def are_thin(builder: Generation, r: recipe.Pieces, inputs: list[Value], out: Value) -> bool:
    """Whether pieces are best pulled, from memory, by stencils."""
    if -1 in out.consumers or out.destination is not None or len(r.pieces) > policy.REGION_PIECES:
        return False
    if not all(reads_along(builder.scope.eqns[k]) for k in out.consumers):
        return False
    largest = max(r.pieces, key=lambda p: [h - l for l, h in zip(p.lo, p.hi, strict=True)])
    if not _is_most(largest.lo, largest.hi, out.shape):
        return False
    known = (Materialized, Scalars)
    free = [isinstance(h.state, Inlined) and is_cheap(h.state.cost, out) for h in inputs]
    return all(f or isinstance(h.state, known) for f, h in zip(free, inputs, strict=True))


def is_cheap(cost: int, out: Value) -> bool:
    """Whether what pieces are of may be computed by each who reads them."""
    return cost * len(out.consumers) <= policy.CHEAP


def reads_along(eqn: Eqn) -> bool:
    """Whether an equation reads its operands at its own index, or at that and a number, or adds all up."""
    return eqn.prim.elementwise or eqn.prim.name in ("slice", "concatenate") or is_total(eqn)


def is_total(eqn: Eqn) -> bool:
    """Whether all elements are reduced to one number."""
    return eqn.prim.name in _TOTALS and eqn.outs[0].aval.size == 1


def _is_most(low: Shape, high: Shape, shape: Shape) -> bool:
    sizes = zip(low, high, shape, strict=True)
    return all(h - l >= max(n - n // 4, min(n, policy.REGION_ELEMENTS)) for l, h, n in sizes)


def regions(exprs: Sequence[Expr], index: Sequence[Expr], shape: Shape) -> list[Span]:
    """The largest part of an iteration space in which all choices are the same, and slabs around it."""
    cuts = [_cuts(exprs, i, n) for i, n in zip(index, shape, strict=True)]
    spans = [max(pairwise(c), key=lambda span: span[1] - span[0]) for c in cuts]
    low, high = tuple(s[0] for s in spans), tuple(s[1] for s in spans)
    if all(len(c) == 2 for c in cuts) or not _is_most(low, high, shape):
        return []
    found = [(low, high)]
    for lo, hi in recipe.around(shape, low, high):
        ends = [lo[-1], *(c for c in cuts[-1] if lo[-1] < c < hi[-1]), hi[-1]]
        found += [((*lo[:-1], a), (*hi[:-1], b)) for a, b in pairwise(ends)]
    return found


def rows(spans: list[Span]) -> list[list[Span]]:
    """Regions by the loops that they are best made in: those side by side in long rows, row by row.

    A nest of a thin slab at the end of each row would read again, line by line, all that the inside has
    just read. Where there is one row, or rows are short, vectors go along the slab instead.
    """
    found: dict[Span, list[Span]] = {}
    for low, high in spans:
        found.setdefault((low[:-1], high[:-1]), []).append((low, high))
    made: list[list[Span]] = []
    for (low, high), row in found.items():
        longest = max(b[-1] - a[-1] for a, b in row)
        if longest < policy.LONG_ROW or all(h - l == 1 for l, h in zip(low, high, strict=True)):
            made += [[span] for span in row]
        else:
            made.append(sorted(row))
    return made


def _cuts(exprs: Sequence[Expr], index: Expr, n: int) -> list[int]:
    """Where choices along an axis change, and its ends."""
    found = set()
    for e in nodes(exprs):
        if (e.op, 1) in index_set_splitting.SIDES and e.args[0].dtype == "int64":
            at = index_set_splitting.crossing(e.op, e.args[0], e.args[1], index)
            if at is not None and at[0].op == "size" and 0 < at[0].attr < n:
                found.add(at[0].attr)
    return [0, *sorted(found), n] if len(found) <= policy.REGION_CUTS else [0, n]


__all__ = ["are_thin", "is_total", "reads_along", "regions", "rows"]
