"""Rules of sharding for operations at positions that are operands, along an axis that is cut.

Each member reads or writes what lies in its part; what one member has read the others get as a sum. The
functions are `along` of their primitives (fnx/ops/base/sharding_rule.py), with `grid`, the partitioner.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, as_array
from fnx.ops.base.broadcast import Broadcast, full, scalar
from fnx.ops.base.permute import reshape
from fnx.ops.elementwise.arithmetic import max_, min_, mul, sub
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.elementwise.pointwise import add
from fnx.ops.elementwise.select import and_, ge, lt, select
from fnx.ops.structure.join import Concatenate, Iota
from fnx.ops.structure.slice import slice_axis

_INT = dtypes.int64
_TOGETHER = {"add": "sum", "min": "min", "max": "max"}  # how copies are, by the kind of update


def gather(prim: Any, grid: Any, parts: Sequence[Any]) -> list | None:
    """Windows of one element along the axis, each from the member that has it; few, beside the operand."""
    x, indices = parts
    axis = _axis(prim, parts, prim.dimension_numbers.start_index_map, prim.slice_sizes)
    if (
        axis is None
        or not grid.can_sum(x.x.dtype)
        or not set(x.cut[axis]).isdisjoint(_names(indices))
    ):
        return None
    if prim.abstract(x.aval, indices.aval)[0].size > x.aval.size:
        return None
    k, clips = prim.dimension_numbers.start_index_map.index(axis), prim.mode.name != "FILL_OR_DROP"
    names, x = x.cut[axis], _whole_but(prim, grid, parts, axis)
    indices = grid.lay(indices, (*indices.cut[:-1], ()))
    index, mine, good = _own(grid, x, axis, indices, k, clips)
    index = _with(indices, k, select(mine, index, scalar(0, _INT)))
    (y,) = grid.apply(prim, [_as_whole(grid, x, axis), index])
    outer = [d for d in range(y.ndim) if d not in prim.dimension_numbers.offset_dims]

    def spread(mask: Array) -> Array:
        p = grid.part(mask, indices.shape[:-1], indices.cut[:-1])
        (wide,) = grid.apply(Broadcast(y.shape, tuple(outer)), [p])
        return grid.lay(wide, y.cut).x

    found = grid.total(select(spread(mine), y.x, full(y.x.shape, 0, y.x.dtype)), names)
    if not clips:
        empty = full(y.x.shape, prim.fill(y.x.dtype), y.x.dtype)
        found = select(spread(good), found, empty)
    return [grid.part(found, y.shape, y.cut)]


def scatter(prim: Any, grid: Any, parts: Sequence[Any]) -> list | None:
    """Windows of one element along the axis, each by the member that has it."""
    x, indices, updates = parts
    n = prim.dimension_numbers
    gone = (*n.inserted_window_dims, *n.operand_batching_dims)
    sizes = dict.fromkeys(gone, 1)
    inside = [k for k in range(x.ndim) if k not in gone]
    sizes |= {k: updates.shape[d] for k, d in zip(inside, n.update_window_dims, strict=True)}
    axis = _axis(prim, parts, n.scatter_dims_to_operand_dims, sizes)
    if axis is None:
        return _scatter_by_updates(prim, grid, parts)
    k = n.scatter_dims_to_operand_dims.index(axis)
    names, x = x.cut[axis], _whole_but(prim, grid, parts, axis)
    indices, clips = grid.gathered(indices), prim.mode.name != "FILL_OR_DROP"
    if clips:  # along all axes: below, what is outside is dropped
        most = [x.shape[d] - sizes[d] for d in n.scatter_dims_to_operand_dims]
        indices = _clipped(indices, most)
    free = tuple([c if set(c).isdisjoint(names) else () for c in updates.cut])
    index, mine, _ = _own(grid, x, axis, indices, k, clips)
    index = _with(indices, k, select(mine, index, scalar(x.x.shape[axis], _INT)))
    drops = prim.again(type(prim), mode=type(prim.mode).FILL_OR_DROP)
    (y,) = grid.apply(drops, [_as_whole(grid, x, axis), index, grid.lay(updates, free)])
    return [grid.part(y.x, x.shape, y.with_axis(axis, names))]


def _scatter_by_updates(prim: Any, grid: Any, parts: Sequence[Any]) -> list | None:
    """Each member's updates of its own copy, put together; no larger a copy than the updates."""
    x, indices, updates = parts
    n, together = prim.dimension_numbers, _TOGETHER.get(prim.update_kind)
    outer = [d for d in range(updates.ndim) if d not in n.update_window_dims]
    k = next((k for k, d in enumerate(outer) if updates.cut[d] or indices.cut[k]), None)
    if k is None or k in n.scatter_indices_batching_dims or together is None:
        return None
    d = outer[k]
    names, x = updates.cut[d] or indices.cut[k], _whole_but(prim, grid, parts, None)
    taken = {m for c in x.cut for m in c}
    adds, even = together == "sum", updates.shape[d] % grid.count(names) == 0
    if not even or x.aval.size > updates.aval.size or not taken.isdisjoint(names):
        return None
    if adds and x.x.dtype == np.bool_:
        return None
    indices = grid.lay(indices, grid.beside(indices, k, names))
    updates = grid.lay(updates, grid.beside(updates, d, names))
    indices = grid.along_one(indices, k, indices.x.shape[k], ())
    updates = grid.along_one(updates, d, updates.x.shape[d], ())
    nothing = -0.0 if dtypes.is_inexact(x.x.dtype) else 0
    into = grid.part(full(x.x.shape, nothing, x.x.dtype), x.shape, x.cut) if adds else x
    (y,) = grid.apply(prim, [into, indices, updates])
    total = grid.part(grid.reduced(y.x, together, names), y.shape, y.cut)
    return grid.apply(add, [x, total]) if adds else [total]


