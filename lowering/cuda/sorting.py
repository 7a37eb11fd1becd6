"""Rows sorted, and the first elements of sorted rows, by many threads: passes of merges, a kernel each."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from fnx.core import recipe, scalar
from fnx.core.scalar import Expr
from fnx.lowering.generate.values import Value
from fnx.lowering.ir.kernel import If, Loop, LoopKind, Stmt, Store
from fnx.lowering.routines import comparators as order
from fnx.lowering.routines import sort as by_one_thread
from fnx.lowering.routines.batched_matrices import finish, place
from fnx.lowering.routines.merge_sort import SortedRows, with_index

from .kernels import merging
from .kernels.thresholds import LIMITS

_ZERO = scalar.size(0)
Put = Callable[[tuple[Expr, ...], Expr, Sequence[Expr]], list[Stmt]]


def sort(builder: Any, r: recipe.Library, outs: list[Value]) -> None:
    """Operands sorted along an axis by the first ones of them, stably."""
    axis, keys = r.params
    shape = r.operands[0].shape
    if shape[axis] < LIMITS.sorted or 0 in shape:
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
    if shape[axis] < LIMITS.sorted or 0 in shape or not k:
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
        stores: list[Stmt] = [
            Store(p.buffer, p.position(out.shape, index), v)
            for p, out, v in zip(places, outs, values, strict=True)
        ]
        if count == rows.n:
            return stores
        return [If(scalar.compare("lt", i, scalar.size(count)), stores, [])]

    _passes(builder, rows, into_results)
    for out in outs:
        finish(builder, out)


def _passes(builder: Any, rows: SortedRows, last: Put) -> None:
    """Merge runs of 1, 2, 4, ... elements, from one half of work memory to the other, then into results."""
    total = rows.n * prod(rows.others)
    corner = [_ZERO] * len(rows.others)
    kinds = [e.dtype for e in builder.evaluated(lambda: rows.values(corner, _ZERO))]
    buffers = [builder.new_buffer(d, 2 * total) for d in kinds]
    middle = merging.passes(rows.n) - 2

    def place_in(start: Expr, row: Any, i: Expr) -> Expr:
        return scalar.add(start, scalar.linear_index((*row, i), (*rows.others, rows.n)))

    def into(start: Expr) -> Put:
        return lambda row, i, values: [
            Store(b, place_in(start, row, i), v) for b, v in zip(buffers, values, strict=True)
        ]

    def out_of(start: Expr) -> Callable:
        return lambda row, i: [scalar.load(b, place_in(start, row, i), b.dtype) for b in buffers]

    def one(width: Expr, source: Expr, target: Expr) -> list[Stmt]:
        return [_merge(builder, rows, out_of(source), width, into(target))]

    size = scalar.const(1, "int64"), scalar.const(2 << middle, "int64")
    end = scalar.size(middle % 2 * total)
    for note, stmt in (
        ("elements merged", _merge(builder, rows, rows.values, size[0], into(_ZERO))),
        ("runs merged", merging.loop(middle, 2, total, one)),
        ("the last runs merged", _merge(builder, rows, out_of(end), size[1], last)),
    ):
        builder.emit_nest(["sort"], [stmt], [], note=f"{list(rows.shape)} {note}")


def _merge(builder: Any, rows: SortedRows, read: Callable, width: Expr, put: Put) -> Stmt:
    """One pass, as a kernel of its own."""
    row = tuple(scalar.counter("t", n) for n in rows.others)
    i = scalar.counter("i", rows.n)
    body: list[Stmt] = builder.evaluated(
        lambda: merging.placed(
            rows.n,
            width,
            i,
            lambda at: read(row, at),
            rows.less,
            lambda at, values: put(row, at, values),
        )
    )
    for index, n in reversed([*zip(row, rows.others, strict=True), (i, rows.n)]):
        body = [Loop(index, scalar.size(n), body, kind=LoopKind.VECTORIZED)]
    return body[0]
