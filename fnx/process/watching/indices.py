"""Which operations take indices, what bounds these have, and the error of one that is outside."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.array import Array, ConcreteArray
from fnx.core.errors import FnxError
from fnx.core.primitive import Primitive
from fnx.core.source import Source, any_index, origin
from fnx.ops.structure.dynamic_slice import DynamicSlice, DynamicSliceAdd, DynamicUpdateSlice
from fnx.ops.structure.gather import AnyScatter, Gather
from fnx.process.watching.places import listed, where


class OutOfBounds(FnxError, IndexError):
    """An operation had an index out of bounds."""


def look_at_index(prim: Primitive, source: Source | None, args: Sequence[Array]) -> None:
    """Raise where an operation has an index out of bounds."""
    if not isinstance(prim, INDEXED) or not all(type(a) is ConcreteArray for a in args):
        return
    place = origin.get() if source is None else source
    if any_index.get() if place is None else place.takes_any_index:
        return
    index, limits, axes = bounds(prim, [a._value for a in args])  # type: ignore[attr-defined]
    for k, most, axis in zip(index, limits, axes):
        wrong = np.argwhere(np.asarray((k < 0) | (k > most)))
        if len(wrong):
            at = tuple(map(int, wrong[0]))
            first = f", the first at {list(at)} of {list(k.shape)}" if k.shape else ""
            counted = ", counted from the first element," if k[at] < 0 else ""  # -6 of 5 is -1
            error = OutOfBounds(
                f"the operation {prim.name} has index {k[at]}{counted} out of bounds for axis {axis} of "
                f"{args[0].aval.str_short()}{first}. Expected 0 to {most}."
                + where(prim.name, source, _members_of_index(prim, source, args, at))
            )
            if source is not None:
                error.source = source
            raise error


INDEXED = (Gather, AnyScatter, DynamicSlice, DynamicUpdateSlice, DynamicSliceAdd)


def bounds(prim: Any, values: Sequence[Any]) -> tuple[list, list[int], Sequence[int]]:
    """The start indices of an operation that indexes, the largest that each may be, and its axis."""
    x = values[0]
    if isinstance(prim, (Gather, AnyScatter)):
        index = [values[1][..., k] for k in range(values[1].shape[-1])]
        windows = prim.windows(*values)
        return index, list(windows.limits), windows.dims.start_index_map
    one = isinstance(prim, DynamicSlice)
    sizes: Any = prim.slice_sizes if one else values[1].shape
    limits = [n - s for n, s in zip(x.shape, sizes)]
    return list(values[1 if one else 2 :]), limits, range(len(limits))


def _members_of_index(
    prim: Any, source: Source | None, args: Sequence[Array], at: tuple[int, ...]
) -> str:
    """Which members of vmaps an index belongs to."""
    source = origin.get() if source is None else source
    if not isinstance(prim, (Gather, AnyScatter)):
        return ""
    shape = args[1].shape
    return listed(source, shape, (*at, 0)) or listed(source, shape[:-1], at)


__all__ = ["INDEXED", "OutOfBounds", "bounds", "look_at_index"]
