"""Updates in place, and cumulative reductions: nests whose iterations read what earlier ones wrote.

Source: destination-passing style (Shaikhha et al. 2017); copy elision where the operand is dead.
Legal in place when: nobody reads the old array after the update (`planning/equation_order.py` lets the
other readers go first). Costs: a copy of the array where that does not hold.
"""

from math import prod
from typing import Any

from fnx.core import policy, recipe, scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import affine, dependence, traversal
from fnx.lowering.ir.expressions import buffers_read, depends_on, nodes, substitute
from fnx.lowering.ir.kernel import If, Loop, LoopKind, Stmt, Store
from fnx.lowering.ir.number_formats import KIND
from fnx.lowering.planning import fusion_policy
from fnx.lowering.transform import index_set_splitting

from .generation import Generation
from .values import Inlined, Materialized, Scalars, Value, static_indices

_NOTHING = (frozenset(), 0)  # the terms of an index that is zero
_NARROW = frozenset(d for d, kind in KIND.items() if kind in "hs")  # not to be rounded in between


def update(
    builder: Generation, r: recipe.Update, inputs: list[Value], out: Value, name: str
) -> None:
    """Scatter and its kin: in place where the operand dies."""
    operand: Value = r.operand  # type: ignore[assignment]
    if builder.target.is_small(out.shape) and prod(r.shape) * out.size <= policy.REGISTER_UPDATES:
        builder.settle(operand)
        builder.settle_registers(out, builder.evaluated(lambda: _in_registers(r, operand, out)))
        return
    if not isinstance(operand.state, (Scalars, Materialized)):
        _store_operand(builder, operand, inputs, out)
    for h in inputs:  # values and indices are read while memory is written: have them ready
        if h is not operand and not isinstance(h.state, Scalars) and _reads(builder, h, operand):
            if not _reads_own_places(builder, r, operand):
                builder.store(h)
    place = place_of_update(builder, operand, out)
    _set_aside(builder, r, inputs, place)
    body = _rounds(builder, r, place, out.shape)
    if _is_written_out(r):
        builder.block += body
    else:
        first = body[0]
        if (
            r.box is not None
            and isinstance(first, Loop)
            and traversal.work(body) >= builder.machine.nest_work
        ):
            first.kind = first.kind.shared()
        builder.emit_nest([name], body, [], note=f"{list(r.shape)} {name}")
    out.state = place
    if builder.target.is_small(out.shape):
        builder.load_registers(out)


def _store_operand(builder: Generation, operand: Value, inputs: list[Value], out: Value) -> None:
    """Put what is updated into memory: the result's, if nobody else reads it."""
    if operand.last_use <= builder.scope.position and operand.destination is None:
        operand.destination, operand.preferred_buffer = (
            out.destination,
            operand.preferred_buffer or out.preferred_buffer,
        )
    if (
        operand.carry_buffer is not None
    ):  # let who reads the old carry not stand in the new one's way
        for h in inputs:
            if isinstance(h.state, Inlined) and fusion_policy.spreads(h.shape, operand.shape):
                if operand.carry_buffer.buffer in builder.sources(h):
                    builder.store(h)
    builder.store_reusing(operand)


def _is_written_out(r: recipe.Update) -> bool:
    return prod(r.shape) <= policy.UNROLLED_AXIS


def is_anew(builder: Generation, r: recipe.Update, inputs: list[Value], out: Value) -> bool:
    """Whether a box is better replaced by writing the whole array elsewhere, in one pass.

    It is if there is no array yet (zeros), or if most of it changes and the new elements are
    computed from the old ones, which could not be overwritten before the last of them is read.
    """
    operand: Value = r.operand  # type: ignore[assignment]
    if r.box is None or r.combine is not None or builder.target.is_small(out.shape):
        return False
    if isinstance(operand.state, Inlined):
        return operand.state.cost <= 1 or len(operand.consumers) == 1
    if not fusion_policy.is_bulk(r.shape, out.shape):
        return False
    if not (is_in_place(operand, out) and builder.dies(operand)):
        return True
    overwrites = any(_reads(builder, h, operand) for h in inputs if h is not operand)
    return overwrites and not _reads_own_places(builder, r, operand)


