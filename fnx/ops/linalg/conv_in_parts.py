"""The rule of sharding for convolutions along an axis of space that is cut.

The function is `along` of the primitive (fnx/ops/base/sharding_rule.py), with `grid`, the partitioner.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any


def convolution(prim: Any, grid: Any, parts: Sequence[Any]) -> list | None:
    """Members' own places of the result; where the filter is the longer, sums over parts of that."""
    x, w = parts
    xs, ws, os = prim.dimension_numbers
    k = next((k for k in range(len(xs) - 2) if x.cut[xs[k + 2]] or w.cut[ws[k + 2]]), None)
    if k is None:
        return None
    a, b = xs[k + 2], ws[k + 2]
    names, taps, lo = x.cut[a] or w.cut[b], w.shape[b], prim.padding[k][0]
    shape = prim.abstract(x.aval, w.aval)[0].shape
    places, stride, holes = shape[os[k + 2]], prim.window_strides[k], prim.rhs_dilation[k]
    if not places or not taps:
        return None
    sums = taps > places
    x = grid.lay(x, grid.beside(x, a, names))
    if sums:
        w = grid.masked(grid.lay(w, grid.beside(w, b, names)), b, 0)
        blocks, step, size = taps, holes, (places - 1) * stride + 1
    else:
        w = grid.without(grid.gather(w, b), names)
        blocks, step, size = places, stride, (taps - 1) * holes + 1
    reached = grid.reach(x, a, blocks, step, size, lo, prim.lhs_dilation[k], 0)
    if reached is None:
        return None
    if sums:
        w = grid.along_one(w, b, w.x.shape[b], ())
    put = lambda values, new: (*values[:k], new, *values[k + 1 :])
    own = replace(prim, padding=put(prim.padding, (0, 0)), lhs_dilation=put(prim.lhs_dilation, 1))
    (y,) = grid.apply(own, [reached, w])
    if sums:
        return [grid.part(grid.reduced(y.x, "sum", names), y.shape, y.cut)]
    return [grid.along_one(y, os[k + 2], places, names)]


__all__ = ["convolution"]
