"""Elements by index: points, pieces, reshapes, reductions become scalars, inlined, or members of groups."""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise
from math import prod
from typing import Any

from fnx.core import policy, recipe, scalar
from fnx.core.jaxpr import Eqn, Var
from fnx.core.scalar import Expr
from fnx.lowering.ir import affine, traversal
from fnx.lowering.ir.expressions import buffers_read, nodes
from fnx.lowering.ir.kernel import Eval, Fill, Loop, LoopKind, Ref, Stmt, Store
from fnx.lowering.ir.number_formats import itemsize
from fnx.lowering.planning import fusion_policy

from . import boundary_regions, slice_update_fusion
from .fusion_groups import Reduction, squeezed
from .generation import Generation
from .values import Fused, Inlined, Materialized, NeedsFlush, Scalars, Value, static_indices


def point(builder: Generation, eqn: Eqn, r: recipe.Point, inputs: list[Value], out: Value) -> None:
    if builder.target.is_small(out.shape):
        builder.registers(out, r.fn)
        return
    own = eqn.prim.cost_of(*eqn.inputs).operations
    cost, regional = own, False
    if eqn.prim.name == "broadcast_in_dim" and fusion_policy.spreads(inputs[0].shape, out.shape):
        # Or the carry could not be overwritten with what reads this, or columns are read for each row.
        if _reads_carry(builder, inputs[0]) or _reads_column(builder, inputs[0]):
            builder.store(inputs[0])
    for h in inputs:
        if isinstance(h.state, Inlined):
            expands = h.size > 1 and out.size > h.size
            if h.state.cost > 1 and expands:
                builder.store(h)  # or each element would be computed many times
            else:
                cost += h.state.cost
                regional = regional or h.state.regional
    uses = len(out.consumers)
    once = cost > 0 and _is_compared(builder, out)
    if -1 not in out.consumers and out.destination is None and not once:
        short = cost <= policy.PULLED and fusion_policy.inlined(cost, uses)
        if short or _is_cheaper_again(r.fn, out, builder.machine.far_bytes):
            out.state = Inlined(r.fn, cost, inputs, regional)
            return
    builder.join(out, r.fn, eqn.prim.name, regional)


def _is_cheaper_again(fn: Callable[..., Expr], out: Value, far_bytes: int) -> bool:
    """Whether a large value costs less computed at each use than brought from memory."""
    if out.size * itemsize(out.dtype) < far_bytes:
        return False
    try:
        e = fn(*[scalar.size(0) if n == 1 else scalar.var("int64") for n in out.shape])
    except NeedsFlush:
        return False
    if len(buffers_read([e])) > policy.FAR_SOURCES:
        return False
    work = traversal.simple_work(e)
    return work is not None and work * len(out.consumers) <= policy.FAR_WORK


def _reads_carry(builder: Generation, h: Value) -> bool:
    """Whether a value pulls elements of an array that the loop would best overwrite."""
    places = builder.scope.wished
    if not places or not isinstance(h.state, Inlined):
        return False
    return not places.isdisjoint(builder.sources(h))


def _reads_column(builder: Generation, h: Value) -> bool:
    """Whether neighbours are pulled from places far apart."""
    if not builder.depth or not isinstance(h.state, Inlined):
        return False
    index = tuple(scalar.size(0) if n == 1 else scalar.var("int64") for n in h.shape)
    last = next((i for i in reversed(index) if i.op == "var"), None)
    for e in nodes([builder.evaluated(lambda: h(*index))]):
        if e.op == "load":
            at = affine.linear(e.args[0], {id(last): 0})
            if at is None or abs(at[1].get(0, 0)) > 1:
                return True
    return False


def _is_compared(builder: Generation, out: Value) -> bool:
    """Whether a value is compared for equality, with what others make of it.

    Where it is computed again, products and sums may be rounded once or twice. The largest element of
    a row would then not be equal to itself.
    """
    names = {builder.scope.eqns[k].prim.name for k in out.consumers if k >= 0}
    return len(out.consumers) > 1 and not names.isdisjoint(("eq", "ne"))


