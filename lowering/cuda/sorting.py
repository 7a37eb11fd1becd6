"""Sorting by many threads: runs are merged by ranks, every element by a thread of its own.

An element's place in two merged runs is its place in its own run and how many elements of the other run go
before it, which a binary search tells. Each pass doubles the runs, and is one kernel; equal elements of the
first run go first, so the order is stable.

Source: merging by ranks (Shiloach & Vishkin 1981).
"""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core import recipe, scalar
from fnx.core.scalar import Expr
from fnx.lowering.generate.values import Value
from fnx.lowering.ir.kernel import Loop, LoopKind, Stmt, Store, While
from fnx.lowering.routines import comparators as order
from fnx.lowering.routines import sort as by_one_thread
from fnx.lowering.routines.batched_matrices import finish, place
from fnx.lowering.routines.merge_sort import SortedRows, minimum, named_groups, with_index

from .kernels.thresholds import LIMITS

_ZERO, _ONE = scalar.size(0), scalar.size(1)
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
    places = {k: place(builder, outs[k]) for k in carried}
    rows = SortedRows(shape, axis, [xs[k] for k in carried], order.by_keys(keys))

    def into_results(row: tuple[Expr, ...], i: Expr, values: Sequence[Expr]) -> list[Stmt]:
        index = with_index(row, axis, i)
        return [
            Store(places[k].buffer, places[k].position(shape, index), v)
            for k, v in zip(carried, values, strict=True)
        ]

    _passes(builder, rows, into_results)
    for k in carried:
        finish(builder, outs[k])


def _passes(builder: Any, rows: SortedRows, last: Put) -> None:
    """Merge runs of 1, 2, 4, ... elements, from one half of work memory to the other."""
    total = rows.n
    for n in rows.others:
        total *= n
    corner = [_ZERO] * len(rows.others)
    kinds = [e.dtype for e in builder.evaluated(lambda: rows.values(corner, _ZERO))]
    halves = [[builder.new_buffer(d, total) for d in kinds] for _ in range(2)]
    read: Callable = rows.values
    width, target = 1, 0
    while width < rows.n:
        buffers = halves[target]

        def into_half(row: Any, i: Expr, values: Any, buffers: Any = buffers) -> list[Stmt]:
            at = scalar.linear_index((*row, i), (*rows.others, rows.n))
            return [Store(b, at, v) for b, v in zip(buffers, values, strict=True)]

        def from_half(row: Any, i: Expr, buffers: Any = buffers) -> list[Expr]:
            at = scalar.linear_index((*row, i), (*rows.others, rows.n))
            return [scalar.load(b, at, b.dtype) for b in buffers]

        _merge(builder, rows, read, width, last if 2 * width >= rows.n else into_half)
        read, width, target = from_half, 2 * width, 1 - target


def _merge(builder: Any, rows: SortedRows, read: Callable, width: int, put: Put) -> None:
    """One pass, as a kernel of its own."""
    row = tuple(scalar.counter("t", n) for n in rows.others)
    i = scalar.counter("i", rows.n)
    body: list[Stmt] = builder.evaluated(lambda: _element(rows, read, width, put, row, i))
    for index, n in reversed([*zip(row, rows.others, strict=True), (i, rows.n)]):
        body = [Loop(index, scalar.size(n), body, kind=LoopKind.VECTORIZED)]
    builder.emit_nest(["sort"], body, [], note=f"{list(rows.shape)} runs of {width} merged")


def _element(
    rows: SortedRows, read: Callable, width: int, put: Put, row: tuple[Expr, ...], i: Expr
) -> list[Stmt]:
    """Where an element goes."""
    n = scalar.size(rows.n)
    start = scalar.apply("and", i, scalar.const(-2 * width, "int64"))
    middle = minimum(scalar.add(start, scalar.size(width)), n)
    end = minimum(scalar.add(start, scalar.size(2 * width)), n)
    is_left = scalar.compare("lt", i, middle)
    (mine,), let = named_groups([read(row, i)])
    first = scalar.select(is_left, middle, start)  # of the other run
    low, high = scalar.var("int64", "l"), scalar.var("int64", "h")
    one = scalar.const(1, "int64")
    between = scalar.apply("shift_right_logical", scalar.add(low, high), one)
    (at,), let_at = named_groups([[between]])
    (other,), let_other = named_groups([read(row, at[0])])
    goes_before = order.either(
        scalar.logical_and(is_left, rows.less(other, mine)),
        scalar.logical_and(order.negated(is_left), order.negated(rows.less(mine, other))),
    )
    yields = [
        scalar.select(goes_before, scalar.add(at[0], _ONE), low),
        scalar.select(goes_before, high, at[0]),
    ]
    search = While(
        [],
        scalar.compare("lt", low, high),
        [let_at, let_other],
        [low, high],
        [first, scalar.select(is_left, end, middle)],
        yields,
    )
    own = scalar.sub(i, scalar.select(is_left, start, middle))
    place_ = scalar.add(scalar.add(start, own), scalar.sub(low, first))
    return [let, search, *put(row, place_, mine)]
