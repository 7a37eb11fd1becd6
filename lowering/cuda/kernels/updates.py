"""Updates of places that are known when they are made: histograms, scatters, sums over segments.

Numbers that add up in any order to the same bits (integers) are added by atomic operations, at few places
in shared memory first. The others are added in an order that sizes alone decide: where
the array is small, parts of the updates have copies of it of their own, which are then added up; else the
updates are sorted by their places. Of places that are set twice the last update stays: a first pass finds
it (`ordered_updates.py`).
"""

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import traversal
from fnx.lowering.ir.expressions import buffers_read
from fnx.lowering.ir.kernel import Barrier, Buffer, If, Loop, Stmt, Store
from fnx.lowering.ir.number_formats import KIND, itemsize

from . import combining, independence, ordered_updates
from .plan import Scheduling
from .update import Atomic, Update, indices_of, update_of

_ATOMIC = frozenset(("add", "max", "min"))
_WORDS = frozenset(("int32", "int64", "uint32", "uint64"))


def scheduled(
    scheduler: Scheduling,
    loops: list[Loop],
    body: list[Stmt],
    found: list[Loop],
    name: str,
    note: str,
) -> bool:
    """Make kernels of loops around one update; False, and nothing, where they are none, or few."""
    if len(found) == len(loops) or len(body) != 1 or any(x.reverse for x in loops):
        return False
    update, count = update_of(body[0]), independence.count(loops)
    if update is None or count < scheduler.limits.parallel:
        return False
    store, op = update.store, update.op
    private = any(b.space == "private" for b in traversal.buffers(body))
    if private or store.buffer in buffers_read([update.inside, store.index, update.value]):
        return False
    if op is None:
        return ordered_updates.set_last(scheduler, loops, update, name, note)
    if op in _ATOMIC and store.buffer.dtype in _WORDS:
        if _in_shared_memory(scheduler, loops, update, name, note):
            return True
        axes = [(x.index, x.extent) for x in loops]
        added = update.guarded(Atomic(store.buffer, store.index, update.value, op))
        scheduler.launch("flat", axes, [added], name, f"{note}, atomic", atomic=[store.buffer])
        return True
    if loops[0].runs:
        return ordered_updates.by_runs(scheduler, loops, update, name, note)
    if KIND[store.buffer.dtype] != "h" and _in_copies(scheduler, loops, count, update, name, note):
        return True
    return ordered_updates.by_places(scheduler, loops, update, name, note)


