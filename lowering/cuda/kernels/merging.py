"""Sorting by blocks of threads: runs in shared memory, then passes that merge two of them at a time.

A block sorts a tile of a row in shared memory: each thread some elements, then all of them merge runs, each
as many of the result. Of two runs that are merged, how many elements of the first are among the first d of
the result is found by a binary search (the merge path), so threads and blocks begin wherever they are to.
Passes over memory go tile by tile in the same way: a first kernel finds where tiles begin, a second one
merges each in shared memory. Equal elements of the first run go first: the order is stable.

All is loops with shared arrays, which one thread could run, too: a loop of a block's threads is over before
the next one begins.

Source: GPU Merge Path (Green, McColl & Bader 2012).
"""

from collections.abc import Callable, Sequence
from math import prod

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir.kernel import Buffer, If, Let, Loop, LoopKind, Stmt, Store, While
from fnx.lowering.ir.number_formats import itemsize

from .plan import Tile
from .thresholds import Limits

Values = Sequence[Expr]
Row = tuple[Expr, ...]
Read = Callable[[Row, Expr], Values]
Put = Callable[[Row, Expr, Values], list[Stmt]]
_ZERO, _ONE = scalar.size(0), scalar.size(1)


def _least(a: Expr, b: Expr) -> Expr:
    return scalar.apply("min", a, b)


def _most(a: Expr, b: Expr) -> Expr:
    return scalar.apply("max", a, b)


def _named(values: Values) -> tuple[list[Expr], Stmt]:
    names = [scalar.var(e.dtype, "v") for e in values]
    return names, Let(names, list(values))


def _of_one(b: Expr, t: Expr, body: list[Stmt]) -> list[Stmt]:
    """Statements of the first thread of all."""
    return [If(scalar.compare("eq", scalar.add(b, t), _ZERO), body, [])] if body else []


