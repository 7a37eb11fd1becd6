"""sort and top_k: what moves together, in which order, and where the results go."""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core import policy, recipe, scalar
from fnx.core.scalar import Expr
from fnx.lowering.generate.generation import Generation
from fnx.lowering.generate.values import Inlined, Scalars, Shape, Value, static_indices
from fnx.lowering.ir.kernel import If, Stmt, Store, While

from . import comparators as order
from .batched_matrices import each_item, finish, loop, place, result
from .comparators import Values
from .merge_sort import (
    ONE,
    ZERO,
    Memory,
    SortedRows,
    minimum,
    named_groups,
    sort_in_memory,
    with_index,
)


def _in_registers(builder: Generation, shape: Shape, axis: int) -> bool:
    return builder.target.is_small(shape) and shape[axis] <= policy.SORTED_BY_NETWORK


def _ready(builder: Generation, h: Any, axis: int) -> Value:
    """An operand that may be read several times, by indices that are known where it will be."""
    if isinstance(h.state, Inlined) and h.state.cost <= policy.CHEAP:
        return h
    if isinstance(h.state, Scalars) and _in_registers(builder, h.shape, axis):
        return h
    return Value(h.shape, h.dtype, builder.store(h))


def sort(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    """Operands sorted along an axis by the first ones of them, stably."""
    axis, keys = r.params
    xs = [_ready(builder, h, axis) for h in r.operands]
    shape = xs[0].shape
    if shape[axis] < 2 or not xs[0].size:
        for x, out in zip(xs, outs, strict=True):
            result(builder, out, lambda *ix, x=x: x(*ix), "sort")
        return
    if _in_registers(builder, shape, axis):
        moved: list[Callable[..., Expr]] = [lambda *ix, x=x: x(*ix) for x in xs]
        _registers(builder, SortedRows(shape, axis, moved, order.by_keys(keys)), outs, shape[axis])
        return
    wanted = [k for k, out in enumerate(outs) if out.consumers]
    carried = [k for k in range(len(xs)) if k < keys or k in wanted]
    gathered = carried[keys:] if len(carried) > keys + 1 else []
    carried = carried[: len(carried) - len(gathered)]
    moved = [lambda *ix, x=xs[k]: x(*ix) for k in carried]
    if gathered:
        moved.append(lambda *ix: scalar.cast(ix[axis], "int32"))
    places = {k: place(builder, outs[k]) for k in wanted}
    rows = SortedRows(shape, axis, moved, order.by_keys(keys))
    if keys == 1 and rows.n > policy.SORTED_BY_NETWORK:
        rows.by_one_key(xs[0].dtype)

    def take(row: tuple[Expr, ...], read: Any) -> list[Stmt]:
        def element(i: Expr) -> list[Stmt]:
            values, index = read(i), with_index(row, axis, i)
            found = dict(zip(carried, values, strict=False))
            for k in gathered:
                found[k] = xs[k](*with_index(row, axis, scalar.cast(values[-1], "int64")))
            return [
                Store(places[k].buffer, places[k].position(shape, index), found[k]) for k in wanted
            ]

        return rows.repeat(shape[axis], element)

    sort_in_memory(builder, rows, take)
    for k in wanted:
        finish(builder, outs[k])


def _registers(builder: Generation, rows: SortedRows, outs: list[Value], k: int) -> None:
    """Lanes of few elements: the first k of each, sorted."""

    def make() -> list[list[Expr]]:
        found: list[dict] = [{} for _ in outs]
        for row in static_indices(rows.others):
            items = [rows.values(row, scalar.size(i)) for i in range(rows.n)]
            for i, values in enumerate(order.network(items, rows.less)[:k]):
                for column, e in zip(found, values, strict=True):
                    column[with_index(row, rows.axis, scalar.size(i))] = e
        return [
            [column[ix] for ix in static_indices(out.shape)]
            for column, out in zip(found, outs, strict=True)
        ]

    for out, elements in zip(outs, builder.evaluated(make), strict=True):
        builder.settle_registers(out, elements)


def top_k(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    """The largest elements along an axis, in order, and where they were."""
    k, axis = r.params
    x = _ready(builder, r.operands[0], axis)
    if not outs[0].size:
        for out in outs:
            place(builder, out)
            finish(builder, out)
        return
    moved: list[Callable[..., Expr]] = [
        x,
        lambda *ix: scalar.cast(ix[axis], "int32"),
    ]
    rows = SortedRows(x.shape, axis, moved, order.descending)
    if _in_registers(builder, x.shape, axis):
        _registers(builder, rows, outs, k)
        return
    places = [place(builder, out) for out in outs]

    def put(row: Sequence[Expr], i: Expr, values: Values) -> list[Stmt]:
        index = with_index(row, axis, i)
        return [
            Store(s.buffer, s.position(outs[0].shape, index), e)
            for s, e in zip(places, values, strict=True)
        ]

    if k <= policy.SORTED_BY_SELECTION:
        _select(builder, rows, k, put)
    else:
        rows.by_one_key(x.dtype, first=True)
        sort_in_memory(builder, rows, lambda row, read: [loop(k, lambda i: put(row, i, read(i)))])
    for out in outs:
        finish(builder, out)


def _select(builder: Generation, rows: SortedRows, k: int, put: Any) -> None:
    """One pass over each row, which keeps the k first elements so far, sorted."""
    memory = Memory(builder, rows, k)
    load, store = memory.load, memory.store
    last = scalar.size(k - 1)

    def one(row: tuple[Expr, ...]) -> list[Stmt]:
        def element(i: Expr) -> list[Stmt]:
            (new,), let = named_groups([rows.values(row, i)])
            room = scalar.compare("lt", i, scalar.size(k))
            enters = order.either(room, rows.less(new, load(last)))
            j = scalar.var("int64", "j")
            previous = scalar.sub(j, ONE)
            safe = scalar.node("max", "int64", (previous, ZERO))
            more = scalar.logical_and(scalar.compare("gt", j, ZERO), rows.less(new, load(safe)))
            shift = While([], more, store(j, load(previous)), [j], [minimum(i, last)], [previous])
            return [let, If(enters, [shift, *store(j, new)], [])]

        return [
            loop(rows.n, element),
            loop(k, lambda i: put(row, i, load(i))),
        ]

    each_item(builder, rows.others, one, "top_k")


ROUTINES = {"sort": sort, "top_k": top_k}
