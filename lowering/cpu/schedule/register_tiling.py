"""Register tiling of sums of products: accumulators of a few rows of vectors stay in registers.

A convolution, whatever its layout, is a nest of loops in which both operands and the result lie at
constant strides. One kept axis, contiguous in an operand, becomes the lanes of vectors; a few steps
along other kept axes make a tile, which reuses what it loads: the accumulators are a small array on
the stack, indexed by constants only, that LLVM keeps in registers. Tiles at the end of an axis
overlap the one before, so that there are no remainders.

Source: unroll-and-jam and register blocking, Allen & Kennedy 2001, ch. 8.
Input: a `Products` recipe.
Output: a nest over tiles, inside it the loops that sum, in order.
Legal when: always; operands that are computed are stored first.
Pays when: always for these recipes.
Costs: an operand may be packed so that its lanes are contiguous.
"""

from dataclasses import replace
from math import prod

from fnx.core import recipe, scalar
from fnx.core.fast_dataclasses import dataclass
from fnx.core.scalar import Expr
from fnx.lowering.cpu.processor import features, thresholds
from fnx.lowering.generate import affine_views
from fnx.lowering.generate.generation import Generation
from fnx.lowering.generate.values import Materialized, Scalars, Shape, Value
from fnx.lowering.ir import affine
from fnx.lowering.ir.kernel import Buffer, Fill, Loop, LoopKind, Ref, Stmt, Store
from fnx.lowering.ir.number_formats import itemsize


@dataclass(frozen=True)
class Axis:
    """An axis of the iteration space: its length, and its stride in each array."""

    size: int
    left: int
    right: int
    out: int

    def continues(self, outer: "Axis") -> bool:
        """Whether `outer` counts on where this one ends, so that the two are one axis."""
        return all(
            a == b * self.size
            for a, b in ((outer.left, self.left), (outer.right, self.right), (outer.out, self.out))
        )


@dataclass(frozen=True, eq=False)
class Source:
    """Where an operand, or the result, is."""

    buffer: Buffer
    base: Expr


def products(builder: Generation, r: recipe.Products, out: Value) -> None:
    """The nest of a sum of products."""
    stored = out.destination or builder.new_stored(out)
    if 0 in r.shape[: r.kept]:
        out.state = Scalars([]) if builder.target.is_small(out.shape) else stored
        return
    if 0 in r.shape:
        zero = scalar.const(0, out.dtype)
        builder.emit(Fill(Ref(stored.buffer, stored.base), scalar.size(out.size), zero))
    else:
        left, right, axes = _analyse(builder, r, out)
        plan = _plan(axes, r.kept, out.dtype)
        if plan.packs:
            right, plan = _pack(builder, right, plan, out.dtype)
        _emit(builder, plan, left, right, stored, out)
    out.state = stored
    if builder.target.is_small(out.shape):
        builder.load_registers(out)


# --- what the loops look like ------------------------------------------------------------------


def _analyse(
    builder: Generation, r: recipe.Products, out: Value
) -> tuple[Source, Source, list[Axis]]:
    """The operands in memory, and the strides of each axis; operands that are computed are stored."""
    found = []
    for operand, element in zip(r.operands, (r.left, r.right), strict=True):
        view = _strides(builder, r.shape, element, out.dtype)
        if view is None:
            view = _stored_strides(builder, r.shape, operand, element, out.dtype)  # type: ignore
        assert view is not None, "an operand of Products is not read at constant strides"
        found.append(view)
    kept = [scalar.var("int64") for _ in r.shape[: r.kept]]
    position = scalar.linear_index(r.place(*kept), out.shape)
    linear = affine.linear(position, {id(v): k for k, v in enumerate(kept)})
    assert linear is not None
    axes = [
        Axis(n, found[0].strides[k], found[1].strides[k], linear[1].get(k, 0))
        for k, n in enumerate(r.shape)
    ]
    left, right = (Source(f.buffer, f.base) for f in found)
    return left, right, axes


