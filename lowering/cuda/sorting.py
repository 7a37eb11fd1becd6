"""Rows sorted, and the first elements of sorted rows, by many threads."""

from collections.abc import Sequence
from typing import Any

from fnx.core import recipe, scalar
from fnx.core.scalar import Expr
from fnx.lowering.generate.values import Value
from fnx.lowering.ir.kernel import Buffer, Stmt, Store
from fnx.lowering.routines import comparators as order
from fnx.lowering.routines import sort as by_one_thread
from fnx.lowering.routines.batched_matrices import finish, place
from fnx.lowering.routines.merge_sort import SortedRows, with_index

from .kernels import merging

_ZERO = scalar.size(0)


def sort(builder: Any, r: recipe.Library, outs: list[Value]) -> None:
    """Operands sorted along an axis by the first ones of them, stably."""
    axis, keys = r.params
    shape = r.operands[0].shape
    if shape[axis] < builder.target.limits.sorted or 0 in shape:
        by_one_thread.sort(builder, r, outs)
        return
    xs = [Value(h.shape, h.dtype, builder.store(h)) for h in r.operands]
    carried = [k for k, out in enumerate(outs) if k < keys or out.consumers]
    rows = SortedRows(shape, axis, [xs[k] for k in carried], order.by_keys(keys))
    _sorted(builder, rows, [outs[k] for k in carried], shape[axis])


def top_k(builder: Any, r: recipe.Library, outs: list[Value]) -> None:
    """The largest elements along an axis, in order, and where they were."""
    k, axis = r.params
    shape = r.operands[0].shape
    if shape[axis] < builder.target.limits.sorted or 0 in shape or not k:
        by_one_thread.top_k(builder, r, outs)
        return
    x = Value(shape, r.operands[0].dtype, builder.store(r.operands[0]))
    index = lambda *ix: scalar.cast(ix[axis], "int32")
    _sorted(builder, SortedRows(shape, axis, [x, index], order.descending), outs, k)


def _sorted(builder: Any, rows: SortedRows, outs: list[Value], count: int) -> None:
    """The first elements of sorted rows, as results."""
    places = [place(builder, out) for out in outs]

    def into_results(row: tuple[Expr, ...], i: Expr, values: Sequence[Expr]) -> list[Stmt]:
        index = with_index(row, rows.axis, i)
        return [
            Store(p.buffer, p.position(out.shape, index), v)
            for p, out, v in zip(places, outs, values, strict=True)
        ]

    corner = [_ZERO] * len(rows.others)
    kinds = [e.dtype for e in builder.evaluated(lambda: rows.values(corner, _ZERO))]
    sorting = merging.Sorting(
        rows.others, rows.n, kinds, rows.less, builder.target.limits, builder.new_buffer,
        lambda dtype, size: _shared(builder, dtype, size),
    )  # fmt: skip
    made = builder.evaluated(lambda: sorting.statements(rows.values, into_results, count))
    for note, stmt in made:
        builder.emit_nest(["sort"], [stmt], [], note=f"{list(rows.shape)} {note}")
    for out in outs:
        finish(builder, out)


def _shared(builder: Any, dtype: str, size: int) -> Buffer:
    """Memory of a block."""
    buffer = builder.new_stack(dtype, size)
    buffer.space = "shared"
    return buffer