def dynamic_slice(prim: Any, grid: Any, parts: Sequence[Any]) -> list | None:
    """No more elements along the axis than a member has, from those who have them."""
    x, *starts = parts
    sizes = prim.slice_sizes
    axis = next(k for k in range(x.ndim) if x.cut[k] and sizes[k] != x.shape[k])
    m, b, names = sizes[axis], x.x.shape[axis], x.cut[axis]
    if m > b or not m or not grid.can_sum(x.x.dtype):
        return None
    first = _inside(grid, x, axis, starts[axis].x, m)
    piece = grid.sliced(
        grid.padded(x.x, axis, m - 1, m - 1), axis, add(first, scalar(m - 1, _INT)), m
    )
    at = add(Iota(axis, _INT, piece.shape)(), first)
    here = and_(ge(at, scalar(0, _INT)), lt(at, scalar(b, _INT)))
    found = grid.total(select(here, piece, full(piece.shape, 0, piece.dtype)), names)
    shape = (*x.shape[:axis], m, *x.shape[axis + 1 :])
    return grid.apply(prim, [grid.part(found, shape, x.with_axis(axis, ())), *starts])


def dynamic_update(prim: Any, grid: Any, parts: Sequence[Any]) -> list:
    """Each member's part of what is updated."""
    x, update, *starts = parts
    sizes = zip(x.shape, update.shape)
    axis = next(k for k, (n, m) in enumerate(sizes) if n != m and (x.cut[k] or update.cut[k]))
    if not x.cut[axis]:
        update = grid.gather(update, axis)
        return grid.apply(prim, [x, update, *starts])
    names, m, b = x.cut[axis], update.shape[axis], x.x.shape[axis]
    # Whole along the axis, by whatever names it is cut there.
    cut = [() if k == axis or set(c) & set(names) else c for k, c in enumerate(update.cut)]
    update = grid.lay(update, tuple(cut))
    first = _inside(grid, x, axis, starts[axis].x, m)
    piece = grid.sliced(grid.padded(update.x, axis, b, b), axis, sub(scalar(b, _INT), first), b)
    shape = (*update.shape[:axis], x.shape[axis], *update.shape[axis + 1 :])
    moved = grid.part(piece, shape, update.with_axis(axis, names))
    (made,) = grid.apply(prim, [x, moved, *starts])
    at = sub(Iota(axis, _INT, made.x.shape)(), first)
    here = and_(ge(at, scalar(0, _INT)), lt(at, scalar(m, _INT)))
    return [grid.part(select(here, made.x, grid.lay(x, made.cut).x), x.shape, made.cut)]


