"""Parts of arrays in one member's program, and what moves elements between members.

An axis of size n that is cut along names of axes of members is in P parts of ceil(n / P) elements, P the
product of the names' sizes; the last parts may have fewer, and anything behind them, which nobody may read.
So the size says how an axis is cut: axes of one size are aligned.

Source: Xu et al. 2021 (GSPMD: partitioning, halo exchange, masking of uneven parts).
"""

from collections.abc import Hashable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.source import origin
from fnx.interpreters.collectives import AllGather, AllToAll, AxisIndex, PPermute, PSum
from fnx.ops.base.sharding_rule import part
from fnx.ops.elementwise.arithmetic import add, mul, rem, sub
from fnx.ops.elementwise.select import and_, eq, ge, lt, select
from fnx.ops.structure.basic import broadcast_to, convert, full, reshape, scalar, slice_axis
from fnx.ops.structure.dynamic_slice import DynamicSlice
from fnx.ops.structure.movement import (
    BitcastConvertType,
    Concatenate,
    ConvertElementType,
    Iota,
    Pad,
)

Names = tuple[Hashable, ...]
Cut = tuple[Names, ...]
_INT = np.dtype(np.int32)
# Of zeros and one number the sum of bits is that number: zeros may be negative, and keep their sign so.
_SUMMED_AS = {
    np.dtype(np.bool_): np.dtype(np.uint8),
    np.dtype(np.float16): np.dtype(np.uint16),
    np.dtype(np.float32): np.dtype(np.uint32),
    np.dtype(np.float64): np.dtype(np.uint64),
}


class Part:
    """One member's part of an array of this shape, and the names along which each axis is cut.

    `made`: of what smaller array, and by which primitive, if that may be done again.
    """

    __slots__ = ("cut", "made", "shape", "x")

    def __init__(self, x: Array, shape: Sequence[int], cut: Cut):
        self.x, self.shape, self.cut = x, tuple(shape), cut
        self.made: Any = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def aval(self) -> ShapedArray:
        return self.x.aval.update(shape=self.shape)

    def with_axis(self, axis: int, names: Names) -> Cut:
        """How it is cut, but for one axis."""
        return (*self.cut[:axis], names, *self.cut[axis + 1 :])


def whole(x: Array) -> Part:
    """An array that all members have."""
    return Part(x, x.shape, ((),) * x.ndim)


