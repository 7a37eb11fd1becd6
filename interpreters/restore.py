"""Arrays that a loop updates in place: to go backwards, only what was overwritten is kept.

Each primitive that writes into a part of its first operand has a reader of that part and a writer
that puts it back, bit by bit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fnx.core.array import Array
from fnx.core.jaxpr import Atom, Eqn, Literal, Var
from fnx.ops.dynamic_slice import (
    DynamicSlice,
    DynamicSliceAdd,
    DynamicUpdateSlice,
    dynamic_update_slice,
)
from fnx.ops.indexing import AnyScatter
from fnx.ops.scatter import Scatter
from fnx.ops.slice import Slice, SliceAdd
from fnx.ops.slice_set import SliceSet

UPDATES = (DynamicUpdateSlice, DynamicSliceAdd, SliceSet, SliceAdd, AnyScatter)


@dataclass(frozen=True)
class Places:
    """The part of an array that an update writes: `read(x, *where)`, `write(x, old, *where)`."""

    read: Callable[..., Array]
    write: Callable[..., Array]
    where: tuple[Atom, ...]


def places(e: Eqn) -> Places:
    """The places that an update writes to."""
    prim: Any = e.prim
    x, *rest = e.inputs
    if isinstance(prim, (SliceSet, SliceAdd)):
        box = (prim.start_indices, prim.limit_indices, prim.strides)
        return Places(Slice(*box), SliceSet(*box), ())
    if isinstance(prim, AnyScatter):
        indices, updates = rest
        put = prim.again(Scatter)
        reader = prim.reader(x.aval, indices.aval, updates.aval)
        return Places(reader, lambda y, old, at: put(y, at, old), (indices,))
    update, *starts = rest
    return Places(DynamicSlice(update.aval.shape), dynamic_update_slice, tuple(starts))


def written(e: Eqn) -> int:
    """How many bytes an update overwrites."""
    prim: Any = e.prim
    update = e.inputs[2 if isinstance(prim, AnyScatter) else 1]
    return update.aval.nbytes


def chain(maker: dict[Var, Eqn], start: Var, end: Atom) -> list[Eqn] | None:
    """The updates that lead from `start` to `end`, in order; None if there is anything else."""
    found: list[Eqn] = []
    while end is not start:
        e = maker.get(end) if type(end) is Var else None  # type: ignore[arg-type]
        if e is None or not isinstance(e.prim, UPDATES):
            return None
        found.append(e)
        end = e.inputs[0]
    return found[::-1] or None


def makers(eqns: Sequence[Eqn]) -> dict[Var, Eqn]:
    """The equation that makes each variable."""
    return {v: e for e in eqns for v in e.outs}


def replay_needs(steps: Sequence[Eqn]) -> list[Var]:
    """What must be known to make a chain of updates again: updates, and where they go."""
    return list(dict.fromkeys(a for e in steps for a in e.inputs[1:] if type(a) is not Literal))


def overwritten(steps: Sequence[Eqn]) -> int:
    """The bytes that a chain of updates overwrites."""
    return sum(map(written, steps))