class Sorting:
    """The statements that sort rows of n elements; each is `kinds`, values that move together.

    `memory(dtype, size)` makes a buffer of work memory, `shared` one of a block.
    """

    def __init__(
        self,
        others: tuple[int, ...],
        n: int,
        kinds: Sequence[str],
        less: Callable[[Values, Values], Expr],
        limits: Limits,
        memory: Callable[[str, int], Buffer],
        shared: Callable[[str, int], Buffer],
    ):
        self.others, self.n, self.kinds, self.less = others, n, kinds, less
        self.limits, self.memory = limits, memory
        size = 2 * limits.threads * sum(map(itemsize, kinds))
        self.tile = Tile.of(limits, n, min(limits.sort_items, limits.shared // size))
        self.count = prod(others)
        self.tiles = -(-n // self.tile.length)
        self.half = self.tile.rows * self.tile.length
        self.runs = [shared(d, 2 * self.half) for d in kinds]

    def statements(self, read: Read, put: Put, count: int) -> list[tuple[str, Stmt]]:
        """Loops that sort, each with a note; `put` gets the first `count` of each row.

        Passes are a loop around two kernels, of which each leaves for the other how long runs are and where
        they lie: one of them reads what the other one writes.
        """
        if self.tiles == 1:
            return [("rows sorted", self._sorted(read, put, count, []))]
        total = self.count * self.n
        buffers = [self.memory(d, 2 * total) for d in self.kinds]
        splits = self.memory("int64", self.count * self.tiles)
        ours, theirs = self.memory("int64", 2), self.memory("int64", 2)
        passes = (self.tiles - 1).bit_length()
        place = lambda row, i: scalar.linear_index((*row, i), (*self.others, self.n))

        def out_of(start: Expr) -> Read:
            at = lambda row, i: scalar.add(start, place(row, i))
            return lambda row, i: [scalar.load(b, at(row, i), b.dtype) for b in buffers]

        def into(start: Expr) -> Put:
            at = lambda row, i: scalar.add(start, place(row, i))
            return lambda row, i, values: [
                Store(b, at(row, i), v) for b, v in zip(buffers, values, strict=True)
            ]

        known = lambda b: _named([scalar.load(b, _ZERO, "int64"), scalar.load(b, _ONE, "int64")])
        left = lambda b, width, start: [Store(b, _ZERO, width), Store(b, _ONE, start)]
        (width, start), let = known(ours)
        splitting = self._splits(let, width, out_of(start), splits, left(theirs, width, start))
        (width, start), let = known(theirs)
        other = scalar.sub(scalar.size(total), start)
        following = left(ours, scalar.add(width, width), other)
        merging = self._merged(let, width, out_of(start), splits, into(other), following)
        first = left(ours, scalar.const(1, "int64"), scalar.const(0, "int64"))
        r = scalar.counter("r", passes)
        return [
            ("tiles sorted", self._sorted(read, into(_ZERO), self.n, first)),
            ("tiles merged", Loop(r, scalar.size(passes), [splitting, merging])),
            ("sorted", self._copied(out_of(scalar.size(passes % 2 * total)), put, count)),
        ]

    def _copied(self, read: Read, put: Put, count: int) -> Stmt:
        """The first elements of all rows."""
        row = tuple(scalar.counter("t", n) for n in self.others)
        i = scalar.counter("i", count)
        body = put(row, i, read(row, i))
        for index, n in reversed([*zip(row, self.others, strict=True), (i, count)]):
            body = [Loop(index, scalar.size(n), body, kind=LoopKind.VECTORIZED)]
        return body[0]

    # --- rows and tiles ------------------------------------------------------------------------------

    def _row(self, number: Expr) -> Row:
        """The indices of a row, by its number."""
        found: list[Expr] = []
        for n in reversed(self.others[1:]):
            number, index = scalar.divmod_size(number, n)
            found.append(index)
        return (*([number] if self.others else ()), *reversed(found))

    def _tile_of(self, unit: Expr) -> tuple[Row, Expr]:
        """The row of a tile and where in it the tile is, by its number among all of them."""
        if self.count == 1:
            return self._row(_ZERO), unit
        row, number = scalar.divmod_size(unit, self.tiles)
        return self._row(row), number

    def _blocks(self, make: Callable[[Expr], list[Stmt]]) -> Stmt:
        """A kernel; make(b) are the loops of the b-th block's threads."""
        count = -(-self.count * self.tiles // self.tile.rows)
        b = scalar.counter("b", count)
        return Loop(b, scalar.size(count), make(b), kind=LoopKind.GRID_BLOCK)

    def _each(self, make: Callable[[Expr], list[Stmt]]) -> Stmt:
        """make(e) for each element of a block, side by side."""
        e = scalar.counter("e", self.half)
        return Loop(e, scalar.size(self.half), make(e), kind=LoopKind.THREAD)

    def _threads(self, make: Callable[[Expr], list[Stmt]]) -> Stmt:
        """make(t) for each thread of a block."""
        t = scalar.counter("t", self.limits.threads)
        return Loop(t, scalar.size(self.limits.threads), make(t), kind=LoopKind.THREAD)

    def _of_block(self, b: Expr, number: Expr, per_row: int) -> tuple[Expr, Expr, Expr, Expr]:
        """Of an element or thread: its row of the block, its place in it, the tile, how many that has."""
        own, place = (_ZERO, number)
        if self.tile.rows > 1:
            own, place = scalar.divmod_size(number, per_row)
        unit = scalar.add(scalar.mul(b, scalar.size(self.tile.rows)), own)
        last = self.count * self.tiles - 1
        length, n = scalar.size(self.tile.length), scalar.size(self.n)
        inside = _least(unit, scalar.size(last)) if (last + 1) % self.tile.rows else unit
        first = scalar.mul(self._tile_of(inside)[1], length)
        many = _least(length, scalar.sub(n, first)) if self.n % self.tile.length else length
        if inside is not unit:
            many = scalar.select(scalar.compare("eq", unit, inside), many, _ZERO)
        return own, place, inside, many

    def _load(self, at: Expr) -> list[Expr]:
        return [scalar.load(b, at, b.dtype) for b in self.runs]

    def _store(self, at: Expr, values: Values) -> list[Stmt]:
        return [Store(b, at, v) for b, v in zip(self.runs, values, strict=True)]

    # --- a tile in shared memory -----------------------------------------------------------------------

    def _sorted(self, read: Read, put: Put, count: int, also: list[Stmt]) -> Stmt:
        """Tiles sorted, each by itself; one thread does `also` something else."""
        lanes, last = self.tile.lanes, scalar.size(self.n - 1)
        length = scalar.size(self.tile.length)

        def of(b: Expr, e: Expr) -> tuple[Row, Expr, Expr]:
            _, place, unit, many = self._of_block(b, e, self.tile.length)
            row, number = self._tile_of(unit)
            i = scalar.add(scalar.mul(number, length), place)
            return row, i, scalar.compare("lt", place, many)

        def taken(b: Expr, e: Expr) -> list[Stmt]:
            row, i, _ = of(b, e)
            return self._store(e, read(row, _least(i, last)))

        def given(b: Expr, e: Expr, half: Expr) -> list[Stmt]:
            row, i, inside = of(b, e)
            if count < self.n:
                inside = scalar.logical_and(inside, scalar.compare("lt", i, scalar.size(count)))
            return [If(inside, put(row, i, self._load(scalar.add(half, e))), [])]

        def body(b: Expr) -> list[Stmt]:
            rounds = lanes.bit_length() - 1
            s, h = scalar.var("int64", "s"), scalar.var("int64", "h")
            merge = self._threads(lambda t: self._pair(b, t, s, h))
            target = scalar.sub(scalar.size(self.half), h)
            again = Loop(
                scalar.counter("r", max(rounds, 1)),
                scalar.size(rounds),
                [merge],
                [s, h],
                [scalar.const(1, "int64"), _ZERO],
                [scalar.add(s, s), target],
            )
            end = scalar.size(rounds % 2 * self.half)
            return [
                self._each(lambda e: taken(b, e)),
                self._threads(lambda t: [*self._inserted(b, t), *_of_one(b, t, also)]),
                *([again] if rounds else []),
                self._each(lambda e: given(b, e, end)),
            ]

        return self._blocks(body)

    def _mine(self, b: Expr, t: Expr) -> tuple[Expr, Expr, Expr, Expr]:
        """Of a thread: its lane, where its row begins, its place in the row, how many the row has."""
        own, lane, _, many = self._of_block(b, t, self.tile.lanes)
        start = scalar.mul(own, scalar.size(self.tile.length))
        return lane, start, scalar.mul(lane, scalar.size(self.tile.items)), many

    def _inserted(self, b: Expr, t: Expr) -> list[Stmt]:
        """The elements of a thread in order, by insertion."""
        items = scalar.size(self.tile.items)
        _, start, place, many = self._mine(b, t)
        first = scalar.add(start, place)
        count = _least(items, scalar.sub(many, place))
        k, at = scalar.counter("k", self.tile.items), scalar.var("int64", "j")
        new, let = _named(self._load(scalar.add(first, k)))
        before = self._load(scalar.sub(_most(at, scalar.add(first, _ONE)), _ONE))
        goes_on = scalar.logical_and(scalar.compare("gt", at, first), self.less(new, before))
        move = self._store(at, self._load(scalar.sub(at, _ONE)))
        search = While([], goes_on, move, [at], [scalar.add(first, k)], [scalar.sub(at, _ONE)])
        return [Loop(k, count, [let, search, *self._store(at, new)])]

    def _pair(self, b: Expr, t: Expr, s: Expr, half: Expr) -> list[Stmt]:
        """What a thread does of a round that merges runs of `s` threads, from one half to the other."""
        lane, start, place, many = self._mine(b, t)
        ends = self._ends(lane, s, self.tile.items, many)
        a, _, end = ends
        target = scalar.add(start, scalar.sub(scalar.size(self.half), half))
        return self._one(
            scalar.add(start, half),
            ends,
            _least(scalar.sub(place, a), scalar.sub(end, a)),
            _least(scalar.size(self.tile.items), scalar.sub(end, place)),
            scalar.add(target, place),
        )

    @staticmethod
    def _ends(number: Expr, width: Expr, items: int, many: Expr) -> tuple[Expr, Expr, Expr]:
        """Where the two runs of `width` begin and end that a lane, or a tile, is in."""
        at = lambda x: scalar.mul(x, scalar.size(items))
        twice = scalar.add(width, width)
        first = at(scalar.apply("and", number, scalar.apply("neg", twice)))
        middle = _most(_least(scalar.add(first, at(width)), many), first)
        return first, middle, _most(_least(scalar.add(first, at(twice)), many), first)

    def _one(
        self, base: Expr, ends: tuple[Expr, Expr, Expr], d: Expr, count: Expr, target: Expr
    ) -> list[Stmt]:
        """Merge two runs in shared memory from the d-th element of the result on, so many of it, if any.

        `ends` are where the first begins, where it ends and the second begins, and where that ends.
        """
        named, let = _named([*[scalar.add(base, x) for x in ends], d])
        a, b, end, start = named
        na, nb = scalar.sub(b, a), scalar.sub(end, b)
        search, first = self._path(
            lambda i: self._load(scalar.add(a, i)),
            lambda j: self._load(scalar.add(b, j)),
            na,
            nb,
            start,
        )
        i, j = scalar.var("int64", "i"), scalar.var("int64", "j")
        k = scalar.counter("k", self.tile.items)
        has_a, has_b = scalar.compare("lt", i, b), scalar.compare("lt", j, end)
        of_a, of_b = scalar.select(has_a, i, j), scalar.select(has_b, j, i)
        after = self.less(self._load(of_b), self._load(of_a))
        is_b, let_is = _named(
            [scalar.logical_and(has_b, scalar.apply("or", scalar.apply("not", has_a), after))]
        )
        taken = self._load(scalar.select(is_b[0], of_b, of_a))
        taken[0] = scalar.select(is_b[0], self._load(of_b)[0], self._load(of_a)[0])
        more = scalar.cast(is_b[0], "int64")
        merge = Loop(
            k,
            count,
            [let_is, *self._store(scalar.add(target, k), taken)],
            [i, j],
            [scalar.add(a, first), scalar.add(b, scalar.sub(start, first))],
            [scalar.sub(scalar.add(i, _ONE), more), scalar.add(j, more)],
        )
        return [let, search, merge]

    def _path(
        self, read_a: Callable, read_b: Callable, na: Expr, nb: Expr, d: Expr
    ) -> tuple[Stmt, Expr]:
        """A search for how many elements of the first of two runs are among the first d of both."""
        low, high = scalar.var("int64", "l"), scalar.var("int64", "h")
        half = scalar.add(low, high)
        half = scalar.apply("shift_right_arithmetic", half, scalar.const(1, "int64"))
        (middle,), let = _named([half])
        other = read_b(scalar.sub(scalar.sub(d, _ONE), middle))
        goes, let_goes = _named([scalar.apply("not", self.less(other, read_a(middle)))])
        search = While(
            [],
            scalar.compare("lt", low, high),
            [let, let_goes],
            [low, high],
            [_most(scalar.sub(d, nb), _ZERO), _least(d, na)],
            [
                scalar.select(goes[0], scalar.add(middle, _ONE), low),
                scalar.select(goes[0], high, middle),
            ],
        )
        return search, low

    # --- passes over memory ----------------------------------------------------------------------------

    def _splits(
        self, state: Stmt, width: Expr, read: Read, splits: Buffer, also: list[Stmt]
    ) -> Stmt:
        """How many elements of the first of two runs, of `width` tiles, go before each tile of both."""
        lanes, units = self.limits.tile[0], self.count * self.tiles
        b, t = scalar.counter("b", -(-units // lanes)), scalar.counter("t", lanes)
        unit = scalar.add(scalar.mul(b, scalar.size(lanes)), t)
        row, number = self._tile_of(unit)
        named, let = _named([*self._ends(number, width, self.tile.length, scalar.size(self.n))])
        first, middle, end = named
        search, found = self._path(
            lambda i: read(row, scalar.add(first, i)),
            lambda j: read(row, scalar.add(middle, j)),
            scalar.sub(middle, first),
            scalar.sub(end, middle),
            scalar.sub(scalar.mul(number, scalar.size(self.tile.length)), first),
        )
        body: list[Stmt] = [let, search, Store(splits, unit, found)]
        if units % lanes:
            body = [If(scalar.compare("lt", unit, scalar.size(units)), body, [])]
        body += _of_one(b, t, also)
        threads = Loop(t, scalar.size(lanes), body, kind=LoopKind.THREAD)
        return Loop(b, scalar.size(-(-units // lanes)), [state, threads], kind=LoopKind.GRID_BLOCK)

    def _parts_of(self, b: Expr, width: Expr, splits: Buffer) -> list[Expr]:
        """Of a tile of two runs: where its part of the first begins and how long that is, where its part of
        the second begins, how many elements it has, and where it lies itself.
        """
        _, number = self._tile_of(b)
        first, middle, end = self._ends(number, width, self.tile.length, scalar.size(self.n))
        length = scalar.size(self.tile.length)
        start, split = scalar.mul(number, length), scalar.load(splits, b, "int64")
        many = _least(length, scalar.sub(end, start))
        is_last = scalar.compare("eq", scalar.add(start, many), end)
        following = scalar.add(b, scalar.select(is_last, _ZERO, _ONE))
        until = scalar.select(
            is_last, scalar.sub(middle, first), scalar.load(splits, following, "int64")
        )
        other = scalar.add(middle, scalar.sub(scalar.sub(start, first), split))
        return [scalar.add(first, split), scalar.sub(until, split), other, many, start]

    def _merged(
        self,
        state: Stmt,
        width: Expr,
        read: Read,
        splits: Buffer,
        put: Put,
        also: list[Stmt],
    ) -> Stmt:
        """Tiles of two runs of `width` tiles, merged in shared memory."""
        items, last = scalar.size(self.tile.items), scalar.size(self.n - 1)

        def body(b: Expr) -> list[Stmt]:
            row, _ = self._tile_of(b)
            (first, na, other, count, start), let = _named(self._parts_of(b, width, splits))

            def taken(e: Expr) -> list[Stmt]:
                of_other = scalar.add(other, scalar.sub(e, na))
                of = scalar.select(scalar.compare("lt", e, na), scalar.add(first, e), of_other)
                return self._store(e, read(row, _least(of, last)))

            def merged(t: Expr) -> list[Stmt]:
                place = scalar.mul(t, items)
                mine = _least(items, scalar.sub(count, place))
                target = scalar.add(place, scalar.size(self.half))
                ends = _ZERO, na, count
                found = self._one(_ZERO, ends, _least(place, count), mine, target)
                return [*found, *_of_one(b, t, also)]

            def given(e: Expr) -> list[Stmt]:
                values = self._load(scalar.add(e, scalar.size(self.half)))
                stores = put(row, scalar.add(start, e), values)
                return [If(scalar.compare("lt", e, count), stores, [])]

            return [state, let, self._each(taken), self._threads(merged), self._each(given)]

        return self._blocks(body)