def _in_copies(
    scheduler: Scheduling, loops: list[Loop], count: int, update: Update, name: str, note: str
) -> bool:
    """Parts of the updates, each in a copy of its own; then the copies, in their order."""
    inside, store, op, value = update.inside, update.store, update.op, update.value
    assert op is not None
    size, limits = store.buffer.size, scheduler.limits
    parts = min(limits.parts, limits.ordered // size, -(-count // max(size // 4, 1)), count)
    if parts < limits.copies:
        return False
    length = -(-count // parts)
    parts = -(-count // length)
    copies = scheduler.temporary(store.buffer.dtype, parts * size)
    neutral = combining.identity(op, store.buffer.dtype)
    part, i = scalar.counter("p", parts), scalar.counter("i", size)
    own = scalar.mul(part, scalar.size(size))
    clear = Store(copies, scalar.add(own, i), neutral)
    axes = [(part, scalar.size(parts)), (i, scalar.size(size))]
    scheduler.launch("flat", axes, [clear], name, f"{note}, empty copies")
    j = scalar.counter("j", length)
    number = scalar.add(scalar.mul(part, scalar.size(length)), j)
    extent = scalar.size(length)
    if count % length:
        extent = scalar.apply(
            "min", extent, scalar.sub(scalar.size(count), scalar.mul(part, extent))
        )
    anew = combining.replacing(indices_of(number, loops))
    place = scalar.add(own, anew(store.index))
    new = combining.combined(op, scalar.load(copies, place, copies.dtype), anew(value))
    stmt: Stmt = Store(copies, place, new)
    if inside.op != "const":
        stmt = If(anew(inside), [stmt], [])
    scheduler.launch(
        "flat", [(part, scalar.size(parts))], [Loop(j, extent, [stmt])], name, f"{note}, in copies"
    )
    k, d = scalar.counter("k", parts), scalar.counter("d", size)
    total = scalar.var(copies.dtype, "a")
    at = scalar.add(scalar.mul(k, scalar.size(size)), d)
    more = combining.combined(op, total, scalar.load(copies, at, copies.dtype))
    old = scalar.load(store.buffer, d, copies.dtype)
    sums = Loop(k, scalar.size(parts), [], [total], [old], [more])
    scheduler.launch(
        "flat",
        [(d, scalar.size(size))],
        [sums, Store(store.buffer, d, total)],
        name,
        f"{note}, the copies",
    )
    return True


# --- few places -------------------------------------------------------------------------------


def _in_shared_memory(
    scheduler: Scheduling, loops: list[Loop], update: Update, name: str, note: str
) -> bool:
    """A kernel of updates whose order is free; False, and nothing, where places are many."""
    limits, count = scheduler.limits, independence.count(loops)
    size, together = update.store.buffer.size, limits.together * limits.threads
    parts = min(limits.parts, count // max(limits.per_place * size, together))
    length = -(-count // max(parts, 1) // together) * together
    dtype = _counted(update, length)
    if parts < 2 or size * itemsize(dtype) > limits.shared:
        return False
    kernel = _Histogram(scheduler, loops, update, Buffer("counts", dtype, size, "shared"))
    kernel.launch(-(-count // length), length, name, note)
    return True


def _counted(update: Update, length: int) -> str:
    """The dtype of a block's copy: of 32 bits, which are faster, where its sums are sure to fit."""
    dtype = update.store.buffer.dtype
    reach = max(map(abs, scalar.bounds(update.value)))
    return (
        "int32" if dtype == "int64" and update.op == "add" and reach * length < 1 << 31 else dtype
    )


class _Histogram:
    """The kernel, each of whose blocks has a part of the updates, and `counts`: a copy of the places.

    Threads that add to few places of memory wait for one another; in shared memory they meet only those of
    their block, and in the end a block adds what it has of each place to memory. What a thread adds is
    loaded some elements at a time, before the first of them is added.

    Source: Histogram calculation in CUDA (Podlozhnyuk 2007).
    """

    def __init__(self, scheduler: Scheduling, loops: list[Loop], update: Update, counts: Buffer):
        self.scheduler, self.loops, self.update, self.counts = scheduler, loops, update, counts
        self.limits, self.count = scheduler.limits, independence.count(loops)
        self.thread = scalar.counter("t", self.limits.threads)

    def launch(self, parts: int, length: int, name: str, note: str) -> None:
        part = scalar.counter("p", parts)
        rounds = length // (self.limits.together * self.limits.threads)
        r, at = scalar.counter("r", rounds), scalar.mul(part, scalar.size(length))
        step = scalar.size(self.limits.together * self.limits.threads)
        first = scalar.add(at, scalar.add(scalar.mul(r, step), self.thread))
        assert self.update.op is not None
        neutral = combining.identity(self.update.op, self.counts.dtype)
        body: list[Stmt] = [
            self._each(lambda place: [Store(self.counts, place, neutral)]),
            Barrier(),
            Loop(r, scalar.size(rounds), self._added(first, parts * length > self.count)),
            Barrier(),
            self._each(lambda place: self._given(place, neutral)),
            Barrier(),  # before the next part's
        ]
        self.scheduler.launch(
            "block",
            [(part, scalar.size(parts))],
            body,
            name,
            f"{note}, in shared memory",
            thread=self.thread,
            atomic=[self.update.store.buffer],
        )

    def _each(self, statements) -> Loop:  # type: ignore[no-untyped-def]
        """Statements of each place, which the threads share."""
        threads, size = self.limits.threads, self.counts.size
        k = scalar.counter("k", -(-size // threads))
        place = scalar.add(scalar.mul(k, scalar.size(threads)), self.thread)
        body: list[Stmt] = statements(place)
        if size % threads:
            body = [If(scalar.compare("lt", place, scalar.size(size)), body, [])]
        return Loop(k, scalar.size(-(-size // threads)), body)

    def _given(self, place: Expr, neutral: Expr) -> list[Stmt]:
        """Add what a block has of a place, if it has something."""
        store, found = self.update.store, scalar.load(self.counts, place, self.counts.dtype)
        assert self.update.op is not None
        added = Atomic(store.buffer, place, scalar.cast(found, store.value.dtype), self.update.op)
        return [If(scalar.compare("ne", found, neutral), [added], [])]

    def _added(self, first: Expr, has_ends: bool) -> list[Stmt]:
        """Some updates of a thread: what is added where, of all of them, then the additions.

        `has_ends`: whether some are beyond the last one.
        """
        update, last, times = self.update, scalar.size(self.count - 1), self.limits.together
        assert update.op is not None
        k = scalar.counter("k", times)
        number = scalar.add(first, scalar.mul(k, scalar.size(self.limits.threads)))
        known = scalar.apply("min", number, last) if has_ends else number
        anew = combining.replacing(indices_of(known, self.loops))
        inside = anew(update.inside)
        if has_ends:
            inside = scalar.logical_and(scalar.compare("le", number, last), inside)
        places = Buffer("places", "int64", times, "private")
        nowhere = scalar.const(-1, "int64")
        found: list[Stmt] = [
            Store(places, k, scalar.select(inside, anew(update.store.index), nowhere))
        ]
        value = scalar.cast(anew(update.value), self.counts.dtype)
        if update.value.op not in ("const", "literal"):
            values = Buffer("values", self.counts.dtype, times, "private")
            found.append(Store(values, k, value))
            value = scalar.load(values, k, values.dtype)
        place = scalar.load(places, k, "int64")
        there = scalar.compare("ge", place, scalar.size(0))
        added = If(there, [Atomic(self.counts, place, value, update.op)], [])
        return [Loop(k, scalar.size(times), found), Loop(k, scalar.size(times), [added])]
