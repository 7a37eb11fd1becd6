"""Sorting: stable merges in work memory, from both ends at once; few elements in registers.

Merging from both ends, half of the elements from each, keeps two chains of dependent loads going
and needs no test for the end of a run.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fnx.core import recipe, scalar
from fnx.core.scalar import Expr

from . import fuse
from .kernel import Copy, If, Let, Loop, Ref, Stmt, Store, While
from .stacks import each_item, finish, is_complex, loop, place, prod, result
from .values import Handle, Pull, Registers, Shape, static_indices

if TYPE_CHECKING:
    from .build import Builder

BLOCK = 4  # elements that a network sorts before merging begins
NETWORK = 8  # elements that a network sorts without more
SELECTED = 32  # up to so many largest elements are kept sorted while the others go by
Values = Sequence[Expr]
Less = Callable[[Values, Values], Expr]
ZERO, ONE = scalar.size(0), scalar.size(1)


# --- order ------------------------------------------------------------------------------------


def _or(a: Expr, b: Expr) -> Expr:
    return scalar.node("or", "bool", (a, b))


def _not(a: Expr) -> Expr:
    return scalar.apply("not", a)


def before(a: Expr, b: Expr) -> Expr:
    """Whether a comes before b: nans last, complex numbers by their parts as NumPy does."""
    if a.dtype == "bool":
        return scalar.logical_and(_not(a), b)
    if is_complex(a.dtype):
        return _complex_before(a, b)
    if "float" not in a.dtype:
        return scalar.compare("lt", a, b)
    return scalar.logical_and(scalar.compare("eq", a, a), _not(scalar.compare("ge", a, b)))


def _complex_before(a: Expr, b: Expr) -> Expr:
    """Parts in order; numbers with a nan come last, those with a real nan after the others."""
    ar, ai, br, bi = (scalar.apply(p, x) for x in (a, b) for p in ("real", "imag"))
    a_good, b_nan = scalar.compare("eq", ai, ai), scalar.compare("ne", bi, bi)
    only_b = scalar.logical_and(b_nan, a_good)
    equal = _or(scalar.compare("lt", ai, bi), only_b)
    nans = scalar.logical_and(scalar.compare("ne", ar, ar), scalar.compare("ne", br, br))
    same = _or(scalar.compare("eq", ar, br), nans)
    found = scalar.select(same, equal, scalar.compare("ne", br, br))
    found = scalar.select(scalar.compare("gt", ar, br), only_b, found)
    return scalar.select(scalar.compare("lt", ar, br), _or(a_good, b_nan), found)


def by_keys(count: int) -> Less:
    """The order by the first `count` values, the later ones among equals of the earlier."""

    def less(a: Values, b: Values) -> Expr:
        found = before(a[count - 1], b[count - 1])
        for k in range(count - 2, -1, -1):
            equal = _not(before(b[k], a[k]))
            found = _or(before(a[k], b[k]), scalar.logical_and(equal, found))
        return found

    return less


def descending(a: Values, b: Values) -> Expr:
    return before(b[0], a[0])


def _less(a: Values, b: Values) -> Expr:
    return scalar.compare("lt", a[0], b[0])


def _greater(a: Values, b: Values) -> Expr:
    return scalar.compare("gt", a[0], b[0])


# --- networks ---------------------------------------------------------------------------------


def network(items: list[list[Expr]], less: Less) -> list[list[Expr]]:
    """The items sorted by exchanges of neighbours, which keep the order of equals."""
    items = list(items)
    for turn in range(len(items)):
        for k in range(turn % 2, len(items) - 1, 2):
            a, b = items[k], items[k + 1]
            swap = less(b, a)
            items[k] = [scalar.select(swap, y, x) for x, y in zip(a, b, strict=True)]
            items[k + 1] = [scalar.select(swap, x, y) for x, y in zip(a, b, strict=True)]
    return items


# --- lanes ------------------------------------------------------------------------------------


def _with(lane: Sequence[Expr], axis: int, i: Expr) -> tuple[Expr, ...]:
    return (*lane[:axis], i, *lane[axis:])


class Lanes:
    """What is sorted along an axis: values that move together, and their order.

    `nans` says where nans of the first value go, "last" or "first", if it alone decides: they are
    put aside, and `less` need not know of them.
    """

    def __init__(self, shape: Shape, axis: int, moved: list[Callable[..., Expr]], less: Less):
        self.shape, self.axis, self.moved, self.less = shape, axis, moved, less
        self.n = shape[axis]
        self.others = (*shape[:axis], *shape[axis + 1 :])
        self.nans = ""

    def by_one_key(self, dtype: str, first: bool = False) -> None:
        """The order is that of the first value, of this dtype."""
        if "float" in dtype:
            self.nans = "first" if first else "last"
            self.less = _greater if first else _less

    def values(self, lane: Sequence[Expr], i: Expr) -> list[Expr]:
        index = _with(lane, self.axis, i)
        return [fn(*index) for fn in self.moved]

    def repeat(self, n: int, make: Callable[[Expr], list[Stmt]]) -> list[Stmt]:
        """make(i) for each i < n: a loop, or unrolled for short lanes."""
        if self.n > NETWORK:
            return [loop(n, make)]
        return [s for i in range(n) for s in make(scalar.size(i))]


class Memory:
    """Work memory for the values that move together, an array each."""

    def __init__(self, builder: "Builder", lanes: Lanes, size: int):
        corner = [ZERO] * len(lanes.others)
        probe = builder.evaluated(lambda: lanes.values(corner, ZERO))
        self.buffers = [builder.new_buffer(e.dtype, size) for e in probe]

    def load(self, i: Expr) -> list[Expr]:
        return [scalar.load(b, i, b.dtype) for b in self.buffers]

    def store(self, i: Expr, values: Values) -> list[Stmt]:
        return [Store(b, i, e) for b, e in zip(self.buffers, values, strict=True)]

    def copy(self, target: Expr, source: Expr, count: Expr) -> list[Stmt]:
        return [Copy(Ref(b, target), Ref(b, source), count) for b in self.buffers]


def _memory(builder: "Builder", lanes: Lanes, take: Any) -> None:
    """Sort each lane; `take(lane, read)` gives the statements that use read(i), the i-th values."""
    if lanes.n <= NETWORK:
        _networks(builder, lanes, take)
        return
    half = lanes.n + 1  # a merge may look at the element after the last
    memory = Memory(builder, lanes, 2 * half)

    def one(lane: tuple[Expr, ...]) -> list[Stmt]:
        source = scalar.var("int64", "h")
        n = count = scalar.size(lanes.n)
        values = lambda i: lanes.values(lane, i)
        body: list[Stmt] = []
        read: Any = lambda i: memory.load(scalar.add(source, i))
        if lanes.nans:
            count = scalar.var("int64", "c")
            body += _without_nans(values, count, n, half, memory)
            values = memory.load
        body += _blocks(lanes.less, count, values, memory)
        body += _merges(lanes.less, count, half, source, memory)
        if lanes.nans:
            at = scalar.add(count, scalar.size(half))
            rest = scalar.sub(n, count)
            body += memory.copy(at, count, rest)
        if lanes.nans == "first":

            def read(i: Expr) -> list[Expr]:
                is_nan = scalar.compare("lt", i, rest)
                from_ = scalar.select(is_nan, scalar.add(count, i), scalar.sub(i, rest))
                return memory.load(scalar.add(source, from_))

        return [*body, *take(lane, read)]

    each_item(builder, lanes.others, one, "sort")


def _networks(builder: "Builder", lanes: Lanes, take: Any) -> None:
    """Short lanes, each sorted in registers."""

    def one(lane: tuple[Expr, ...]) -> list[Stmt]:
        items = [lanes.values(lane, scalar.size(i)) for i in range(lanes.n)]
        found, let = _named(network(items, lanes.less))
        return [let, *take(lane, lambda i: found[i.attr])]

    work = prod(lanes.shape) * lanes.n * len(lanes.moved)
    each_item(builder, lanes.others, one, "sort", work >= fuse.PARALLEL_WORK)


def _without_nans(values: Any, count: Expr, n: Expr, half: int, memory: Memory) -> list[Stmt]:
    """The values in memory, those whose key is nan behind the others; `count` is that of the others."""
    i, other = scalar.var("int64", "i"), scalar.size(half)
    (new,), let = _named([values(i)])
    is_nan = scalar.compare("ne", new[0], new[0])
    where = scalar.select(is_nan, scalar.add(other, scalar.sub(i, count)), count)
    part = Loop(
        i,
        n,
        [let, *memory.store(where, new)],
        [count],
        [ZERO],
        [scalar.add(count, _int(_not(is_nan)))],
    )

    return [part, *memory.copy(count, other, scalar.sub(n, count))]


def _named(groups: Sequence[Values]) -> tuple[list[list[Expr]], Stmt]:
    names = [[scalar.var(e.dtype, "v") for e in g] for g in groups]
    return names, Let([v for g in names for v in g], [e for g in groups for e in g])


def _blocks(less: Less, n: Expr, values: Any, memory: Memory) -> list[Stmt]:
    """Sorted blocks of a few elements; those that are left over are inserted into the last."""
    load, store = memory.load, memory.store
    three = scalar.const(BLOCK - 1, "int64")
    rest = scalar.node("and", "int64", (n, three))
    whole = scalar.node("and", "int64", (n, scalar.const(-BLOCK, "int64")))

    def block(q: Expr) -> list[Stmt]:
        start = scalar.mul(q, scalar.size(BLOCK))
        items = [values(scalar.add(start, scalar.size(c))) for c in range(BLOCK)]
        names, let = _named(network(items, less))
        found: list[Stmt] = [let]
        for c, item in enumerate(names):
            found += store(scalar.add(start, scalar.size(c)), item)
        return found

    def insert(q: Expr) -> list[Stmt]:
        at = scalar.add(whole, q)
        (new,), let = _named([values(at)])
        j = scalar.var("int64", "j")
        previous = scalar.sub(j, ONE)
        safe = scalar.node("max", "int64", (previous, ZERO))
        more = scalar.logical_and(scalar.compare("gt", j, whole), less(new, load(safe)))
        move = store(j, load(previous))
        while_ = While([], more, move, [j], [at], [previous], poll=False)
        return [let, while_, *store(j, new)]

    count = scalar.node("div", "int64", (whole, scalar.size(BLOCK)))
    return [loop(count, block), loop(rest, insert)]


def _minimum(a: Expr, b: Expr) -> Expr:
    return scalar.node("min", "int64", (a, b))


def _int(flag: Expr) -> Expr:
    return scalar.cast(flag, "int64")


def _merges(less: Less, n: Expr, half: int, source: Expr, memory: Memory) -> list[Stmt]:
    """Merge runs, twice as long each time; `source` is where the sorted elements begin."""
    width = scalar.var("int64", "w")
    target = scalar.sub(scalar.size(half), source)
    two = scalar.add(width, width)

    def pair(p: Expr) -> list[Stmt]:
        lo = scalar.mul(p, two)
        mid = _minimum(scalar.add(lo, width), n)
        hi = _minimum(scalar.add(lo, two), n)
        return _merge(less, source, target, lo, mid, hi, memory)

    count = scalar.node("div", "int64", (scalar.add(n, scalar.sub(two, ONE)), two))
    more = scalar.compare("lt", width, n)
    start = scalar.size(BLOCK)
    body: list[Stmt] = [loop(count, pair)]
    return [While([], more, body, [width, source], [start, ZERO], [two, target], poll=False)]


def _merge(
    less: Less, source: Expr, target: Expr, lo: Expr, mid: Expr, hi: Expr, memory: Memory
) -> list[Stmt]:
    """Merge two runs of the source into the target; copy them if they are in order."""
    store = memory.store

    def read(i: Expr) -> list[Expr]:
        return memory.load(scalar.add(source, i))

    def chosen(take: Expr, a: Values, b: Values) -> list[Expr]:
        return [scalar.select(take, x, y) for x, y in zip(a, b, strict=True)]

    steps = _minimum(scalar.sub(mid, lo), scalar.sub(hi, mid))
    i, j, i2, j2, s = (scalar.var("int64", v) for v in ("i", "j", "y", "z", "s"))
    (a, b, a2, b2), let = _named([read(k) for k in (i, j, i2, j2)])
    right, left = less(b, a), less(b2, a2)
    last = scalar.sub(hi, ONE)
    both = Loop(
        s,
        steps,
        [
            let,
            *store(scalar.add(target, scalar.add(lo, s)), chosen(right, b, a)),
            *store(scalar.add(target, scalar.sub(last, s)), chosen(left, a2, b2)),
        ],
        [i, j, i2, j2],
        [lo, mid, scalar.sub(mid, ONE), last],
        [
            scalar.add(i, _int(_not(right))),
            scalar.add(j, _int(right)),
            scalar.sub(i2, _int(left)),
            scalar.sub(j2, _int(_not(left))),
        ],
    )
    # What is left in the middle, when one run is longer.
    k, x, y = (scalar.var("int64", v) for v in ("k", "i", "j"))
    (c, d), let_rest = _named([read(x), read(y)])
    in_left, in_right = scalar.compare("le", x, i2), scalar.compare("le", y, j2)
    take = _or(_not(in_left), scalar.logical_and(in_right, less(d, c)))
    body: list[Stmt] = [let_rest, *store(scalar.add(target, k), chosen(take, d, c))]
    rest = While(
        [],
        scalar.compare("lt", k, scalar.sub(hi, steps)),
        body,
        [k, x, y],
        [scalar.add(lo, steps), i, j],
        [scalar.add(k, ONE), scalar.add(x, _int(_not(take))), scalar.add(y, _int(take))],
        poll=False,
    )
    crossed = scalar.logical_and(
        scalar.compare("lt", mid, hi), less(read(mid), read(scalar.sub(mid, ONE)))
    )
    copy = memory.copy(scalar.add(target, lo), scalar.add(source, lo), scalar.sub(hi, lo))
    return [If(crossed, [both, rest], copy)]


# --- sort -------------------------------------------------------------------------------------


def _ready(builder: "Builder", h: Any) -> Handle:
    """An operand that may be read several times."""
    if not (isinstance(h.state, Pull) and h.state.cost <= fuse.CHEAP) and not isinstance(
        h.state, Registers
    ):
        builder.store(h)
    return h


def sort(builder: "Builder", r: recipe.Library, outs: list[Handle]) -> None:
    axis, keys = r.params
    xs = [_ready(builder, h) for h in r.operands]
    shape = xs[0].shape
    if shape[axis] < 2 or not xs[0].size:
        for x, out in zip(xs, outs, strict=True):
            result(builder, out, lambda *ix, x=x: x(*ix), "sort")
        return
    if fuse.is_small(shape):
        moved: list[Callable[..., Expr]] = [lambda *ix, x=x: x(*ix) for x in xs]
        _registers(builder, Lanes(shape, axis, moved, by_keys(keys)), outs, shape[axis])
        return
    wanted = [k for k, out in enumerate(outs) if out.consumers]
    carried = [k for k in range(len(xs)) if k < keys or k in wanted]
    gathered = carried[keys:] if len(carried) > keys + 1 else []
    carried = carried[: len(carried) - len(gathered)]
    moved = [lambda *ix, x=xs[k]: x(*ix) for k in carried]
    if gathered:
        moved.append(lambda *ix: scalar.cast(ix[axis], "int32"))
    places = {k: place(builder, outs[k]) for k in wanted}
    lanes = Lanes(shape, axis, moved, by_keys(keys))
    if keys == 1 and lanes.n > NETWORK:
        lanes.by_one_key(xs[0].dtype)

    def take(lane: tuple[Expr, ...], read: Any) -> list[Stmt]:
        def element(i: Expr) -> list[Stmt]:
            values, index = read(i), _with(lane, axis, i)
            found = dict(zip(carried, values, strict=False))
            for k in gathered:
                found[k] = xs[k](*_with(lane, axis, scalar.cast(values[-1], "int64")))
            return [
                Store(places[k].buffer, places[k].position(shape, index), found[k]) for k in wanted
            ]

        return lanes.repeat(shape[axis], element)

    _memory(builder, lanes, take)
    for k in wanted:
        finish(builder, outs[k])


def _registers(builder: "Builder", lanes: Lanes, outs: list[Handle], k: int) -> None:
    """Lanes of few elements: the first k of each, sorted."""

    def make() -> list[list[Expr]]:
        found: list[dict] = [{} for _ in outs]
        for lane in static_indices(lanes.others):
            items = [lanes.values(lane, scalar.size(i)) for i in range(lanes.n)]
            for i, values in enumerate(network(items, lanes.less)[:k]):
                for column, e in zip(found, values, strict=True):
                    column[_with(lane, lanes.axis, scalar.size(i))] = e
        return [
            [column[ix] for ix in static_indices(out.shape)]
            for column, out in zip(found, outs, strict=True)
        ]

    for out, elements in zip(outs, builder.evaluated(make), strict=True):
        builder.settle_registers(out, elements)


# --- top_k ------------------------------------------------------------------------------------


def top_k(builder: "Builder", r: recipe.Library, outs: list[Handle]) -> None:
    k, axis = r.params
    x = _ready(builder, r.operands[0])
    if not outs[0].size:
        for out in outs:
            place(builder, out)
            finish(builder, out)
        return
    moved: list[Callable[..., Expr]] = [
        x,
        lambda *ix: scalar.cast(ix[axis], "int32"),
    ]
    lanes = Lanes(x.shape, axis, moved, descending)
    if fuse.is_small(x.shape):
        _registers(builder, lanes, outs, k)
        return
    places = [place(builder, out) for out in outs]

    def put(lane: Sequence[Expr], i: Expr, values: Values) -> list[Stmt]:
        index = _with(lane, axis, i)
        return [
            Store(s.buffer, s.position(outs[0].shape, index), e)
            for s, e in zip(places, values, strict=True)
        ]

    if k <= SELECTED:
        _select(builder, lanes, k, put)
    else:
        lanes.by_one_key(x.dtype, first=True)
        _memory(builder, lanes, lambda lane, read: [loop(k, lambda i: put(lane, i, read(i)))])
    for out in outs:
        finish(builder, out)


def _select(builder: "Builder", lanes: Lanes, k: int, put: Any) -> None:
    """One pass over each lane, which keeps the k first elements so far, sorted."""
    memory = Memory(builder, lanes, k)
    load, store = memory.load, memory.store
    last = scalar.size(k - 1)

    def one(lane: tuple[Expr, ...]) -> list[Stmt]:
        def element(i: Expr) -> list[Stmt]:
            (new,), let = _named([lanes.values(lane, i)])
            room = scalar.compare("lt", i, scalar.size(k))
            enters = _or(room, lanes.less(new, load(last)))
            j = scalar.var("int64", "j")
            previous = scalar.sub(j, ONE)
            safe = scalar.node("max", "int64", (previous, ZERO))
            more = scalar.logical_and(scalar.compare("gt", j, ZERO), lanes.less(new, load(safe)))
            shift = While(
                [], more, store(j, load(previous)), [j], [_minimum(i, last)], [previous], poll=False
            )
            return [let, If(enters, [shift, *store(j, new)], [])]

        return [
            loop(lanes.n, element),
            loop(k, lambda i: put(lane, i, load(i))),
        ]

    each_item(builder, lanes.others, one, "top_k")


ROUTINES = {"sort": sort, "top_k": top_k}