def reshape(builder: Generation, r: recipe.Reshape, out: Value) -> None:
    operand: Value = r.operand  # type: ignore[assignment]
    if builder.target.is_small(out.shape):
        builder.settle(operand)
        out.state = operand.state
        return
    same = squeezed(operand.shape) == squeezed(out.shape)
    in_line = builder.target.chooses_pieces and operand.ndim == 1
    if isinstance(operand.state, Inlined) and (same or in_line):
        shape = operand.shape
        state = operand.state

        def fn(*index: Expr) -> Expr:
            if not same:
                return state.read(shape, (scalar.linear_index(index, out.shape),))
            rest = iter([i for i, n in zip(index, out.shape, strict=True) if n != 1])
            zero = scalar.size(0)
            return state.read(shape, tuple(zero if n == 1 else next(rest) for n in shape))

        uses = len(out.consumers)
        if (
            -1 not in out.consumers
            and out.destination is None
            and builder.target.inlined(state.cost, uses)
        ):
            out.state = Inlined(fn, state.cost)
            return
    if out.destination is not None and isinstance(operand.state, (Inlined, Fused)):
        if operand.destination is None and isinstance(operand.state, Inlined):
            operand.destination = out.destination
    stored = builder.store(operand)
    out.state = Materialized(stored.buffer, stored.base, stored.owned)
    if out.destination is not None and not stored.is_at(out.destination):
        builder.store_into(out, out.destination)
        out.state = out.destination


def pieces(
    builder: Generation, eqn: Eqn, r: recipe.Pieces, inputs: list[Value], out: Value
) -> None:
    choose = chosen(r.pieces)
    if builder.target.is_small(out.shape):
        builder.registers(out, choose)
        return
    differ = [
        k
        for k in range(out.ndim)
        if any(p.lo[k] != r.pieces[0].lo[k] or p.hi[k] != r.pieces[0].hi[k] for p in r.pieces)
    ]
    stack = differ == [out.ndim - 1] and out.shape[-1] <= policy.UNROLLED_AXIS
    if (
        not stack
        and not builder.target.chooses_pieces
        and boundary_regions.are_thin(builder, r, inputs, out)
    ):
        cost = max([h.state.cost for h in inputs if isinstance(h.state, Inlined)], default=0)
        out.state = Inlined(choose, cost, inputs, regional=True)
        return
    if not stack and builder.target.chooses_pieces:
        side_by_side(builder, eqn, r, inputs, out)
        return
    for h in inputs:
        if isinstance(h.state, Inlined) and h.state.regional:
            builder.store(h)
    if stack and -1 not in out.consumers and out.destination is None:
        if _are_indices(builder, out):
            _store_dear(builder, inputs, len(out.consumers))
            out.state = Inlined(choose, 0)
            return
        if len(out.consumers) == 1:
            out.state = Inlined(choose, 2)
            return
    if stack:
        builder.join(out, choose, eqn.prim.name)
        return
    store_pieces(builder, eqn, r, out)


def side_by_side(
    builder: Generation, eqn: Eqn, r: recipe.Pieces, inputs: list[Value], out: Value
) -> None:
    """An array whose elements ask of which piece they are, pulled or one nest; else a nest a piece."""
    costs = [h.state.cost for h in inputs if isinstance(h.state, Inlined)]
    known = all(isinstance(h.state, (Inlined, Materialized, Scalars)) for h in inputs)
    few = len(r.pieces) <= policy.CHOSEN_PIECES and slice_update_fusion.chooses(
        builder, out, sum(costs)
    )
    if not (known and few):
        store_pieces(builder, eqn, r, out)
        return
    is_pulled = -1 not in out.consumers and out.destination is None
    if is_pulled and builder.target.inlined(1 + sum(costs), len(out.consumers)):
        out.state = Inlined(chosen(r.pieces), 1 + sum(costs), inputs)
    else:
        builder.join(out, chosen(r.pieces), eqn.prim.name)