def _reads_own_places(builder: Generation, r: recipe.Update, operand: Value) -> bool:
    """Whether the new elements of a box read the array only where they are written themselves."""
    if r.box is None or not isinstance(operand.state, Materialized):
        return False
    index = tuple(scalar.size(0) if n == 1 else scalar.var("int64") for n in r.shape)
    axes = {id(i): k for k, i in enumerate(index) if i.op != "size"}
    written = operand.state.position(operand.shape, r.target(*index)[1])

    def here(position: Expr) -> bool:
        found = affine.linear(scalar.sub(position, written), axes)
        return (
            found is not None
            and not any(found[1].values())
            and dependence.terms(found[0]) == _NOTHING
        )

    value = builder.evaluated(lambda: r.value(*index))
    buffer = operand.state.buffer
    return all(here(e.args[0]) for e in nodes([value]) if e.op == "load" and e.attr is buffer)


def _set_aside(
    builder: Generation, r: recipe.Update, inputs: list[Value], place: Materialized
) -> None:
    """Copy operands that lie in the very place that is written, an array updated with itself."""
    if r.box is not None or 0 in r.shape:
        return
    index = tuple(scalar.var("int64") for _ in r.shape)
    found = builder.evaluated(lambda: (r.target(*index), r.value(*index)))
    (inside, where), value = found
    if place.buffer not in buffers_read([inside, *where, value]):
        return
    for h in dict.fromkeys(inputs):
        if _is_at(h, place):
            twin = h.twin()
            h.state = Materialized(builder.new_buffer(h.dtype, h.size))
            builder.store_into(twin, h.state)


def _reads(builder: Generation, h: Value, operand: Value) -> bool:
    if not isinstance(operand.state, Materialized):
        return False
    if isinstance(h.state, Materialized):
        return False
    return not isinstance(h.state, Inlined) or operand.state.buffer in builder.sources(h)


def place_of_update(builder: Generation, operand: Value, out: Value) -> Materialized:
    """The memory that is updated: the operand's own, or a copy."""
    if is_in_place(operand, out) and builder.dies(operand):
        builder.save_readers(operand.state.buffer)
        return operand.state
    place = out.destination or builder.new_stored(out)
    if _is_at(operand, place):  # it was stored there only to become the result
        builder.save_readers(place.buffer)
        return place
    builder.store_into(operand.twin(), place)
    return place


def _is_at(operand: Value, place: Materialized) -> bool:
    return isinstance(operand.state, Materialized) and operand.state.is_at(place)


def is_in_place(operand: Value, out: Value) -> bool:
    """Whether the operand lies where the result is to be."""
    state, destination = operand.state, out.destination or out.preferred_buffer
    if not isinstance(state, Materialized):
        return False
    return destination is None or state.is_at(destination)


def _in_registers(r: recipe.Update, operand: Value, out: Value) -> list[Expr]:
    assert isinstance(operand.state, Scalars)
    elements = list(operand.state.elements)
    for ix in static_indices(r.shape):
        inside, where = r.target(*ix)
        position = scalar.linear_index(where, out.shape)
        value = r.value(*ix)
        for k in range(len(elements)):
            here = scalar.logical_and(inside, scalar.compare("eq", position, scalar.size(k)))
            if here.op == "const" and not here.attr:
                continue
            new = value if r.combine is None else r.combine(elements[k], value)
            elements[k] = scalar.select(here, new, elements[k])
    return elements


