"""Cumulative reductions: blocks scan tiles of rows in shared memory; columns are scanned by a thread each.

The threads of a block load a tile side by side, and each combines consecutive elements of it; the totals
are scanned by all of them, each thread goes through its elements again from where they begin, and what is
stored of them is stored side by side. Short rows share a block. Long rows that are few are cut in parts:
first what each adds up to, then each part again, after those before it. The order in which numbers are
combined is the sizes' alone: the same bits from run to run.

Source: Sengupta et al. 2007 (reduce, scan, scan again); Hillis & Steele 1986 (totals of threads).
Legal when: iterations meet in carries only, which associative operations make.
"""

from math import prod

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import affine, traversal
from fnx.lowering.ir.expressions import depends_on, replacing
from fnx.lowering.ir.kernel import Barrier, Buffer, Eval, If, Let, Loop, LoopKind, Stmt, Store
from fnx.lowering.ir.number_formats import KIND, itemsize

from . import combining, independence, reductions, rows
from .plan import Axes, Scheduling, Tile

_ZERO, _ONE = scalar.size(0), scalar.size(1)


def scheduled(scheduler: Scheduling, axes: Axes, body: list[Stmt], name: str, note: str) -> bool:
    """Make kernels of rows or columns that are scanned; False, and nothing, where they are short."""
    if len(body) != 1:
        return _apart(scheduler, axes, body, name, note)
    if not isinstance(body[0], Loop):
        return False
    s, limits, count = body[0], scheduler.limits, prod(int(n.attr) for _, n in axes)
    operations = combining.associative(s) if _is_scan(scheduler, s) else None
    if operations is None:
        return False
    n = independence.extent(s)
    if axes and not _is_along(s):
        return _by_columns(scheduler, axes, s, operations, name, note)
    if n < limits.scan or count * n < limits.parallel:
        return False
    tile = _tile(scheduler, s, n)
    tiles = -(-n // tile.length)
    if tiles == 1 or count >= limits.scan_rows:
        _Rows(scheduler, axes, s, operations, tile, (1, tiles)).launch(s.init, name, note)
        return True
    per = -(-tiles // limits.blocks)
    parts, length = -(-tiles // per), per * tile.length
    again = _Rows(scheduler, axes, s, operations, tile, (parts, per))
    totals = reductions.part_of(s, again.part, scalar.counter("j", length), parts, length)
    totals.kind, totals.reassociate = LoopKind.THREAD, True
    place = lambda p: scalar.add(scalar.mul(_linear(axes), scalar.size(parts)), p)
    cut: Axes = [*axes, (again.part, scalar.size(parts))]
    buffers = _totals(scheduler, "block", cut, operations, totals, place(again.part), name, note)
    again.launch(s.init, name, f"{note}, part by part", (buffers, place))
    return True


def _apart(scheduler: Scheduling, axes: Axes, body: list[Stmt], name: str, note: str) -> bool:
    """Kernels of what is made of rows before and after they are scanned; False where none is."""
    if not axes or any(type(s) not in traversal.REWRITTEN for s in traversal.statements(body)):
        return False
    if any(isinstance(s, Eval) for s in body):  # values that outlive what they were loaded from
        return False
    is_scan = [_is_long_scan(scheduler, s) for s in body]
    if not any(is_scan):
        return False
    groups: list[list[Stmt]] = []
    for k, s in enumerate(body):
        if k == 0 or is_scan[k] or is_scan[k - 1]:
            groups.append([])
        groups[-1].append(s)
    count = prod(int(n.attr) for _, n in axes)
    for group in rows.in_memory(scheduler, groups, _linear(axes), count):
        for i, n in reversed(axes):
            group = [Loop(i, n, group, kind=LoopKind.VECTORIZED)]
        scheduler.statement(group[0], name, note)
    return True


def _is_long_scan(scheduler: Scheduling, s: Stmt) -> bool:
    """Whether a row is scanned that threads share."""
    if not isinstance(s, Loop) or not _is_scan(scheduler, s, of_rows=True):
        return False
    long_enough = independence.extent(s) >= scheduler.limits.scan
    return long_enough and _is_along(s) and combining.associative(s) is not None


def _is_scan(scheduler: Scheduling, s: Loop, of_rows: bool = False) -> bool:
    """Whether statements of a loop see partial results, and else touch nothing of other iterations.

    `of_rows`: they may have rows on their stack.
    """
    if not s.carries or s.extent.op not in ("size", "const"):
        return False
    inner = list(traversal.statements(s.body))
    if any(isinstance(x, Loop) or type(x) not in traversal.REWRITTEN for x in inner):
        return False
    if not of_rows and any(b.space == "private" for b in traversal.buffers(inner)):
        return False
    plain = Loop(s.index, s.extent, s.body)
    return combining.sees_carries(s) and bool(
        independence.parallel([plain], s.body, scheduler.halves)
    )


def _is_along(s: Loop) -> bool:
    """Whether something is read or written side by side along a loop."""
    places = [e.args[0] for e in traversal.nodes(s.body) if e.op == "load"]
    places += [x.index for x in s.body if isinstance(x, Store)]
    return any(affine.is_along(p, s.index) for p in places)


def _linear(axes: Axes) -> Expr:
    """The number of an iteration among all those of axes."""
    sizes = tuple(int(n.attr) for _, n in axes)
    return scalar.linear_index(tuple(i for i, _ in axes), sizes)


# --- rows -----------------------------------------------------------------------------------------


def _tile(scheduler: Scheduling, s: Loop, n: int) -> Tile:
    """The tiles of rows of n elements; shared memory has two totals of each thread, and ends, too."""
    limits = scheduler.limits
    size = sum(itemsize(_kept(c.dtype)) for c in s.carries)
    return Tile.of(limits, n, min(limits.scan_items, limits.shared // (size * limits.threads) - 3))


def _kept(dtype: str) -> str:
    """The dtype of partial results in shared memory."""
    return "float32" if KIND[dtype] == "h" else dtype


class _Rows:
    """A kernel that scans rows, or parts of so many tiles of rows: (parts, tiles of a part)."""

    def __init__(
        self,
        scheduler: Scheduling,
        axes: Axes,
        s: Loop,
        operations: list[str],
        tile: Tile,
        parts: tuple[int, int],
    ):
        self.scheduler, self.axes, self.loop, self.operations = scheduler, axes, s, operations
        self.tile, (self.parts, self.per) = tile, parts
        self.n, self.count = independence.extent(s), prod(int(n.attr) for _, n in axes)
        threads = scheduler.limits.threads
        self.threads = threads
        self.blocks = -(-self.count * self.parts // tile.rows)
        self.thread, self.block = scalar.counter("t", threads), scalar.counter("b", self.blocks)
        self.part = scalar.counter("p", self.parts)
        self.kinds = [_kept(c.dtype) for c in s.carries]
        self.neutral = [
            combining.identity(o, d) for o, d in zip(operations, self.kinds, strict=True)
        ]
        self.tiles = self._shared("tile", tile.rows * (tile.length + 1))
        self.sums = self._shared("sums", 2 * threads)
        self.own, self.lane = self._divided(self.thread, tile.lanes, tile.rows)
        self.base = scalar.mul(self.own, scalar.size(tile.length + 1))

    def _shared(self, name: str, size: int) -> list[Buffer]:
        return [Buffer(f"{name}{k}", d, size, "shared") for k, d in enumerate(self.kinds)]

    @staticmethod
    def _divided(number: Expr, n: int, count: int) -> tuple[Expr, Expr]:
        """Quotient and remainder of one of n * count numbers."""
        return scalar.divmod_size(number, n) if count > 1 else (_ZERO, number)

    def combined(self, a: list[Expr], b: list[Expr]) -> list[Expr]:
        return [combining.combined(o, x, y) for o, x, y in zip(self.operations, a, b, strict=True)]

    # --- places ------------------------------------------------------------------------------------

    def unit(self, own: Expr) -> Expr:
        """The number of a row of the tile among all parts of all rows."""
        return scalar.add(scalar.mul(self.block, scalar.size(self.tile.rows)), own)

    def row_of(self, unit: Expr, is_inside: bool = False) -> tuple[Expr, Expr]:
        """A row and the part of it; of the last one for those beyond, if they may be."""
        if self.count * self.parts % self.tile.rows and not is_inside:
            unit = scalar.apply("min", unit, scalar.size(self.count * self.parts - 1))
        return self._divided(unit, self.parts, self.count)

    def indices(self, row: Expr) -> dict[Expr, Expr]:
        """The indices of the axes of a row."""
        found: dict[Expr, Expr] = {}
        for i, n in reversed(self.axes[1:]):
            row, found[i] = scalar.divmod_size(row, int(n.attr))
        return found | {i: row for i, _ in self.axes[:1]}

    def element(
        self, e: Expr, number: Expr, is_inside: bool = False
    ) -> tuple[dict[Expr, Expr], Expr, Expr]:
        """The indices of a tile's e-th element, where it is not beyond, and its place in the tile.

        The indices of those beyond are some element's, unless they are known to be inside.
        """
        length, last = self.tile.length, self.n - 1
        own, column = self._divided(e, length, self.tile.rows)
        unit = self.unit(own)
        row, part = self.row_of(unit, is_inside)
        first = scalar.add(scalar.mul(part, scalar.size(self.per)), number)
        at = scalar.add(scalar.mul(first, scalar.size(length)), column)
        inside = scalar.const(True, "bool")
        if self.count * self.parts % self.tile.rows:
            inside = scalar.compare("lt", unit, scalar.size(self.count * self.parts))
        if self.parts * self.per * length != self.n:
            inside = scalar.logical_and(inside, scalar.compare("le", at, scalar.size(last)))
            at = at if is_inside else scalar.apply("min", at, scalar.size(last))
        if self.loop.reverse:
            at = scalar.sub(scalar.size(last), at)
        place = scalar.add(scalar.mul(own, scalar.size(length + 1)), column)
        return self.indices(row) | {self.loop.index: at}, inside, place

    def each(self, body) -> Loop:  # type: ignore[no-untyped-def]
        """A loop over the elements of a tile, side by side: body(e) are the statements of one."""
        k = scalar.counter("k", self.tile.items)
        e = scalar.add(scalar.mul(k, scalar.size(self.threads)), self.thread)
        return Loop(k, scalar.size(self.tile.items), body(e))

    # --- statements --------------------------------------------------------------------------------

    def launch(self, init: list[Expr], name: str, note: str, totals=None) -> None:  # type: ignore[no-untyped-def]
        """The kernel, whose rows begin with `init`; `totals`: where it is what parts come to."""
        row, part = self.row_of(self.unit(self.own))
        anew = replacing(self.indices(row) | {self.part: part})
        starts = [scalar.cast(anew(e), d) for e, d in zip(init, self.kinds, strict=True)]
        now, first, following = ([scalar.var(d, "c") for d in self.kinds] for _ in range(3))
        number = scalar.counter("q", self.per) if self.per > 1 else _ZERO
        body = [self._taken(number), Barrier(), *self._scanned(now), Barrier()]
        body += [self._given(number)]
        if self.per > 1:
            body += [Let(following, self._at(self.tile.length)), Barrier()]
            body = [Loop(number, scalar.size(self.per), body, now, first, following)]
        else:
            body = [Let(now, first), *body, Barrier()]  # before the next rows' tile
        body = [self._begin(first, starts, part, anew, totals), *body]
        axes: Axes = [(self.block, scalar.size(self.blocks))]
        self.scheduler.launch("block", axes, body, name, note, thread=self.thread)

    def _begin(self, first, starts, part, anew, totals) -> Stmt:  # type: ignore[no-untyped-def]
        """What a row begins with, and a part of it after those before, whose totals all threads combine."""
        if totals is None:
            return Let(first, starts)
        buffers, place = totals
        j = scalar.counter("j", self.parts)
        terms = [scalar.cast(anew(scalar.load(b, place(j), b.dtype)), d)
                 for b, d in zip(buffers, self.kinds, strict=True)]  # fmt: skip
        return Loop(j, part, [], first, starts, self.combined(first, terms), LoopKind.THREAD, True)

    def _at(self, place: Expr | int) -> list[Expr]:
        """What the tile has of a thread's row at a place."""
        offset = scalar.size(place) if isinstance(place, int) else place
        at = scalar.add(self.base, offset)
        return [scalar.load(b, at, b.dtype) for b in self.tiles]

    def _terms(self, names: dict[Expr, Expr]) -> tuple[list[Stmt], list[Expr]]:
        """What the carries of an element are combined with, and statements that come first."""
        anew, unknown = replacing(names), set(self.loop.carries)
        body: list[Stmt] = []
        for s in self.loop.body:
            if isinstance(s, Let) and not depends_on(s.values, unknown):
                body.append(traversal.rewritten(s, anew))
            elif isinstance(s, Let):
                unknown.update(s.variables)
        return body, [anew(e) for e in combining.terms(self.loop)]

    def _taken(self, number: Expr) -> Stmt:
        """Load the elements of a tile, what changes nothing for those beyond."""

        def one(e: Expr) -> list[Stmt]:
            names, inside, place = self.element(e, number)
            before, terms = self._terms(names)
            values = [
                scalar.select(inside, scalar.cast(x, d), neutral)
                for x, d, neutral in zip(terms, self.kinds, self.neutral, strict=True)
            ]
            at = scalar.add(place, _ONE)
            return [*before, *(Store(b, at, v) for b, v in zip(self.tiles, values, strict=True))]

        return self.each(one)

    def _scanned(self, now: list[Expr]) -> list[Stmt]:
        """Scan a tile in its place; what it begins with, `now`, goes before its elements."""
        items = scalar.size(self.tile.items)
        first = scalar.add(scalar.mul(self.lane, items), _ONE)
        k = scalar.counter("k", self.tile.items)
        mine = self._at(scalar.add(first, k))
        total, partial, found = ([scalar.var(d, "a") for d in self.kinds] for _ in range(3))
        added = self.combined(total, mine)
        body: list[Stmt] = [Loop(k, items, [], total, self.neutral, added)]
        start: list[Expr] = now
        if self.tile.lanes > 1:
            rounds, before = self._before(total)
            body += rounds
            is_first = scalar.compare("eq", self.lane, _ZERO)
            pairs = zip(now, self.combined(now, before), strict=True)
            start = [scalar.select(is_first, a, b) for a, b in pairs]
        stores = [
            Store(b, scalar.add(self.base, scalar.add(first, k)), v)
            for b, v in zip(self.tiles, found, strict=True)
        ]
        again: list[Stmt] = [Let(found, self.combined(partial, mine)), *stores]
        body.append(Loop(k, items, again, partial, start, found))
        is_first = scalar.compare("eq", self.lane, _ZERO)
        begins: list[Stmt] = [Store(b, self.base, c) for b, c in zip(self.tiles, now, strict=True)]
        return [*body, If(is_first, begins, [])]

    def _before(self, total: list[Expr]) -> tuple[list[Stmt], list[Expr]]:
        """What the threads of a row before each come to: rounds of additions at twice the distance."""
        threads, t = scalar.size(self.threads), self.thread
        rounds = self.tile.lanes.bit_length() - 1
        sums = lambda at: [scalar.load(b, at, b.dtype) for b in self.sums]
        put = lambda at, xs: [Store(b, at, x) for b, x in zip(self.sums, xs, strict=True)]
        x, new = ([scalar.var(d, "x") for d in self.kinds] for _ in range(2))
        distance, half = scalar.var("int64", "d"), scalar.var("int64", "h")
        reaches = scalar.compare("ge", self.lane, distance)
        back = scalar.select(reaches, distance, _ZERO)
        other = sums(scalar.add(half, scalar.sub(t, back)))
        values = [
            scalar.select(reaches, a, b) for a, b in zip(self.combined(other, x), x, strict=True)
        ]
        target = scalar.sub(threads, half)
        body: list[Stmt] = [Let(new, values), *put(scalar.add(target, t), new), Barrier()]
        loop = Loop(
            scalar.counter("r", rounds),
            scalar.size(rounds),
            body,
            [distance, half, *x],
            [scalar.const(1, "int64"), scalar.const(0, "int64"), *total],
            [scalar.add(distance, distance), target, *new],
        )
        last = scalar.apply("max", scalar.sub(t, _ONE), _ZERO)
        offset = scalar.size(rounds % 2 * self.threads)
        return [*put(t, total), Barrier(), loop], sums(scalar.add(last, offset))

    def _given(self, number: Expr) -> Stmt:
        """The statements of the loop, with partial results out of the tile."""

        def one(e: Expr) -> list[Stmt]:
            names, inside, place = self.element(e, number, is_inside=True)
            after = scalar.add(place, _ONE)
            for c, y, b in zip(self.loop.carries, self.loop.yields, self.tiles, strict=True):
                names[c] = scalar.cast(scalar.load(b, place, b.dtype), c.dtype)
                names[y] = scalar.cast(scalar.load(b, after, b.dtype), c.dtype)
            anew = replacing(names)
            body = [traversal.rewritten(s, anew) for s in self.loop.body]
            return body if inside.op == "const" else [If(inside, body, [])]

        return self.each(one)


# --- parts ----------------------------------------------------------------------------------------


def _by_columns(
    scheduler: Scheduling, axes: Axes, s: Loop, operations: list[str], name: str, note: str
) -> bool:
    """Parts of columns, each a thread's; False, and nothing, where columns are many or short."""
    limits, n, columns = (
        scheduler.limits,
        independence.extent(s),
        prod(int(m.attr) for _, m in axes),
    )
    length = max(limits.scan_part, -(-n * columns // (limits.blocks * limits.threads)))
    count = -(-n // length)
    if columns >= limits.rows or count < limits.scan_parts:
        return False
    part = scalar.counter("p", count)
    place = lambda p: scalar.add(scalar.mul(p, scalar.size(columns)), _linear(axes))
    cut: Axes = [(part, scalar.size(count)), *axes]
    within = scalar.counter("j", length)
    totals = reductions.part_of(s, part, within, count, length)
    buffers = _totals(scheduler, "flat", cut, operations, totals, place(part), name, note)
    j = scalar.counter("j", count)
    terms = [scalar.var(c.dtype, "t") for c in s.carries]
    inner: list[Stmt] = [Let(terms, [scalar.load(b, place(j), b.dtype) for b in buffers])]
    inner += [Store(b, place(j), c) for b, c in zip(buffers, s.carries, strict=True)]
    yields = [
        combining.combined(o, c, t) for o, c, t in zip(operations, s.carries, terms, strict=True)
    ]
    begins: Stmt = Loop(j, scalar.size(count), inner, s.carries, s.init, yields)
    for index, extent in reversed(axes):
        begins = Loop(index, extent, [begins])
    scheduler.statement(begins, name, f"{note}, where parts begin")
    again = reductions.part_of(s, part, within, count, length)
    again.init = [scalar.load(b, place(part), b.dtype) for b in buffers]
    scheduler.launch("flat", cut, [again], name, f"{note}, part by part")
    return True


def _totals(scheduler, shape, axes, operations, loop, place, name, note):  # type: ignore[no-untyped-def]
    """Make a kernel of what each part adds up to, at `place` of the buffers that are given."""
    loop.body = [x for x in loop.body if isinstance(x, Let)]
    loop.init = [
        combining.identity(o, c.dtype) for o, c in zip(operations, loop.carries, strict=True)
    ]
    size = prod(int(n.attr) for _, n in axes)
    buffers = [scheduler.temporary(c.dtype, size) for c in loop.carries]
    stores = [Store(b, place, c) for b, c in zip(buffers, loop.carries, strict=True)]
    scheduler.launch(shape, axes, [loop, *stores], name, f"{note}, parts")
    return buffers
