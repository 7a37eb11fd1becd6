"""In-place buffer sharing: a value of a nest takes the memory of a dead array that the nest reads.

`x = x + dt * v` in a loop then reads and writes one array, not two.

Source: XLA's CanShareBuffer for fusions.
Input: the members that a closed group will store, and the arrays that it reads.
Output: members whose preferred buffer is such an array's.
Legal when: nobody needs the old elements but the iterations that overwrite them: each iteration reads
the array at its own index only, before it writes; it belongs to this jaxpr and is of the same type.
Pays when: always; less memory goes through caches.
Costs: a walk over what is read later.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir.expressions import buffers_read, nodes
from fnx.lowering.ir.kernel import Buffer, Let, Stmt, Store

from .generation import Generation
from .values import Fused, Inlined, Materialized, NeedsFlush, Scalars, Value

if TYPE_CHECKING:
    from .fusion_groups import Group, Member


def choose(builder: Generation, group: "Group", stores: "list[Member]") -> bool:
    """Give members the memory of dead arrays, as hints; whether any was given."""
    scope = builder.scope
    if group.reductions or any(g.reductions for g in scope.groups):
        return False
    reads = _reads([m.expr for m in stores])
    others = _reads([m.expr for g in scope.groups for m in g.members])
    taken: set[Buffer] = set()
    read_here = [
        (old, old.state)
        for old in scope.values.values()
        if isinstance(old.state, Materialized) and old.state.buffer in reads
    ]
    needed: _Needed | None = None
    for m in stores:
        h = m.value
        if (
            h is None
            or m.destination is not None
            or h.destination is not None
            or h.preferred_buffer is not None
        ):
            continue
        own_carry = h.carry_buffer.buffer if h.carry_buffer is not None else None
        for old, state in sorted(read_here, key=lambda r: r[1].buffer is not own_carry):
            if state.buffer in taken or not state.owned:
                continue
            if state.buffer in others:
                continue  # a group that is open still means to read it
            if state.buffer in scope.wished and (
                h.carry_buffer is None or h.carry_buffer.buffer is not state.buffer
            ):
                continue  # another carry's
            if old.scope is not scope or (old.shape, old.dtype) != (h.shape, h.dtype):
                continue
            own = {id(state.position(old.shape, ix)) for ix in group.indices(old.shape)}
            if not reads[state.buffer] <= own:
                continue
            if needed is None:
                needed = _needed(builder, group)
                if needed is None:
                    return bool(taken)
            if not _is_needed(state, needed):
                h.preferred_buffer = state
                taken.add(state.buffer)
                break
    return bool(taken)


def _reads(exprs: list[Expr]) -> dict[Buffer, set[int]]:
    """The indices (ids of interned expressions) at which each buffer is read."""
    found: dict[Buffer, set[int]] = {}
    for e in nodes(exprs):
        if e.op == "load":
            found.setdefault(e.attr, set()).add(id(e.args[0]))
    return found


_Needed = dict[Buffer, set[Expr | None]]


def _is_needed(state: Materialized, needed: _Needed) -> bool:
    """Whether elements of an array are read later; a row is apart from what begins elsewhere."""
    bases = needed.get(state.buffer, ())
    return state.base in bases or None in bases if state.row else bool(bases)


def _needed(builder: Generation, group: "Group") -> _Needed | None:
    """The buffers that equations still to come read, and from where on; None where nobody knows yet."""
    found: _Needed = {}
    seen: set[int] = set()
    inner = scope = builder.scope
    groups = [group, *scope.groups]  # what they read is known: they are at work, or looked at apart
    while scope is not None:
        for h in scope.waiting():
            waiting = (
                h.last_use >= scope.position if scope is inner else h.last_use > scope.position
            )
            if waiting and not _add_buffers(h, found, seen, groups):
                return None
        scope = scope.outer
    return found


def _add_buffers(value: Value, found: _Needed, seen: set[int], groups: "list[Group]") -> bool:
    """Add the buffers that hold a value, or what it is computed of; whether they are known."""
    todo = [value]
    while todo:
        h = todo.pop()
        if isinstance(h.state, Materialized):
            found.setdefault(h.state.buffer, set()).add(h.state.base)
        elif isinstance(h.state, Inlined):
            if id(h) in seen:
                continue
            seen.add(id(h))
            if h.state.sources is not None:
                todo.extend(h.state.sources)
                continue
            index = tuple(scalar.var("int64") for _ in h.shape)
            try:
                for buffer in _reads([h(*index)]):  # from anywhere
                    found.setdefault(buffer, set()).add(None)
            except NeedsFlush:
                return False  # it waits for a group
        elif isinstance(h.state, Fused):
            if h is not value and h.state.group not in groups:
                return False
        elif h is not value and not isinstance(h.state, Scalars):
            return False
    return True


def read_later(stores: Sequence[Store]) -> bool:
    """Whether what is stored reads a buffer that was written before: it would be computed again."""
    written: set[Buffer] = set()
    known: dict = {}
    for s in stores:
        if written and not written.isdisjoint(buffers_read([s.value], known)):
            return True
        written.add(s.buffer)
    return False


def read_first(stores: Sequence[Stmt]) -> list[Stmt]:
    """The stores of an iteration, after all that they store has been computed."""
    values = [s.value for s in stores if isinstance(s, Store)]
    names = [scalar.var(e.dtype, "n") for e in values]
    rest = iter(names)
    after: list[Stmt] = [
        Store(s.buffer, s.index, next(rest)) if isinstance(s, Store) else s for s in stores
    ]
    return [Let(names, values), *after]
