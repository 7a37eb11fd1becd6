"""Dynamic-update-slice fusion: updates of boxes of an array, one after another, made in one pass.

The adjoint of a stencil adds shifted cotangents into an array of zeros. Each addition alone would
read and write the whole array again; together they are one nest over the part where the same of them
hold for all elements, and thin slabs around it. So are a field's new inner values and its boundaries.

Source: dynamic-update-slice fusion of XLA; loop partitioning (Halide) for the slabs.
Input: updates, each of which the next one alone reads, and elementwise equations that read the last.
Output: one value that is computed from its base and its boxes; stored when the chain ends.
Legal when: boxes are known; in place, where nothing in a box reads the array at another index.
Pays when: boxes cover much of an array that is not small; several follow one another.
Costs: code for each region of the cuts between boxes.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from fnx.core import policy, recipe, scalar
from fnx.core.jaxpr import Eqn
from fnx.core.scalar import Expr
from fnx.lowering.ir.expressions import buffers_read, depends_on
from fnx.lowering.ir.kernel import Buffer

from .generation import Generation
from .values import Inlined, Materialized, Shape, Value, static_indices

# low, high, value by index in it, whether added
Box = tuple[Shape, Shape, Callable[..., Expr], bool]


class Boxes(Inlined):
    """A value inlined from a base, and boxes of it that are replaced or added to, one by one.

    `origin` is the array that it starts from, if there is one in memory.
    """

    def __init__(
        self,
        base: Callable[..., Expr],
        boxes: list[Box],
        cost: int,
        shape: Shape,
        origin: Value | None = None,
        sources: Sequence[Value] | None = None,
    ):
        super().__init__(
            lambda *index: self.within((0,) * len(shape), shape, *index), cost, sources
        )
        self.base = base
        self.boxes = boxes
        self.origin = origin
        self.work = cost  # with what its boxes inline

    def within(self, least: Shape, most: Shape, *index: Expr) -> Expr:
        """An element whose index is known to lie in `least <= index < most`.

        A box that holds all of that, or nothing, needs no question; others are asked.
        """
        total = self.base(*index)
        for low, high, value, adds in self.boxes:
            inside = scalar.const(True, "bool")
            at = []
            for i, lo, hi, a, b in zip(index, low, high, least, most, strict=True):
                if i.op == "size":
                    a, b = i.attr, i.attr + 1
                clamped = i
                if b <= lo or hi <= a:
                    inside = scalar.const(False, "bool")
                    break
                if a < lo or b > hi:
                    inside = scalar.logical_and(inside, scalar.compare("ge", i, scalar.size(lo)))
                    inside = scalar.logical_and(inside, scalar.compare("lt", i, scalar.size(hi)))
                    clamped = scalar.clamp(scalar.size(lo), i, scalar.size(hi - 1))
                at.append(scalar.sub(clamped, scalar.size(lo)))
            if inside.op == "const" and not inside.attr:
                continue
            new = scalar.add(total, value(*at)) if adds else value(*at)
            total = scalar.select(inside, new, total)
        return total


class Mapped(Boxes):
    """What an elementwise operation, `fn`, makes of a chain: it joins the chain's one pass."""

    def __init__(self, chain: Value, fn: Callable[..., Expr], cost: int, inputs: Sequence[Value]):
        state = chain.state
        assert isinstance(state, Boxes)
        super().__init__(state.base, state.boxes, state.cost + cost, chain.shape, sources=inputs)
        self.made = fn
        self.part = (0,) * chain.ndim, chain.shape
        chain.state = Inlined(
            lambda *index: state.within(*self.part, *index), state.cost, state.sources
        )

    def within(self, least: Shape, most: Shape, *index: Expr) -> Expr:
        self.part = least, most  # what `fn` reads of the chain lies there, too
        return self.made(*index)


