"""Updates of places that are known when they are made: histograms, scatters, sums over segments.

Numbers that add up in any order to the same bits (integers) are added by atomic operations, at few places
in shared memory first (`histograms.py`). The others are added in an order that sizes alone decide: where
the array is small, parts of the updates have copies of it of their own, which are then added up; else the
updates are sorted by their places. Of places that are set twice the last update stays: a first pass finds
it (`ordered_updates.py`).
"""

from fnx.core import scalar
from fnx.lowering.ir import traversal
from fnx.lowering.ir.expressions import buffers_read
from fnx.lowering.ir.kernel import If, Loop, Stmt, Store
from fnx.lowering.ir.number_formats import KIND

from . import combining, histograms, independence, ordered_updates
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
        if histograms.scheduled(scheduler, loops, update, name, note):
            return True
        axes = [(x.index, x.extent) for x in loops]
        added = update.guarded(Atomic(store.buffer, store.index, update.value, op))
        scheduler.launch("flat", axes, [added], name, f"{note}, atomic", atomic=[store.buffer])
        return True
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