def _store_dear(builder: Generation, values: list[Value], uses: int) -> None:
    """Store those that each reader had better not compute again, in one loop."""
    dear = []
    for h in values:
        if not isinstance(h.state, Inlined):
            dear.append(h)
        elif not builder.target.inlined(h.state.cost, uses):
            dear.append(h)
            h.destination = h.destination or builder.new_stored(h)
            builder.join(h, h.state.fn, "store", h.state.regional)
    for h in dear:
        builder.store(h)


def _are_indices(builder: Generation, out: Value) -> bool:
    """Whether columns are joined only to be indices: each reader takes them one after the other."""
    for k in out.consumers:
        e = builder.scope.eqns[k]
        values = builder.scope.values
        places = [n for n, a in enumerate(e.inputs) if type(a) is Var and values.get(a) is out]
        if places != [1] or not (e.prim.name == "gather" or e.prim.name.startswith("scatter")):
            return False
    return True


def store_pieces(builder: Generation, eqn: Eqn, r: recipe.Pieces, out: Value) -> None:
    stored = out.destination or builder.new_stored(out)
    for p in r.pieces:
        slice_update_fusion.store_part(builder, stored, out.shape, p, eqn.prim.name)
    # The pieces are stored by groups that are still open: close those before anyone reads.
    builder.flush_writers()
    out.state = stored


def reduction(
    builder: Generation, eqn: Eqn, r: recipe.Fold, inputs: list[Value], outs: list[Value]
) -> None:
    size = prod(r.shape)
    short = all(n <= policy.SMALL for n in r.shape)  # longer axes are run-time parameters
    if (
        short
        and all(builder.target.is_small(h.shape) for h in outs)
        and size <= policy.UNROLLED_WORK
    ):
        if all(
            builder.target.is_small(h.shape) or isinstance(h.state, Materialized) for h in inputs
        ):
            points = size * (4 if any("complex" in h.dtype for h in inputs) else 1)
            builder.unrolled += points
            if builder.unrolled <= policy.UNROLLED_IN_ALL or size <= policy.OUTLINED:
                _unrolled(builder, r, outs)
            elif builder.chooses:
                _unrolled(builder, r, outs)  # lanes are not for functions
            else:
                _outlined(builder, eqn, r, inputs, outs)
            return
    for h in inputs:
        if isinstance(h.state, Inlined) and h.state.cost > 1 and h.size > 1 and size > h.size:
            builder.store(h)
    if 0 in r.shape:
        for h, start in zip(outs, r.init, strict=True):
            _constant(builder, h, start)
        return
    keep = [k for k, n in enumerate(r.shape) if n != 1]
    axes = tuple(keep.index(k) for k in r.axes if r.shape[k] != 1)
    regional = any(isinstance(h.state, Inlined) and h.state.regional for h in inputs)
    builder.join_reduction(Reduction(r, outs, eqn.prim.name), axes, regional)


def _constant(builder: Generation, out: Value, value: Expr) -> None:
    """The results of a reduction over nothing."""
    if builder.target.is_small(out.shape):
        builder.settle_registers(out, [value] * out.size)
        return
    stored = out.destination or builder.new_stored(out)
    builder.emit(Fill(Ref(stored.buffer, stored.base), scalar.size(out.size), value))
    out.state = stored


def _unrolled(builder: Generation, r: recipe.Fold, outs: list[Value]) -> None:
    def make() -> list[list[Expr]]:
        columns: list[list[Expr]] = [[] for _ in outs]
        kept = [k for k in range(len(r.shape)) if k not in r.axes]
        for at in static_indices(tuple(r.shape[k] for k in kept)):
            for column, e in zip(columns, folded(r, kept, at), strict=True):
                column.append(e)
        return columns

    for out, column in zip(outs, builder.evaluated(make), strict=True):
        builder.settle_registers(out, column)