def _stored_strides(
    builder: Generation, shape: Shape, operand: Value, element: object, dtype: str
) -> affine_views.View | None:
    place = builder.store(operand)
    kept = operand.state  # a small value stays in registers, for other readers
    operand.state = place
    view = _strides(builder, shape, element, dtype)
    operand.state = kept
    return view


def _strides(
    builder: Generation, shape: Shape, element: object, dtype: str
) -> affine_views.View | None:
    index = [scalar.var("int64") for _ in shape]
    e = builder.evaluated(lambda: element(*index))  # type: ignore[operator]
    if e.op != "load" or e.dtype != dtype:
        return None
    found = affine.linear(e.args[0], {id(v): k for k, v in enumerate(index)})
    if found is None:
        return None
    return affine_views.View(e.attr, found[0], tuple(found[1].get(k, 0) for k in range(len(shape))))


def _merged(axes: list[Axis]) -> list[Axis]:
    """Fewer, longer axes."""
    done: list[Axis] = []
    for a in axes:
        if a.size == 1:
            continue
        if done and a.continues(done[-1]):
            done[-1] = replace(a, size=a.size * done[-1].size)
        else:
            done.append(a)
    return done


@dataclass(frozen=True)
class Plan:
    """Which axis is in the lanes, how many lanes are computed, which steps make a tile."""

    kept: tuple[Axis, ...]
    summed: tuple[Axis, ...]
    lane: Axis
    lanes: int
    tile: tuple[tuple[Axis, int], ...]
    packs: bool  # the right operand is to be laid out anew, lanes last and filled up
    pieces: int  # of a tile, one after the other along the lanes' axis

    @property
    def points(self) -> list[tuple[int, int, int]]:
        """Offsets of a tile's rows in the arrays."""
        a, step = self.lane, self.lanes
        found = [(k * a.left, k * a.right, k * a.out) for k in range(0, self.pieces * step, step)]
        for a, n in self.tile:
            found = [
                (x + k * a.left, y + k * a.right, z + k * a.out)
                for x, y, z in found
                for k in range(n)
            ]
        return found


