"""Updates of places that are known when they are made: histograms, scatters, sums over segments.

Numbers that add up in any order to the same bits (integers) are added by atomic operations. The others
are added in an order that sizes alone decide: parts of the updates have copies of the array of their
own, which are then added up. Of places that are set twice the last update stays: a first pass finds it.
"""

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import traversal
from fnx.lowering.ir.expressions import buffers_read
from fnx.lowering.ir.kernel import Buffer, If, Loop, Stmt, Store
from fnx.lowering.ir.number_formats import KIND

from . import combining, independence
from .plan import Scheduling

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
    update = _update(body[0])
    count = 1
    for x in loops:
        count *= independence.extent(x)
    if update is None or count < scheduler.limits.parallel:
        return False
    inside, store, op, value = update
    private = any(b.space == "private" for b in traversal.buffers(body))
    if private or store.buffer in buffers_read([inside, store.index, value]):
        return False
    if op in _ATOMIC and store.buffer.dtype in _WORDS:
        axes = [(x.index, x.extent) for x in loops]
        added = Atomic(store.buffer, store.index, value, op)
        stmt: Stmt = If(inside, [added], []) if inside.op != "const" else added
        scheduler.launch("flat", axes, [stmt], name, f"{note}, atomic", [store.buffer])
        return True
    if op is None or KIND[store.buffer.dtype] == "h":
        return False
    return _in_copies(scheduler, loops, count, update, name, note)


class Atomic(Store):
    """buffer[index] = op(buffer[index], value), as one operation."""

    def __init__(self, buffer: Buffer, index: Expr, value: Expr, op: str):
        super().__init__(buffer, index, value)
        self.op = op


Update = tuple[Expr, Store, str | None, Expr]


def _update(s: Stmt) -> Update | None:
    """When a statement updates, where, by which operation (None: it sets), and with what."""
    inside = scalar.const(True, "bool")
    if isinstance(s, If):
        if s.orelse or s.results or len(s.then) != 1:
            return None
        inside, s = s.cond, s.then[0]
    if type(s) is not Store:
        return None
    value, old = s.value, scalar.load(s.buffer, s.index, s.buffer.dtype)
    if s.buffer not in buffers_read([value]):
        return inside, s, None, value
    others = [a for a in value.args if a is not old]
    if value.op not in ("add", "mul", "max", "min", "and", "or", "xor") or len(others) != 1:
        return None
    return inside, s, value.op, others[0]


def _in_copies(
    scheduler: Scheduling, loops: list[Loop], count: int, update: Update, name: str, note: str
) -> bool:
    """Parts of the updates, each in a copy of its own; then the copies, in their order."""
    inside, store, op, value = update
    assert op is not None
    size, limits = store.buffer.size, scheduler.limits
    parts = min(limits.parts, limits.ordered // size, -(-count // max(size // 4, 1)), count)
    if parts < 2:
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
    names, rest = {}, number
    for x in reversed(loops):
        rest, names[x.index] = scalar.divmod_size(rest, independence.extent(x))
    anew = combining.replacing(names)
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