def _rounds(
    builder: Generation, r: recipe.Update, place: Materialized, shape: tuple[int, ...]
) -> list[Stmt]:
    """The loops over all updates, in row-major order."""

    def at(index: tuple[Expr, ...]) -> list[Stmt]:
        inside, where = r.target(*index)
        position = place.position(shape, where)
        value = r.value(*index)
        if r.combine is not None:
            value = r.combine(scalar.load(place.buffer, position, place.buffer.dtype), value)
        store = Store(place.buffer, position, value)
        if inside.op == "const":
            return [store] if inside.attr else []
        return [If(inside, [store], [])]

    if _is_written_out(r):
        body = []
        for ix in static_indices(r.shape):
            body += builder.evaluated(lambda ix=ix: at(ix))
        return body
    index = tuple(scalar.size(0) if n == 1 else scalar.counter("u", n) for n in r.shape)
    dims = [(v, n) for v, n in zip(index, r.shape, strict=True) if n != 1]
    if (
        builder.target.updates_in_blocks
        and dims
        and dims[-1][1] >= policy.SCATTER_BLOCK
        and not r.unique
        and not _will_be_cut(builder, at, index)
    ):
        body = builder.evaluated(lambda: _blocks(builder, r, place, shape, index, *dims[-1]))
        if body:
            for var, n in reversed(dims[:-1]):
                body = [Loop(var, scalar.size(n), body)]
            return body
    body = builder.evaluated(lambda: at(index))
    inner = True
    for var, n in reversed(list(zip(index, r.shape, strict=True))):
        if n != 1:
            body = [
                Loop(var, scalar.size(n), body, kind=LoopKind.of(vectorized=inner and r.unique))
            ]
            inner = False
    if r.runs and isinstance(body[0], Loop) and body[0].index is index[0]:
        body[0].runs = True
    return body


def _will_be_cut(builder: Generation, at: Any, index: tuple[Expr, ...]) -> bool:
    """Whether the positions of a row run straight on, once its loop is cut in two."""
    var = index[-1]
    if not builder.depth or var.bounds is None:
        return False
    extent = scalar.size(int(var.bounds[1]) + 1)
    whole = Loop(var, extent, builder.evaluated(lambda: at(index)))
    if not all(isinstance(s, Store) for s in whole.body):
        return False
    return any(isinstance(s, Loop) and s.kind.vectorized for s in index_set_splitting.cut([whole]))


