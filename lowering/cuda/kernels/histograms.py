"""Whole numbers that are added up at few places: each block has its own copy of them in shared memory.

Many threads that add to few places of memory wait for one another. In shared memory a block's threads
meet only one another, and there fast; in the end each block adds what it has to memory, a number a place.
What a thread adds is loaded some elements at a time, before the first of them is added.

Source: Histogram calculation in CUDA (Podlozhnyuk 2007).
Legal when: the order of the updates does not matter, to the bit.
Pays when: a block has several updates of each place.
"""

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir.kernel import Barrier, Buffer, If, Let, Loop, Stmt, Store
from fnx.lowering.ir.number_formats import itemsize

from . import combining, independence
from .plan import Scheduling
from .update import Atomic, Update, indices_of


def scheduled(
    scheduler: Scheduling, loops: list[Loop], update: Update, name: str, note: str
) -> bool:
    """Make a kernel of updates whose order is free; False, and nothing, where places are many."""
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
    """The kernel, each of whose blocks has a part of the updates, and `counts`."""

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
        update, last = self.update, scalar.size(self.count - 1)
        assert update.op is not None
        found: list[Stmt] = []
        adding: list[Stmt] = []
        for k in range(self.limits.together):
            number = scalar.add(first, scalar.size(k * self.limits.threads))
            known = scalar.apply("min", number, last) if has_ends else number
            anew = combining.replacing(indices_of(known, self.loops))
            inside = anew(update.inside)
            if has_ends:
                inside = scalar.logical_and(scalar.compare("le", number, last), inside)
            values = [inside, anew(update.store.index), anew(update.value)]
            names = [scalar.var(e.dtype, "u") for e in values]
            value = scalar.cast(names[2], self.counts.dtype)
            found.append(Let(names, values))
            adding.append(If(names[0], [Atomic(self.counts, names[1], value, update.op)], []))
        return [*found, *adding]
