"""Updates of many places in the order in which the program makes them, whatever thread makes which.

Where a place is set more than once the last update stays: an atomic maximum finds its number. Where numbers
are combined whose sum depends on the order, the updates are sorted by their places, stably, and each place
has a thread that combines what is its own, one after another: the bits are those of one thread. Where the
program says that they are sorted, they are not sorted again.

Source: segmented reduction of sorted keys (Blelloch 1990).
"""

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir.kernel import Buffer, If, Let, Loop, Stmt, Store, While

from . import combining, independence, merging
from .plan import Axes, Scheduling
from .update import Atomic, Update, indices_of


def set_last(
    scheduler: Scheduling, loops: list[Loop], update: Update, name: str, note: str
) -> bool:
    """Kernels that set places, each by the last update of it."""
    size, count = update.store.buffer.size, independence.count(loops)
    dtype = "int32" if count < (1 << 31) - 1 else "int64"
    last = scheduler.temporary(dtype, size)
    i = scalar.counter("i", size)
    clear = Store(last, i, scalar.const(-1, dtype))
    scheduler.launch("flat", [(i, scalar.size(size))], [clear], name, f"{note}, no update yet")
    axes: Axes = [(x.index, x.extent) for x in loops]
    number, place = scalar.cast(_number(loops), dtype), update.store.index
    found: Stmt = Atomic(last, place, number, "max")
    scheduler.launch(
        "flat", axes, [update.guarded(found)], name, f"{note}, the last one", atomic=[last]
    )
    is_last = scalar.compare("eq", scalar.load(last, place, dtype), number)
    chosen = If(is_last, [Store(update.store.buffer, place, update.value)], [])
    scheduler.launch("flat", axes, [update.guarded(chosen)], name, note)
    return True


def by_runs(scheduler: Scheduling, loops: list[Loop], update: Update, name: str, note: str) -> bool:
    """A kernel of updates of which those of a place follow one another along the first loop."""
    (p, n), *others = [(x.index, x.extent) for x in loops]
    at = lambda i: combining.replacing({p: i})
    nowhere = scalar.const(-1, "int64")

    def place_at(i: Expr) -> Expr:
        return scalar.select(at(i)(update.inside), at(i)(update.store.index), nowhere)

    buffer, one, last = update.store.buffer, scalar.size(1), scalar.sub(n, scalar.size(1))
    place, before = scalar.var("int64", "d"), scalar.var("int64", "d")
    previous = place_at(scalar.apply("max", scalar.sub(p, one), scalar.size(0)))
    is_later = scalar.compare("gt", p, scalar.size(0))
    let = Let([place, before], [place_at(p), scalar.select(is_later, previous, nowhere)])
    k, total = scalar.var("int64", "k"), scalar.var(buffer.dtype, "a")
    more = scalar.logical_and(
        scalar.compare("lt", k, n),
        scalar.compare("eq", place_at(scalar.apply("min", k, last)), place),
    )
    assert update.op is not None
    new = combining.combined(update.op, total, at(k)(update.value))
    start = [p, scalar.load(buffer, place, buffer.dtype)]
    own = While([], more, [], [k, total], start, [scalar.add(k, one), new])
    is_first = scalar.logical_and(
        scalar.compare("ge", place, scalar.size(0)), scalar.compare("ne", place, before)
    )
    stores: list[Stmt] = [own, Store(buffer, place, total)]
    axes: Axes = [(p, n), *others]
    scheduler.launch("flat", axes, [let, If(is_first, stores, [])], name, f"{note}, run by run")
    return True


def by_places(
    scheduler: Scheduling, loops: list[Loop], update: Update, name: str, note: str
) -> bool:
    """Kernels that sort the updates by their places, and combine each place's; False for too many."""
    size, count = update.store.buffer.size, independence.count(loops)
    if (size + 1) << count.bit_length() >= 1 << 63:
        return False
    keys = scheduler.temporary("int64", count)
    number, n = _number(loops), scalar.size(count)
    bits = scalar.const(count.bit_length(), "int64")
    key = lambda place: scalar.apply("or", scalar.apply("shift_left", place, bits), number)
    # What is outside comes behind all places.
    stores: list[Stmt] = [Store(keys, number, key(update.store.index))]
    if update.inside.op != "const":
        stores = [If(update.inside, stores, [Store(keys, number, key(scalar.size(size)))])]
    axes: Axes = [(x.index, x.extent) for x in loops]
    scheduler.launch("flat", axes, stores, name, f"{note}, the places")
    for what, stmt in _sorted(scheduler, keys, count):
        scheduler.statement(stmt, name, f"{note}, in their order: {what}")
    p = scalar.counter("p", count)
    body = _combined(loops, update, keys, p, count)
    scheduler.launch("flat", [(p, n)], body, name, f"{note}, place by place")
    return True


def _number(loops: list[Loop]) -> Expr:
    """The number of an update among all of them, in their order."""
    sizes = tuple(independence.extent(x) for x in loops)
    return scalar.linear_index(tuple(x.index for x in loops), sizes)


def _sorted(scheduler: Scheduling, keys: Buffer, count: int) -> list[tuple[str, Stmt]]:
    """Statements that sort a buffer, with notes."""
    sorting = merging.Sorting(
        (), count, ["int64"], lambda a, b: scalar.compare("lt", a[0], b[0]), scheduler.limits,
        scheduler.temporary, lambda dtype, size: Buffer(f"{keys.name}_runs", dtype, size, "shared"),
    )  # fmt: skip
    return sorting.statements(
        lambda row, i: [scalar.load(keys, i, "int64")],
        lambda row, i, values: [Store(keys, i, values[0])],
        count,
    )


def _combined(loops: list[Loop], update: Update, keys: Buffer, p: Expr, count: int) -> list[Stmt]:
    """What the thread of the p-th key does: if it is a place's first, all updates of the place."""
    size = update.store.buffer.size
    key = lambda k: scalar.load(keys, k, "int64")
    zero, one, n = scalar.size(0), scalar.size(1), scalar.size(count)
    bits = scalar.const(count.bit_length(), "int64")
    below = scalar.const((1 << count.bit_length()) - 1, "int64")
    place_of = lambda k: scalar.apply("shift_right_logical", key(k), bits)
    place = scalar.var("int64", "d")
    before = scalar.select(
        scalar.compare("gt", p, zero),
        place_of(scalar.apply("max", scalar.sub(p, one), zero)),
        scalar.const(-1, "int64"),
    )
    is_first = scalar.logical_and(
        scalar.compare("ne", place, before), scalar.compare("lt", place, scalar.size(size))
    )
    k, total = scalar.var("int64", "k"), scalar.var(update.store.buffer.dtype, "a")
    number = scalar.apply("and", key(k), below)
    value = combining.replacing(indices_of(number, loops))(update.value)
    assert update.op is not None
    more = scalar.logical_and(
        scalar.compare("lt", k, n),
        scalar.compare("eq", place_of(scalar.apply("min", k, scalar.sub(n, one))), place),
    )
    old = scalar.load(update.store.buffer, place, total.dtype)
    own = While(
        [],
        more,
        [],
        [k, total],
        [p, old],
        [scalar.add(k, one), combining.combined(update.op, total, value)],
    )
    stores: list[Stmt] = [own, Store(update.store.buffer, place, total)]
    return [Let([place], [place_of(p)]), If(is_first, stores, [])]