class Mover:
    """Moves elements between members of named axes of these sizes; notes what is gathered."""

    def __init__(self, sizes: Mapping[Hashable, int]):
        self.sizes = {name: n for name, n in sizes.items() if n > 1}
        self.notes: list[str] = []

    # --- what a member is

    def count(self, names: Names) -> int:
        return prod([self.sizes[n] for n in names])

    def block(self, size: int, names: Names) -> int:
        return part(size, self.count(names))

    def number(self, names: Names) -> Array:
        """The number of this member among those along these names."""
        found: Any = None
        for n in names:
            k = AxisIndex(n).apply()[0]
            found = k if found is None else add(mul(found, scalar(self.sizes[n], _INT)), k)
        return found

    def position(self, p: Part, axis: int) -> Array:
        """The place along an axis, in the whole, of each element of a part."""
        first = mul(self.number(p.cut[axis]), scalar(p.x.shape[axis], _INT))
        return add(Iota(axis, _INT, p.x.shape)(), first)

    def choose(
        self, axis: int, lo: int, hi: int, inside: Part, outside: Part, step: int = 1
    ) -> Part:
        """One part from `lo` to `hi` by steps along an axis, the other elsewhere."""
        outside = self.lay(outside, inside.cut)
        at = self.position(inside, axis)
        here = and_(ge(at, scalar(lo, _INT)), lt(at, scalar(hi, _INT)))
        if step != 1:
            here = and_(
                here, eq(rem(sub(at, scalar(lo, _INT)), scalar(step, _INT)), scalar(0, _INT))
            )
        return Part(select(here, inside.x, outside.x), inside.shape, inside.cut)

    def masked(self, p: Part, axis: int, value: Any) -> Part:
        """`value` where an uneven part has no elements."""
        size, b = p.shape[axis], p.x.shape[axis]
        if b * self.count(p.cut[axis]) == size:
            return p
        here = lt(self.position(p, axis), scalar(size, _INT))
        value = value if isinstance(value, Array) else scalar(value, p.x.dtype)
        return Part(select(here, p.x, value), p.shape, p.cut)

    # --- from one way to be cut to another

    def lay(self, p: Part, cut: Cut) -> Part:
        """The same array, cut otherwise."""
        if p.cut == cut:
            return p
        moved = self._all_to_all(p, cut)
        if moved is not None:
            return moved
        for axis in range(p.ndim):
            if p.cut[axis] and p.cut[axis] != cut[axis]:
                p = self.gather(p, axis)
        for axis in range(p.ndim):
            if cut[axis] and not p.cut[axis]:
                p = self.moved(p, p.with_axis(axis, cut[axis]), axis, 0, p.shape[axis])
        return p

    def _all_to_all(self, p: Part, cut: Cut) -> Part | None:
        """Where names go from one axis to another, the innermost first, and all parts are even."""
        changed = [k for k in range(p.ndim) if p.cut[k] != cut[k]]
        if len(changed) != 2:
            return None
        old, new = sorted(changed, key=lambda k: len(cut[k]) - len(p.cut[k]))
        names = p.cut[old][len(cut[old]) :]
        if cut[old] + names != p.cut[old] or p.cut[new] + names[::-1] != cut[new] or not names:
            return None
        if p.shape[old] % self.count(p.cut[old]) or p.shape[new] % self.count(cut[new]):
            return None
        self.note("all_to_all", p, names, p.x.aval.nbytes)
        x = p.x
        for name in reversed(names):
            x = AllToAll(None, name, self.sizes[name], old, new, True)(x)
        return Part(x, p.shape, cut)

    def gather(self, p: Part, axis: int) -> Part:
        """The same array, whole along an axis."""
        names, size = p.cut[axis], p.shape[axis]
        if not names:
            return p
        x = p.x
        if x.shape[axis] > size:
            x = slice_axis(x, 0, size, axis)
        for name in reversed(names):
            x = AllGather(axis, None, name, self.sizes[name], True)(x)
        self.note("all_gather", p, names, x.aval.nbytes)
        if x.shape[axis] > size:
            x = slice_axis(x, 0, size, axis)
        return Part(x, p.shape, p.with_axis(axis, ()))

    def gathered(self, p: Part) -> Part:
        """The same array, whole."""
        return self.lay(p, ((),) * p.ndim)

    def rows(self, x: Array, names: Names) -> Array:
        """What all members along these names have, stacked along a new axis 0."""
        shape = x.shape
        for name in reversed(names):
            x = AllGather(0, None, name, self.sizes[name], False)(x)
        return reshape(x, (self.count(names), *shape))

    def own(self, rows: Array, names: Names) -> Array:
        """This member's row of what all along names have."""
        return slice0(sliced(rows, 0, self.number(names), 1), 0)

    def can_sum(self, dtype: np.dtype) -> bool:
        """Whether `total` is exact: of complex numbers the sign of zeros would be lost."""
        return dtype in _SUMMED_AS or dtype.kind in "iu"

    def total(self, x: Array, names: Names) -> Array:
        """What the one member has that has not zeros, in all of them, to the bit."""
        kind = _SUMMED_AS.get(x.dtype)
        if kind is None:
            return PSum(names)(x)
        if x.dtype == np.bool_:
            return convert(PSum(names)(convert(x, kind)), x.dtype)
        return BitcastConvertType(x.dtype)(PSum(names)(BitcastConvertType(kind)(x)))

    def first(self, p: Part, names: Sequence[Hashable]) -> Part:
        """What the first member along names has, in all of them."""
        return Part(slice0(self.rows(p.x, tuple(names)), 0), p.shape, p.cut)

    def note(self, what: str, p: Part, names: Names, nbytes: int) -> None:
        source = origin.get()
        at = f" at {source}" if source is not None else ""
        along = ", ".join(map(str, names))
        of = p.aval.update(weak_type=False).str_short()
        self.notes.append(f"{what} of {of} along {along}: {nbytes} bytes a device{at}")

    # --- elements from other places along an axis

    def window(self, p: Part, axis: int, offset: int, size: int, fill: Part | None = None) -> Part:
        """The array whose element i along an axis is element i + offset of this one, or the fill."""
        n, names = p.shape[axis], p.cut[axis]
        b = p.x.shape[axis]
        shape = (*p.shape[:axis], size, *p.shape[axis + 1 :])
        if not size:
            empty = (*p.x.shape[:axis], 0, *p.x.shape[axis + 1 :])
            return Part(full(empty, 0, p.x.dtype), shape, p.with_axis(axis, ()))
        inside = offset >= 0 and offset + size <= n
        count = self.count(names)
        if names and inside and (size * count <= b or size <= min(b, count - 1)):
            return Part(self._few(p, axis, offset, size), shape, p.with_axis(axis, ()))
        lo, hi = max(0, -offset), max(0, size + offset - n)
        before, after = [None if fill is None else self._filled(p, axis, m, fill) for m in (lo, hi)]
        found = self.near(p, axis, offset, size, before, after) if names else None
        if found is not None:
            return Part(found, shape, p.cut)
        if names and inside and size <= b:
            few = Part(self._few(p, axis, offset, size), shape, p.with_axis(axis, ()))
            return self.lay(few, p.cut) if size % count == 0 else few
        p = self.gather(p, axis)
        value = scalar(0, p.x.dtype) if fill is None else fill.x
        config = [(0, 0, 0)] * p.ndim
        config[axis] = (-offset, size + offset - n, 0)
        found = Part(Pad(tuple(config))(p.x, value), shape, p.cut)
        even = names and size % count == 0
        return self.lay(found, found.with_axis(axis, names)) if even else found

    def _filled(self, p: Part, axis: int, size: int, fill: Part) -> Array:
        shape = (*p.x.shape[:axis], size, *p.x.shape[axis + 1 :])
        return broadcast_to(fill.x, shape)

    def _few(self, p: Part, axis: int, offset: int, size: int) -> Array:
        """A few elements along an axis, for all members: from the one or two who have them."""
        b, names = p.x.shape[axis], p.cut[axis]
        found = []
        while size:
            k, r = divmod(offset, b)
            m = min(size, b - r)
            piece = slice_axis(p.x, r, r + m, axis)
            if m * self.count(names) > b and self.can_sum(p.x.dtype):
                nothing = full(piece.shape, 0, piece.dtype)
                found.append(self.total(self._where(names, k, piece, nothing), names))
            else:
                found.append(slice0(self.rows(piece, names), k))
            offset, size = offset + m, size - m
        return found[0] if len(found) == 1 else Concatenate(axis)(*found)

    def near(
        self,
        p: Part,
        axis: int,
        offset: int,
        size: int,
        before: Array | None = None,
        after: Array | None = None,
        more: int = 0,
    ) -> Array | None:
        """The part of a window for which members need what their next neighbours have (halo exchange).

        `before` and `after` lie at both ends of the array. Each member gets so many `more` elements
        after its part. None where other members than neighbours have them.
        """
        names, n, b = p.cut[axis], p.shape[axis], p.x.shape[axis]
        count = self.count(names)
        new, last = self.block(size, names), n - (count - 1) * b
        ends = offset, offset + (count - 1) * (new - b)
        left, right = max(0, -min(ends)), max(0, max(ends) + new + more - b)
        if left > b or right > b:
            return None
        own, beyond = p.x, None
        if after is not None and after.shape[axis]:
            if last <= 0:
                return None
            own, beyond = self._ended(p, axis, last, right, after)
        pieces = [own]
        if left:
            halo = self._from(slice_axis(own, b - left, b, axis), names, 1)
            if before is not None and before.shape[axis]:
                m = before.shape[axis]
                mine = (
                    padded(before, axis, left - m, 0)
                    if m < left
                    else slice_axis(before, m - left, m, axis)
                )
                halo = self._where(names, 0, mine, halo)
            pieces.insert(0, halo)
        if right:
            halo = self._from(slice_axis(own, 0, right, axis), names, -1)
            if beyond is not None:
                halo = self._where(names, count - 1, beyond, halo)
            pieces.append(halo)
        start = left + offset
        if new == b:
            return between(pieces, axis, start, start + new + more)
        x = pieces[0] if len(pieces) == 1 else Concatenate(axis)(*pieces)
        at = add(mul(self.number(names), scalar(new - b, _INT)), scalar(start, _INT))
        return sliced(x, axis, at, new + more)

    def _ended(self, p: Part, axis: int, last: int, right: int, after: Array) -> tuple[Array, Any]:
        """A part with what comes after the last member's `last` elements, in that one; and the rest."""
        b, own = p.x.shape[axis], p.x
        m, room = after.shape[axis], b - last + right
        more = padded(after, axis, 0, room - m) if m < room else slice_axis(after, 0, room, axis)
        if last < b:
            tail = self._where(
                p.cut[axis],
                self.count(p.cut[axis]) - 1,
                slice_axis(more, 0, b - last, axis),
                slice_axis(own, last, b, axis),
            )
            own = Concatenate(axis)(slice_axis(own, 0, last, axis), tail) if last else tail
        return own, slice_axis(more, b - last, room, axis)

    def _where(self, names: Names, k: int, mine: Array, others: Array) -> Array:
        """One array in member k along names, another in the others."""
        return select(eq(self.number(names), scalar(k, _INT)), mine, others)

    def _from(self, x: Array, names: Names, step: int) -> Array:
        """What the neighbour `step` before has; zeros where there is none."""
        *outer, name = names
        n = self.sizes[name]
        near = PPermute(name, tuple([(k, k + step) for k in range(n) if 0 <= k + step < n]))(x)
        if not outer:
            return near
        # The neighbour of the one at the end of the innermost axis is at the other end, one further out.
        last, first = (n - 1, 0) if step > 0 else (0, n - 1)
        far = self._from(PPermute(name, ((last, first),))(x), tuple(outer), step)
        return self._where((name,), first, far, near)

    def moved(self, p: Part, cut: Cut, axis: int, offset: int, size: int) -> Part:
        """As `window`, with the result cut so along the axis, anything where there is no element."""
        p = self.lay(p, tuple([p.cut[axis] if k == axis else c for k, c in enumerate(cut)]))
        shape = (*p.shape[:axis], size, *p.shape[axis + 1 :])
        names = cut[axis]
        if p.cut[axis] == names:
            found = self.near(p, axis, offset, size)
            if found is not None:
                return Part(found, shape, cut)
        p = self.gather(p, axis)
        new = self.block(size, names)
        at = mul(self.number(names), scalar(new, _INT))
        if not offset and self.count(names) * new == size == p.shape[axis]:
            return Part(sliced(p.x, axis, at, new), shape, cut)
        # A slice that sticks out would be moved inside: there is room at both ends.
        x = padded(p.x, axis, new, new)
        return Part(sliced(x, axis, add(at, scalar(offset + new, _INT)), new), shape, cut)

    def turned(self, p: Part, axis: int) -> Part:
        """The parts along an axis in the reverse order, without what is behind the last element."""
        x, size = p.x, p.shape[axis]
        for name in p.cut[axis]:
            n = self.sizes[name]
            x = PPermute(name, tuple([(k, n - 1 - k) for k in range(n)]))(x)
        room = x.shape[axis] * self.count(p.cut[axis])
        if room == size:
            return Part(x, p.shape, p.cut)
        shape = (*p.shape[:axis], room, *p.shape[axis + 1 :])
        return self.window(Part(x, shape, p.cut), axis, room - size, size)

    def rotated(self, p: Part, axis: int, by: int) -> Part | None:
        """The array whose element i along an axis is element i + by of this one, around its ends.

        None unless it is cut evenly.
        """
        names, b = p.cut[axis], p.x.shape[axis]
        if b * self.count(names) != p.shape[axis] or not b:
            return None
        q, r = divmod(by, b)
        pieces = [self._around(slice_axis(p.x, r, b, axis), names, q)]
        if r:
            pieces.append(self._around(slice_axis(p.x, 0, r, axis), names, q + 1))
        return Part(between(pieces, axis, 0, b), p.shape, p.cut)

    def _around(self, x: Array, names: Names, step: int) -> Array:
        """What the member has that is `step` further along a ring."""
        *outer, name = names
        n = self.sizes[name]
        turns, step = divmod(step, n)
        if step:
            x = PPermute(name, tuple([((k + step) % n, k) for k in range(n)]))(x)
        if not outer:
            return x
        near = self._around(x, tuple(outer), turns)
        if not step:
            return near
        here = lt(self.number((name,)), scalar(n - step, _INT))
        return select(here, near, self._around(x, tuple(outer), turns + 1))

    def typed(self, p: Part, aval: ShapedArray) -> Part:
        """The same, as weak as a type says."""
        if p.x.weak_type == aval.weak_type:
            return p
        return Part(ConvertElementType(aval.dtype, aval.weak_type)(p.x), p.shape, p.cut)