def _outlined(
    builder: Generation, eqn: Eqn, r: recipe.Fold, inputs: list[Value], outs: list[Value]
) -> None:
    """A reduction over small arrays in memory, as a kernel: the printer shares those that are equal."""
    builder.flush_all()
    before = [h.state for h in inputs]
    for h in inputs:
        h.state = builder.store(h)
    places = [h.destination or builder.new_stored(h) for h in outs]
    kept = [k for k in range(len(r.shape)) if k not in r.axes]
    spots = [scalar.var("int64", "i") for _ in kept]
    values = folded(r, kept, spots)
    body: list[Stmt] = [Eval(list(values))]
    for place, e in zip(places, values, strict=True):
        shape = tuple(r.shape[k] for k in kept)
        body.append(Store(place.buffer, place.position(shape, tuple(spots)), e))
    for k, spot in reversed(list(zip(kept, spots, strict=True))):
        body = [
            Loop(spot, scalar.size(r.shape[k]), body, kind=LoopKind.of(vectorized=k == kept[-1]))
        ]
    builder.emit_nest([eqn.prim.name], body, [], note=f"{list(r.shape)} {eqn.prim.name}")
    for h, state in zip(inputs, before, strict=True):
        h.state = state
    for h, place in zip(outs, places, strict=True):
        h.state = place
        builder.load_registers(h)


def folded(r: recipe.Fold, kept: list[int], at: Sequence[Expr]) -> tuple[Expr, ...]:
    """The results at an index of the axes that are kept."""
    terms = []
    for along in static_indices(tuple(r.shape[k] for k in r.axes)):
        index: list[Any] = [None] * len(r.shape)
        for k, i in zip([*kept, *r.axes], [*at, *along], strict=True):
            index[k] = i
        terms.append(r.fn(*index))
    if not terms:
        return r.init
    terms[0] = r.combine(r.init, terms[0])
    count = max(1, len(terms) // policy.CHAIN) if r.reassociate else 1
    terms = [reduce(r.combine, part) for part in _parts(terms, count)]
    while len(terms) > 1:  # chains, so that not each term waits for all those before it
        terms = [reduce(r.combine, part) for part in _parts(terms, -(-len(terms) // 2))]
    return terms[0]


def _parts(items: list, count: int) -> list[list]:
    """So many parts of a list, each of neighbours, equally long but for one."""
    cuts = [k * len(items) // count for k in range(count + 1)]
    return [items[low:high] for low, high in pairwise(cuts)]


def chosen(pieces: Sequence[recipe.Piece]) -> Callable[..., Expr]:
    """The element at an index, of the piece that holds it: decided now where it can be, else selected."""
    held = [p for p in pieces if all(low < high for low, high in zip(p.lo, p.hi, strict=True))]
    boxes = [(p.fn, _sides(p, held)) for p in reversed(held)]

    def at(*index: Expr) -> Expr:
        found: Expr | None = None
        for fn, sides in boxes:
            inside, clamped = scalar.const(True, "bool"), []
            for i, (lo, hi, is_whole) in zip(index, sides, strict=True):
                if i.op == "size":
                    if not lo <= i.attr < hi:
                        break
                elif not is_whole:
                    inside = scalar.logical_and(inside, scalar.compare("ge", i, scalar.size(lo)))
                    inside = scalar.logical_and(inside, scalar.compare("lt", i, scalar.size(hi)))
                    i = scalar.clamp(scalar.size(lo), i, scalar.size(hi - 1))
                clamped.append(i)
            else:
                if inside.op != "const" or inside.attr:
                    value = fn(*clamped)
                    found = value if found is None else scalar.select(inside, value, found)
        assert found is not None, "the pieces do not cover the index"
        return found

    return at


def _sides(p: recipe.Piece, pieces: list[recipe.Piece]) -> list[tuple[int, int, bool]]:
    """Where a piece lies along each axis, and whether none of the pieces reaches beyond it."""
    return [
        (lo, hi, all(q.lo[k] >= lo and q.hi[k] <= hi for q in pieces))
        for k, (lo, hi) in enumerate(zip(p.lo, p.hi, strict=True))
    ]