def mapped(builder: Generation, eqn: Eqn, inputs: list[Value], outs: list[Value]) -> Value | None:
    """A chain whose one reader, an elementwise equation, may join it rather than have it stored."""
    if (
        not eqn.prim.elementwise
        or len(outs) != 1
        or eqn.prim.cost_of(*eqn.inputs).operations > policy.CHEAP
    ):
        return None
    chains = [h for h in inputs if isinstance(h.state, Boxes)]
    if not chains or builder.scope.position in builder.scope.lanewise:
        return None
    chain = chains[0]
    origin = chain.state.origin  # type: ignore[union-attr]
    if origin is not None and isinstance(origin.state, Materialized) and builder.dies(origin):
        return None  # the chain is made in place
    alone = len(chain.consumers) == 1 and chain.destination is None
    if not alone or chain.shape != outs[0].shape:
        return None
    others = [h for h in inputs if h is not chain]
    if any(isinstance(h.state, Inlined) and not isinstance(h.state, Boxes) for h in others):
        return None  # it may read neighbours, before which the chain is not to wait
    if outs[0].destination is None and any(map(builder.dies, others)):
        return None  # the reader can take over the memory of another operand
    return chain


def map_chain(
    builder: Generation,
    eqn: Eqn,
    fn: Callable[..., Expr],
    chain: Value,
    inputs: Sequence[Value],
    out: Value,
) -> None:
    """Let an elementwise equation join a chain; store the result unless another one follows."""
    out.state = Mapped(chain, fn, eqn.prim.cost_of(*eqn.inputs).operations, inputs)
    if len(out.consumers) != 1 or -1 in out.consumers or out.destination is not None:
        store(builder, out)


def extends(
    builder: Generation, r: recipe.Update, operand: Value, out: Value, chained: bool
) -> bool:
    """Whether an update of a box can wait for more of its kind."""
    if r.box is None or builder.target.is_small(out.shape):
        return False
    if chained or isinstance(operand.state, Boxes):
        return True
    return r.combine is not None and isinstance(operand.state, Inlined) and operand.state.cost <= 1


def extend(builder: Generation, r: recipe.Update, inputs: Sequence[Value], out: Value) -> None:
    """Take one more box; store the result unless another update follows."""
    assert r.box is not None
    operand: Value = r.operand  # type: ignore[assignment]
    state = operand.state
    boxes = [*state.boxes] if isinstance(state, Boxes) else []
    base = state.base if isinstance(state, Boxes) else operand
    origin = state.origin if isinstance(state, Boxes) else operand
    cost = state.cost if isinstance(state, Inlined) else 0
    low, high = r.box
    if all(l < h for l, h in zip(low, high, strict=True)):  # it may be empty
        boxes.append((low, high, r.value, r.combine is not None))
    found = out.state = Boxes(base, boxes, cost + 1, out.shape, origin, inputs)
    found.work += sum(
        h.state.cost for h in inputs if h is not operand and isinstance(h.state, Inlined)
    )
    found.work += state.work - state.cost if isinstance(state, Boxes) else 0
    if len(out.consumers) != 1 or -1 in out.consumers or out.destination is not None:
        store(builder, out)


def settle(builder: Generation, value: Value) -> None:
    """End a chain: it is stored, or pulled where elements may ask in which boxes they are."""
    state = value.state
    assert isinstance(state, Boxes)
    in_memory = state.origin is None or isinstance(state.origin.state, Materialized)
    is_free = -1 not in value.consumers and value.destination is None and not in_memory
    if is_free and chooses(builder, value, state.work):
        if builder.target.inlined(state.work, len(value.consumers)):
            value.state = Inlined(state.fn, state.work, state.sources)
            return
    store(builder, value)


def chooses(builder: Generation, value: Value, work: int) -> bool:
    """Whether elements ask of which pieces they are, where that takes less than a nest for each piece."""
    most = policy.CHEAP if value.size <= policy.CHOSEN_SIZE else policy.CHEAP // 2
    return builder.target.chooses_pieces and work <= most


def pieces(r: recipe.Update, shape: Shape) -> recipe.Pieces:
    """The replacement of a box, as a value computed anew: the box, and the slabs around it."""
    assert r.box is not None
    low, high = r.box

    def inside(*index: Expr) -> Expr:
        return r.value(*(scalar.sub(i, scalar.size(lo)) for i, lo in zip(index, low, strict=True)))

    around = [recipe.Piece(lo, hi, r.operand) for lo, hi in recipe.around(shape, low, high)]
    return recipe.Pieces((recipe.Piece(low, high, inside), *around))