def slice0(x: Array, k: int) -> Array:
    """Row k."""
    return reshape(slice_axis(x, k, k + 1, 0), x.shape[1:])


def between(pieces: Sequence[Array], axis: int, lo: int, hi: int) -> Array:
    """Elements `lo` to `hi` of arrays one after the other."""
    found = []
    for x in pieces:
        n = x.shape[axis]
        first, last = max(lo, 0), min(hi, n)
        if first < last:
            found.append(x if (first, last) == (0, n) else slice_axis(x, first, last, axis))
        lo, hi = lo - n, hi - n
    if not found:
        return slice_axis(pieces[0], 0, 0, axis)
    return found[0] if len(found) == 1 else Concatenate(axis)(*found)


def padded(x: Array, axis: int, lo: int, hi: int) -> Array:
    """With zeros at both ends of an axis."""
    config = [(0, 0, 0)] * x.ndim
    config[axis] = (lo, hi, 0)
    return Pad(tuple(config))(x, convert(scalar(0, x.dtype), x.dtype)) if lo or hi else x


def sliced(x: Array, axis: int, start: Array, size: int) -> Array:
    """So many elements along an axis from a start on, moved inside where they stick out."""
    starts = [scalar(0, _INT)] * x.ndim
    starts[axis] = start  # type: ignore[call-overload]
    return DynamicSlice((*x.shape[:axis], size, *x.shape[axis + 1 :]))(x, *starts)


__all__ = ["Cut", "Mover", "Names", "Part", "whole"]