def _blocks(
    builder: Generation,
    r: recipe.Update,
    place: Materialized,
    shape: tuple[int, ...],
    index: tuple[Expr, ...],
    var: Expr,
    n: int,
) -> list[Stmt]:
    """Updates here and there, block by block: vectors of positions and values first, then memory.

    The updates themselves are one after another, since they may meet. Nothing is gained, and nothing
    returned, where positions are at a constant stride.
    """
    inside, where = r.target(*index)
    position, value = place.position(shape, where), r.value(*index)
    if affine.linear(position, {id(var): 0}) is not None or value.dtype in _NARROW:
        return []
    start = scalar.mul(block := scalar.var("int64", "b"), scalar.size(policy.SCATTER_BLOCK))
    lane = scalar.var("int64", "l")
    length = scalar.size(policy.SCATTER_BLOCK)
    if n % policy.SCATTER_BLOCK:
        length = scalar.apply("min", scalar.sub(scalar.size(n), start), length)
    nowhere = scalar.const(-1, "int64")
    exprs = [scalar.select(inside, position, nowhere), value]
    exprs = substitute(exprs, {var: scalar.add(start, lane)})
    stores: list[Stmt] = []
    buffered = []
    for e, varies in zip(exprs, (True, depends_on([value], [var])), strict=True):
        if varies:
            stack = builder.new_stack(e.dtype, policy.SCATTER_BLOCK)
            stores.append(Store(stack, lane, e))
            e = scalar.load(stack, lane, e.dtype)
        buffered.append(e)
    to, new = buffered
    if r.combine is not None:
        new = r.combine(scalar.load(place.buffer, to, place.buffer.dtype), new)
    update: list[Stmt] = [Store(place.buffer, to, new)]
    if inside.op != "const" or not inside.attr:
        update = [If(scalar.compare("ge", to, scalar.const(0, "int64")), update, [])]
    sweeps = [Loop(lane, length, stores, kind=LoopKind.VECTORIZED), Loop(lane, length, update)]
    return [Loop(block, scalar.size(-(-n // policy.SCATTER_BLOCK)), sweeps)]


def cumulative(builder: Generation, r: recipe.Cumulative, outs: list[Value], name: str) -> None:
    """Cumulative sums and their kin: accumulators in registers, or the row before in memory."""
    if 0 in r.shape:
        for out in outs:
            out.state = out.destination or builder.new_stored(out)
            if builder.target.is_small(out.shape):
                out.state = Scalars([])
        return
    if all(builder.target.is_small(out.shape) for out in outs):
        columns = builder.evaluated(lambda: _unrolled(r, len(outs)))
        for out, column in zip(outs, columns, strict=True):
            builder.settle_registers(out, column)
        return
    places = [out.destination or builder.new_stored(out) for out in outs]
    index = [scalar.size(0) if n == 1 else scalar.var("int64", "s") for n in r.shape]
    n = r.shape[r.axis]
    if builder.target.results_apart or all(m == 1 for m in r.shape[r.axis + 1 :]):
        body = builder.evaluated(lambda: _rows(r, places, index))
        order = [k for k in range(len(r.shape)) if k != r.axis]
    else:
        body = builder.evaluated(lambda: _planes(r, places, index, n))
        order = list(range(r.axis))
    for k in reversed(order):
        if r.shape[k] != 1:
            body = [Loop(index[k], scalar.size(r.shape[k]), body)]
    builder.emit_nest([name], body, [], note=f"{list(r.shape)} {name}")
    for out, place in zip(outs, places, strict=True):
        out.state = place
        if builder.target.is_small(out.shape):
            builder.load_registers(out)


def _unrolled(r: recipe.Cumulative, outs: int) -> list[list[Expr]]:
    accs: dict[tuple, Any] = {}
    made: dict[tuple, tuple[Expr, ...]] = {}
    points = static_indices(r.shape)
    for ix in reversed(points) if r.reverse else points:
        row = tuple(e.attr for k, e in enumerate(ix) if k != r.axis)
        accs[row] = r.combine(accs.get(row, r.init), r.fn(*ix))
        made[tuple(e.attr for e in ix)] = accs[row]
    return [[made[tuple(e.attr for e in ix)][k] for ix in points] for k in range(outs)]


def _rows(r: recipe.Cumulative, places: list[Materialized], index: list[Expr]) -> list[Stmt]:
    """Along the last axis: accumulators are carried by the loop."""
    accs = [scalar.var(e.dtype, "a") for e in r.init]
    nexts = list(r.combine(tuple(accs), r.fn(*index)))
    stores: list[Stmt] = [
        Store(p.buffer, p.position(r.shape, tuple(index)), e)
        for p, e in zip(places, nexts, strict=True)
    ]
    n = r.shape[r.axis]
    axis = index[r.axis] if n != 1 else scalar.var("int64", "s")
    return [Loop(axis, scalar.size(n), stores, accs, list(r.init), nexts, reverse=r.reverse)]


def _planes(
    r: recipe.Cumulative, places: list[Materialized], index: list[Expr], n: int
) -> list[Stmt]:
    """Along another axis: each plane is made from the one before, which is in memory."""
    inner = [k for k in range(r.axis + 1, len(r.shape)) if r.shape[k] != 1]
    first = index.copy()
    first[r.axis] = scalar.size(n - 1 if r.reverse else 0)

    def plane(at: list[Expr], accs: tuple[Expr, ...]) -> list[Stmt]:
        nexts = r.combine(accs, r.fn(*at))
        body: list[Stmt] = [
            Store(p.buffer, p.position(r.shape, tuple(at)), e)
            for p, e in zip(places, nexts, strict=True)
        ]
        vector = True
        for k in reversed(inner):
            body = [
                Loop(index[k], scalar.size(r.shape[k]), body, kind=LoopKind.of(vectorized=vector))
            ]
            vector = False
        return body

    start = plane(first, r.init)
    if n == 1:
        return start
    step = scalar.var("int64", "s")
    at, before = index.copy(), index.copy()
    if r.reverse:
        at[r.axis] = scalar.sub(scalar.size(n - 2), step)
        before[r.axis] = scalar.sub(scalar.size(n - 1), step)
    else:
        at[r.axis] = scalar.add(step, scalar.size(1))
        before[r.axis] = step
    accs = tuple(
        scalar.load(p.buffer, p.position(r.shape, tuple(before)), p.buffer.dtype) for p in places
    )
    return [*start, Loop(step, scalar.size(n - 1), plane(at, accs))]