def store(builder: Generation, value: Value) -> None:
    """The nests of a chain: the largest part that no box's edge runs through, then the slabs around."""
    state = value.state
    assert isinstance(state, Boxes)
    shape = value.shape
    place = _own_place(builder, value, state) or value.destination or builder.new_stored(value)
    spans = [_longest(_cuts(state.boxes, k, 0, n)) for k, n in enumerate(shape)]
    low, high = (tuple(s[k] for s in spans) for k in (0, 1))
    regions = [((0,) * len(shape), shape)]
    most = all(h - l >= n // 2 for l, h, n in zip(low, high, shape, strict=True))
    if most and not chooses(builder, value, state.work):
        slabs = recipe.around(shape, low, high)
        regions = [(low, high), *(part for s in slabs for part in _split_last(state.boxes, *s))]
    for lo, hi in regions:
        part = recipe.Piece(lo, hi, partial(state.within, lo, hi))
        store_part(builder, place, shape, part, "boxes")
    builder.flush_writers()
    value.state = place


def _own_place(builder: Generation, result: Value, state: Boxes) -> Materialized | None:
    """The memory of the array that the chain starts from, if the chain may overwrite it."""
    origin = state.origin
    if origin is None or not isinstance(origin.state, Materialized) or not builder.dies(origin):
        return None
    place = origin.state
    wanted = result.destination or result.preferred_buffer
    if wanted is not None and not wanted.is_at(place):
        return None
    index = tuple(scalar.var("int64") for _ in result.shape)
    for low, _, value, _ in state.boxes:
        at = [scalar.sub(i, scalar.size(lo)) for i, lo in zip(index, low, strict=True)]
        if place.buffer in buffers_read([builder.evaluated(lambda v=value, at=at: v(*at))]):
            return None
    builder.flush_all()
    element = scalar.var(result.dtype)
    result.state = Inlined(lambda *index: element, 0)
    # Whatever the equation at work reads beside the result, if it is this that it reads, may be of the
    # origin. A sum of both cannot be computed before the one is there, nor after the other is gone.
    now = builder.scope.position in result.consumers
    readers = builder.readers(place.buffer, now)
    lost = depends_on([builder.element(h) for h in readers], [element])
    if not lost:
        builder.save_readers(place.buffer, now)
    result.state = state
    return None if lost else place


def _split_last(boxes: list[Box], lo: Shape, hi: Shape) -> list[tuple[Shape, Shape]]:
    """A slab cut at the boxes' bounds along the last axis: no lane of a vector differs then."""
    ends = _cuts(boxes, -1, lo[-1], hi[-1])
    return [((*lo[:-1], a), (*hi[:-1], b)) for a, b in pairwise(ends)]


def _cuts(boxes: list[Box], axis: int, least: int, most: int) -> list[int]:
    """The range of an axis, and the boxes' bounds within it."""
    bounds = {b[side][axis] for b in boxes for side in (0, 1)}
    return [least, *sorted(c for c in bounds if least < c < most), most]


def _longest(cuts: list[int]) -> tuple[int, int]:
    return max(pairwise(cuts), key=lambda span: span[1] - span[0])


def store_part(
    builder: Generation, place: Materialized, shape: Shape, part: recipe.Piece, name: str
) -> None:
    """Compute a box of an array of some shape in its place: now if it is small, else in a group."""
    extent = tuple(h - l for l, h in zip(part.lo, part.hi, strict=True))
    if 0 in extent:
        return

    def at(index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(scalar.add(i, scalar.size(l)) for i, l in zip(index, part.lo, strict=True))

    def value(*index: Expr) -> Expr:
        return part.fn(*at(index))

    def destination(*index: Expr) -> tuple[Buffer, Expr]:
        return place.buffer, place.position(shape, at(index))

    if builder.target.is_small(extent):
        for ix in static_indices(extent):
            builder.put(*destination(*ix), builder.evaluated(lambda ix=ix: value(*ix)))
    else:
        builder.member(extent, value, None, name, destination)
