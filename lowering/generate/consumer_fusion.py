"""Consumer fusion: values that wait to be computed from members of a group join it.

What has one reader is computed there. Where the reader comes after the group is closed, all that it
reads of the group would be stored for it; computed with its terms, it is one array instead of several.

Source: consumer fusion of XLA; typed fusion, Kennedy & McKinley 1993.
Input: a group that is about to be closed, and the members that it would store.
Output: the group with those readers as members, if fewer arrays are stored then.
Legal when: the reader needs the members at the group's own index, and nothing that is not there yet.
Pays when: it reads two members that would be stored.
Costs: the readers are tried, and taken out again if nothing was saved.
"""

from .fusion_groups import Group, Member, squeezed
from .generation import Generation
from .values import Fused, Inlined, NeedsFlush, Value, memoised


def with_readers(
    builder: Generation, group: Group, stores: list[Member], wanted: Value | None
) -> list[Member]:
    """What a group stores when it is closed, once readers of several members have joined it."""
    joined = _readers(builder, group, {id(m.value) for m in stores})
    before = [m.value.state for m in joined if m.value is not None]
    group.members += joined
    for m in joined:
        assert m.value is not None
        m.value.state = Fused(group, memoised(m.fn))
    found = builder.stores_of(group, wanted)
    if len(found) < len(stores):
        group.note([m.expr for m in joined])
        group.regional |= any(s.regional for s in before if isinstance(s, Inlined))
        return found
    del group.members[len(group.members) - len(joined) :]
    for m, state in zip(joined, before, strict=True):
        m.value.state = state  # type: ignore[union-attr]
    return stores


def _readers(builder: Generation, group: Group, stored: set[int]) -> list[Member]:
    """Values still to be computed that pull two of the stored members at the group's own point."""
    found = []
    for h in builder.scope.waiting():
        state = h.state
        if not isinstance(state, Inlined) or squeezed(h.shape) != group.shape:
            continue
        if (
            h.destination is not None
            or h.preferred_buffer is not None
            or state.regional
            and not group.totals()
        ):
            continue
        if len(_pulled(h) & stored) < 2:
            continue
        try:
            expr = state.fn(*group.index(h.shape))
        except NeedsFlush:
            continue
        found.append(Member(h.shape, state.fn, h, builder.scope.position, "sum"))
        found[-1].expr = expr
    return found


def _pulled(value: Value) -> set[int]:
    """The ids of the values that one is computed from when it is read."""
    found: set[int] = set()
    todo = [value]
    while todo:
        state = todo.pop().state
        for h in (state.sources or ()) if isinstance(state, Inlined) else ():
            if id(h) not in found:
                found.add(id(h))
                todo.append(h)
    return found


__all__ = ["with_readers"]