# --- what they share ------------------------------------------------------------------------------


def _names(p: Any) -> set:
    return {n for names in p.cut for n in names}


def _bad(prim: Any, parts: Sequence[Any]) -> list[int]:
    """The axes of the operand that are cut, and would have to be whole."""
    rule = prim.sharding(*[p.aval for p in parts])
    return [k for k, (n, f) in enumerate(zip(parts[0].cut, rule.operands[0])) if n and f is None]


def _axis(prim: Any, parts: Sequence[Any], indexed: Sequence[int], sizes: Any) -> int | None:
    """An axis along which indices choose single elements of parts."""
    return next((k for k in _bad(prim, parts) if k in indexed and sizes[k] == 1), None)


def _whole_but(prim: Any, grid: Any, parts: Sequence[Any], axis: int | None) -> Any:
    """The operand, of whose axes that would have to be whole at most one is cut."""
    bad = [k for k in _bad(prim, parts) if k != axis]
    x = parts[0]
    return grid.lay(x, tuple([() if k in bad else c for k, c in enumerate(x.cut)]))


def _as_whole(grid: Any, x: Any, axis: int) -> Any:
    """A member's part, as if there were no more along an axis."""
    shape = (*x.shape[:axis], x.x.shape[axis], *x.shape[axis + 1 :])
    return grid.part(x.x, shape, x.with_axis(axis, ()))


def _own(grid: Any, x: Any, axis: int, indices: Any, k: int, clips: bool) -> tuple:
    """Indices within this member's part, whether they are, and whether they are anybody's."""
    n, last = x.shape[axis], indices.ndim - 1
    entry = slice_axis(indices.x, k, k + 1, last)
    i = ConvertElementType(_INT)(reshape(entry, entry.shape[:-1]))
    none = scalar(0, _INT)
    if clips:
        i = min_(max_(i, none), scalar(n - 1, _INT))
    good = and_(ge(i, none), lt(i, scalar(n, _INT)))
    own = sub(i, _first(grid, x, axis))
    mine = and_(good, and_(ge(own, none), lt(own, scalar(x.x.shape[axis], _INT))))
    return own, mine, good


def _clipped(indices: Any, most: Sequence[int]) -> Any:
    """Index vectors whose entries are from 0 to these."""
    wide = ConvertElementType(_INT)(indices.x)
    last = as_array(np.array(most, _INT))
    bound = [
        Broadcast(wide.shape, (wide.ndim - 1,))(b) for b in (full((len(most),), 0, _INT), last)
    ]
    return type(indices)(min_(max_(wide, bound[0]), bound[1]), indices.shape, indices.cut)


def _first(grid: Any, x: Any, axis: int) -> Array:
    """Where this member's part begins along an axis."""
    number = ConvertElementType(_INT)(grid.number(x.cut[axis]))
    return mul(number, scalar(x.x.shape[axis], _INT))


def _with(indices: Any, k: int, entry: Array) -> Any:
    """Index vectors with another entry."""
    last, n = indices.ndim - 1, indices.shape[-1]
    wide = ConvertElementType(_INT)(indices.x)
    pieces = [slice_axis(wide, 0, k, last), reshape(entry, (*entry.shape, 1))]
    pieces.append(slice_axis(wide, k + 1, n, last))
    pieces = [p for p in pieces if p.shape[last]]
    made = pieces[0] if len(pieces) == 1 else Concatenate(last)(*pieces)
    return type(indices)(made, indices.shape, indices.cut)


def _inside(grid: Any, x: Any, axis: int, start: Array, size: int) -> Array:
    """Where a box of this size begins, moved inside the whole, from the begin of this part."""
    i = ConvertElementType(_INT)(start)
    i = min_(max_(i, scalar(0, _INT)), scalar(x.shape[axis] - size, _INT))
    return sub(i, _first(grid, x, axis))


__all__ = ["dynamic_slice", "dynamic_update", "gather", "scatter"]