def _plan(axes: list[Axis], kept: int, dtype: str) -> Plan:
    inner = tuple(_merged(sorted(axes[kept:], key=lambda a: (-a.left, -a.right))))
    outer = _merged(sorted(axes[:kept], key=lambda a: (-a.out, -a.left)))
    width = features.vector_bits() // (8 * itemsize(dtype))
    one = Axis(1, 0, 0, 1)
    lane = max(outer, key=lambda a: _worth(a, width), default=one)
    columns = [a for a in outer if a.left == 0 and a.size > 1]
    packs = bool(columns) and _worth(lane, width) <= 1
    if packs:
        lane = max(columns, key=lambda a: a.size)
    elif not _worth(lane, width):
        lane = one
    lanes = _lanes(lane.size, width, packs)
    rest = tuple(a for a in outer if a is not lane)
    # A quarter of the registers is for what is read.
    room = 3 * features.vector_registers() // 4 // -(-lanes // width)
    page = thresholds.CPU.way // itemsize(dtype)
    tile = _tile(rest, lane, min(room, thresholds.TILE_ROWS), page)
    rows = prod(n for _, n in tile)
    pieces = 1 if packs else max(1, min(thresholds.TILE_CHAINS, room) // rows)
    if (
        lane.size < thresholds.LONG_TILES * pieces * lanes
    ):  # the last tile would repeat much of the one before
        pieces = 1
    return Plan(rest, inner, lane, lanes, tile, packs, pieces)


def _worth(a: Axis, width: int) -> int:
    """How well an axis would do in the lanes: contiguous in an operand, then in the result; long."""
    if max(a.left, a.right) != 1 or min(a.left, a.right) < 0 or a.size < 4:
        return 0
    if a.size < width and a.size & (a.size - 1):  # the last vector would repeat much of the first
        return 1
    return min(a.size, width) * (4 if a.out == 1 else 1) + (a.left == 0) + 1


def _lanes(n: int, width: int, packs: bool) -> int:
    if n >= 2 * width and (n % (2 * width) == 0 or n > 6 * width):
        return 2 * width
    if n >= width:
        return width
    power = 1
    while power * 2 <= n:
        power *= 2
    return power if power == n or not packs else 2 * power


def _tile(rest: tuple[Axis, ...], lane: Axis, room: int, page: int) -> tuple[tuple[Axis, int], ...]:
    """Steps along one or two axes, best along which the vector that is loaded stays the same."""

    def reuses(a: Axis) -> bool:
        return (a.left if lane.left else a.right) == 0 or (a.left if lane.right else a.right) == 0

    found: list[tuple[Axis, int]] = []
    for a in sorted(rest, key=lambda a: (reuses(a), a.size), reverse=True):
        if room < 2 or len(found) == 2 or not reuses(a):
            break
        meets = any(n and n % page == 0 for n in (a.left, a.right))
        steps = _steps(a.size, min(room, thresholds.CACHE_WAYS) if meets else room)
        if steps > 1:
            found.append((a, steps))
            room //= steps
    return tuple(found)


def _steps(n: int, most: int) -> int:
    """How many steps make the least of overlaps and of loads an operation."""
    if n <= most:
        return n

    def speed(t: int) -> float:
        return n / (-(-n // t) * t) * t / (t + 2)

    return max(range(2, most + 1), key=speed)


# --- a copy of the right operand ---------------------------------------------------------------


def _pack(builder: Generation, right: Source, plan: Plan, dtype: str) -> tuple[Source, Plan]:
    """The right operand with the lanes last, filled up with zeros to whole vectors."""
    padded = max(plan.lane.size, plan.lanes)
    axes = [a for a in (*plan.kept, *plan.summed) if a.right]
    shape = (*(a.size for a in axes), padded)
    last = scalar.size(plan.lane.size - 1)

    def element(*index: Expr) -> Expr:
        lane = scalar.apply("min", index[-1], last) if padded > plan.lane.size else index[-1]
        at = scalar.add(right.base, scalar.mul(lane, scalar.size(plan.lane.right)))
        for a, i in zip(axes, index, strict=False):
            at = scalar.add(at, scalar.mul(i, scalar.size(a.right)))
        value = scalar.load(right.buffer, at, dtype)
        if padded == plan.lane.size:
            return value
        within = scalar.compare("le", index[-1], last)
        return scalar.select(within, value, scalar.const(0, dtype))

    copy = Value(shape, dtype)
    copy.destination = builder.new_stored(copy)
    builder.join(copy, element, "pack")
    place = builder.store(copy)
    strides = {a: prod(shape[k + 1 :]) for k, a in enumerate(axes)}

    def moved(a: Axis) -> Axis:
        return replace(a, right=strides.get(a, 0))

    plan = replace(
        plan,
        kept=tuple(map(moved, plan.kept)),
        summed=tuple(_merged([moved(a) for a in plan.summed])),
        lane=replace(plan.lane, right=1),
        tile=tuple((moved(a), n) for a, n in plan.tile),
    )
    return Source(place.buffer, place.base), plan


# --- statements --------------------------------------------------------------------------------


def _emit(
    builder: Generation, plan: Plan, left: Source, right: Source, stored: Materialized, out: Value
) -> None:
    lanes, points = plan.lanes, plan.points
    # Each row has a buffer of its own: LLVM need not find out that they are apart.
    acc = [builder.new_stack(out.dtype, lanes) for _ in points]
    starts = [left.base, right.base, stored.base]
    loops: list[tuple[Expr, int]] = []
    steps = dict(plan.tile)
    for a in (*plan.kept, plan.lane):
        own = lanes * plan.pieces if a is plan.lane else steps.get(a, 1)
        i = scalar.var("int64", "i")
        loops.append((i, -(-a.size // own)))
        at = scalar.mul(i, scalar.size(own))
        if a.size % own and a.size > own:
            at = scalar.apply("min", at, scalar.size(a.size - own))
        for k, stride in enumerate((a.left, a.right, a.out)):
            starts[k] = scalar.add(starts[k], scalar.mul(at, scalar.size(stride)))
    body = [_cleared(acc, lanes, out.dtype)]
    body += _sums(plan, points, acc, left, right, starts, out.dtype)
    body.append(_written(plan, points, acc, stored.buffer, starts[2], out.dtype))
    for i, n in reversed(loops):
        body = [Loop(i, scalar.size(n), body)]
    sums = [a.size for a in plan.summed]
    first = body[0]
    assert isinstance(first, Loop)
    first.kind = first.kind.shared(out.size * prod(sums) >= builder.machine.parallel_work)
    builder.emit_nest(["products"], body, [], f"{list(out.shape)} sums of {sums} products")


def _lane_loop(lanes: int, make: object) -> Loop:
    lane = scalar.var("int64", "l")
    # Unrolled before the vectoriser comes, a short loop would not become one vector.
    rolled = lanes <= thresholds.CPU.vector // 8 and lanes & (lanes - 1) == 0
    extent = scalar.const(lanes, "int64")
    return Loop(lane, extent, make(lane), kind=LoopKind.VECTORIZED, rolled=rolled)  # type: ignore[operator]


def _cleared(acc: list[Buffer], lanes: int, dtype: str) -> Stmt:
    zero = scalar.const(0, dtype)
    return _lane_loop(lanes, lambda lane: [Store(row, lane, zero) for row in acc])


def _plus(e: Expr, n: int) -> Expr:
    """An offset that is part of the code, so that it can be part of an address."""
    return scalar.add(e, scalar.const(n, "int64")) if n else e


def _sums(
    plan: Plan,
    points: list[tuple[int, int, int]],
    acc: list[Buffer],
    left: Source,
    right: Source,
    starts: list[Expr],
    dtype: str,
) -> list[Stmt]:
    x, y = starts[:2]
    loops = []
    for a in plan.summed:
        k = scalar.var("int64", "k")
        loops.append((k, a.size))
        x = scalar.add(x, scalar.mul(k, scalar.size(a.left)))
        y = scalar.add(y, scalar.mul(k, scalar.size(a.right)))

    def add(lane: Expr) -> list[Stmt]:
        stmts: list[Stmt] = []
        for row, (dx, dy, _) in zip(acc, points, strict=True):
            a = _plus(scalar.add(x, lane) if plan.lane.left else x, dx)
            b = _plus(scalar.add(y, lane) if plan.lane.right else y, dy)
            product = scalar.mul(
                scalar.load(left.buffer, a, dtype), scalar.load(right.buffer, b, dtype)
            )
            stmts.append(Store(row, lane, scalar.add(scalar.load(row, lane, dtype), product)))
        return stmts

    body: list[Stmt] = [_lane_loop(plan.lanes, add)]
    for k, n in reversed(loops):
        body = [Loop(k, scalar.size(n), body)]
    return body


def _written(
    plan: Plan,
    points: list[tuple[int, int, int]],
    acc: list[Buffer],
    buffer: Buffer,
    start: Expr,
    dtype: str,
) -> Stmt:
    """The accumulators go to the result."""

    def put(lane: Expr) -> list[Stmt]:
        at = scalar.add(start, scalar.mul(lane, scalar.size(plan.lane.out)))
        return [
            Store(buffer, _plus(at, dz), scalar.load(row, lane, dtype))
            for row, (_, _, dz) in zip(acc, points, strict=True)
        ]

    lanes = min(plan.lanes, plan.lane.size)
    return _lane_loop(lanes, put)
