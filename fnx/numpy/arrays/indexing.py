"""Indexing: x[...] and the reading half of x.at[...], by primitives."""

from dataclasses import replace
from types import EllipsisType
from typing import Any

import numpy as np

from fnx.core.array import Array, ConcreteArray, unless_placed, when_placed
from fnx.core.errors import FnxError, hide_frames
from fnx.core.fast_dataclasses import dataclass
from fnx.core.interpreter import current, evaluate
from fnx.core.source import brief
from fnx.numpy.arrays.index_plan import BadIndex, BadIndexType, Plan, inside, plan
from fnx.numpy.arrays.util import INT, Shape, common_shape
from fnx.ops.base.broadcast import broadcast_to, insert_axes, scalar
from fnx.ops.base.permute import Reshape, Rev, Squeeze
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.structure.dynamic_slice import DynamicSlice
from fnx.ops.structure.gather import Gather
from fnx.ops.structure.gather_dimension_numbers import (
    FILL,
    GatherDimensionNumbers,
    GatherScatterMode,
)
from fnx.ops.structure.join import Concatenate
from fnx.ops.structure.slice import Slice

BASIC = (int, slice, type(None), EllipsisType)


def refuse_lists(index: Any) -> None:
    """Raise unless an index is one that JAX's arrays take: lists alone are none."""
    if isinstance(index, (list, str)):
        raise BadIndexType(
            f"an array indexed by {type(index).__name__} {brief(index, 40)}; expected an array: "
            "x[fnx.numpy.array(...)]"
        )


def getitem(x: Array, index: Any) -> Array:
    """x[index]: slices, integers, masks, arrays, None and ... as NumPy has them.

    Integers that are out of bounds read the nearest element, as in JAX.
    """
    if type(x) is ConcreteArray and current.get() is evaluate:
        found = _eager(x, index)
        if found is not None:
            return found
    try:
        refuse_lists(index)
        return read(x, inside(plan(x.shape, index)))
    except FnxError as error:
        hide_frames(error)
        raise


def _eager(x: ConcreteArray, index: Any) -> ConcreteArray | None:
    """NumPy's own indexing, where it means the same."""
    kind = type(index)
    if kind is tuple:
        for p in index:
            if type(p) not in BASIC:
                return None
    elif kind not in BASIC:
        if kind is not ConcreteArray or index._value.ndim == 0:
            return None
        index = index._value
        if index.dtype.kind not in "iub":
            return None
    try:
        out = x._value[index]
    except (IndexError, TypeError, ValueError):
        return None  # out of bounds, or an error that the plan explains better
    if type(out) is not np.ndarray or not out.flags.c_contiguous:
        out = np.array(out, order="C")
    return ConcreteArray(out, x.weak_type)


def _see_placed() -> None:
    global _eager  # noqa: PLW0603
    _eager = unless_placed(_eager)


when_placed(_see_placed)


def read(
    x: Array, p: Plan, mode: Any = None, fill_value: Any = None, flags: tuple = (False, False)
) -> Array:
    """The elements that a plan names."""
    if p.has_arrays or (mode is not None and _has_numbers(p)):
        return _gather(x, p, mode, fill_value, flags)
    if p.new_axes and not p.shape:
        return x
    if any([type(e) is int and not 0 <= e < n for e, n in zip(p.entries, p.shape)]):
        # Clamped when it runs, so that checkify sees that it is out of bounds.
        outside = [type(e) is int and not 0 <= e < n for e, n in zip(p.entries, p.shape)]
        entries = [scalar(e, INT) if out else e for e, out in zip(p.entries, outside)]
        p = replace(p, entries=tuple(entries))
    lo, hi, steps, rev, kept = box_of(p)
    shape = x.shape
    if p.new_axes:
        # New axes are left to the end: the box is that of the operand's own axes.
        own = [k for k in range(len(p.shape)) if k not in p.new_axes]
        lo, hi, steps = ([v[k] for k in own] for v in (lo, hi, steps))
        rev = [own.index(k) for k in rev]
    if tuple(hi) != shape or any(lo) or any(s != 1 for s in steps):
        strides = tuple(steps) if any(s != 1 for s in steps) else None
        x = Slice(tuple(lo), tuple(hi), strides)(x)
    if rev:
        x = Rev(tuple(rev))(x)
    dynamic = {k: e for k, e in enumerate(p.entries) if isinstance(e, Array)}
    for k in dynamic:
        if not p.shape[k]:
            raise BadIndex(f"index of axis {k}, of size 0; there is no element to read")
    if dynamic:
        own = [k for k in range(len(p.shape)) if k not in p.new_axes]
        starts = [dynamic.get(k, _ZERO) for k in own]
        sizes = tuple([1 if k in dynamic else n for k, n in zip(own, x.shape)])
        x = DynamicSlice(sizes)(x, *starts)
    return _shape_result(x, p, kept)


_ZERO = scalar(0, INT)


def _has_numbers(p: Plan) -> bool:
    return any([not isinstance(e, slice) for e in p.entries])


def box_of(p: Plan) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """The static box of a plan: starts, limits, strides, reversed axes, axes that the result keeps.

    Integers that are out of bounds are clamped; axes with dynamic indices are whole.
    """
    lo, hi, steps, rev, kept = [], [], [], [], []
    for k, (e, n) in enumerate(zip(p.entries, p.shape)):
        if isinstance(e, slice):
            a, b, s, reverse = _forward(e)
            if reverse:
                rev.append(k)
            kept.append(k)
        elif type(e) is int:
            a = min(max(e, 0), n - 1)
            if n == 0:
                raise BadIndex(f"index {e} of an axis of size 0; there is no element to read")
            b, s = a + 1, 1
        else:
            a, b, s = 0, n, 1
        lo.append(a)
        hi.append(b)
        steps.append(s)
    return lo, hi, steps, rev, kept


def _forward(e: slice) -> tuple[int, int, int, bool]:
    """Start, limit and positive step of a canonical slice; and whether it runs backwards."""
    a, b, s = e.start, e.stop, e.step
    count = len(range(a, b, s))
    if count == 0:
        return min(a, b) if min(a, b) >= 0 else 0, min(a, b) if min(a, b) >= 0 else 0, 1, False
    last = a + (count - 1) * s
    if s < 0:
        return last, a + 1, -s if count > 1 else 1, True
    return a, last + 1, s if count > 1 else 1, False


def _shape_result(x: Array, p: Plan, kept: list[int]) -> Array:
    """Without the axes of integers, with the new ones."""
    own = [k for k in range(len(p.shape)) if k not in p.new_axes]
    gone = tuple([i for i, k in enumerate(own) if k not in kept])
    if not p.new_axes:
        return Squeeze(gone)(x) if gone else x
    if not gone:
        return insert_axes(x, p.new_axes)
    sizes = iter(x.shape)
    full = {k: next(sizes) for k in own}
    return Reshape(tuple([full.get(k, 1) for k in kept]))(x)


# --- gather and scatter ------------------------------------------------------------------------


@dataclass(frozen=True)
class Windows:
    """A plan as the windows of a gather or scatter.

    Index vectors count along `mapped` axes; `gone` axes (mapped or of size 1) leave no axis in the
    result; the batch axes stand at `at` of the result; `sizes` are those of the windows.
    """

    mapped: Shape
    gone: Shape
    at: int
    batch: Shape
    sizes: Shape

    def dims(self) -> GatherDimensionNumbers:
        rank = len(self.batch) + len(self.sizes) - len(self.gone)
        lanes = range(self.at, self.at + len(self.batch))
        offset = tuple([a for a in range(rank) if a not in lanes])
        return GatherDimensionNumbers(offset, self.gone, self.mapped)

    def shape(self) -> Shape:
        rest = [n for k, n in enumerate(self.sizes) if k not in self.gone]
        return (*rest[: self.at], *self.batch, *rest[self.at :])


def windows(p: Plan, keep_offsets: bool) -> tuple[Windows, list]:
    """The windows, and what stands in their index vectors, one entry per mapped axis.

    With `keep_offsets` static slices and integers count in the index vectors (for scatters); else
    the operand is sliced before, and they do not.
    """
    advanced = [k for k, e in enumerate(p.entries) if not isinstance(e, slice)]
    mapped, columns, sizes = [], [], []
    for k, (e, n) in enumerate(zip(p.entries, p.shape)):
        if isinstance(e, slice):
            count = len(range(e.start, e.stop, e.step))
            sizes.append(count)
            if keep_offsets and count != n:
                mapped.append(k)
                columns.append(e.start)
        else:
            sizes.append(1 if n else 0)
            if keep_offsets or type(e) is not int:
                mapped.append(k)
                columns.append(e)
    shapes = [e.shape for e in columns if not isinstance(e, int)]
    batch = common_shape("indexing", shapes) if shapes else ()
    arrays = [k for k in advanced if not isinstance(p.entries[k], int) or p.has_arrays]
    together = bool(arrays) and not p.apart and arrays == list(range(arrays[0], arrays[-1] + 1))
    at = arrays[0] if together else 0
    return Windows(tuple(mapped), tuple(advanced), at, batch, tuple(sizes)), columns


def index_vectors(columns: list, batch: Shape) -> Array:
    """Index columns, numbers or arrays, as one array of shape (*batch, number of columns)."""
    if all([isinstance(c, (int, np.ndarray)) for c in columns]):
        stacked = [np.broadcast_to(np.asarray(c, INT), batch) for c in columns]
        out = np.stack(stacked, -1) if columns else np.zeros((*batch, 0), INT)
        return ConcreteArray(np.ascontiguousarray(out))
    arrays = []
    for c in columns:
        if isinstance(c, int):
            c = scalar(c, INT)
        elif isinstance(c, np.ndarray):
            c = ConcreteArray(np.ascontiguousarray(c) if c.ndim else c)
        arrays.append(Reshape((*batch, 1))(broadcast_to(ops.convert(c, INT), batch)))
    return arrays[0] if len(arrays) == 1 else Concatenate(len(batch))(*arrays)


def _gather(x: Array, p: Plan, mode: Any, fill_value: Any, flags: tuple) -> Array:
    own = Plan((), p.shape, p.entries, (), p.apart)
    if p.new_axes:
        x = insert_axes(x, p.new_axes)
    strided = any([isinstance(e, slice) and e.step != 1 for e in p.entries])
    exact = mode is None or GatherScatterMode.from_any(mode) is not FILL
    if strided or exact:
        x, own = _sliced(x, own, exact)
    w, columns = windows(own, keep_offsets=not exact)
    how = GatherScatterMode.PROMISE_IN_BOUNDS if mode is None else GatherScatterMode.from_any(mode)
    fill = None if fill_value is None else _static_fill(fill_value)
    if any([n == 0 for n in w.sizes]) or 0 in w.batch:
        from fnx.ops.base.broadcast import full

        return full(w.shape(), 0, x.dtype)
    sort, unique = flags
    gather = Gather(w.dims(), fill, sort, how, w.sizes, unique)
    return gather(x, index_vectors(columns, w.batch))


def _static_fill(value: Any) -> Any:
    if isinstance(value, Array):
        value = np.asarray(value).item()
    return value.item() if isinstance(value, np.generic) else value


def _sliced(x: Array, p: Plan, ints_too: bool) -> tuple[Array, Plan]:
    """The operand sliced by the plan's slices (and integers), and the plan of what is left."""
    first = [
        e if isinstance(e, slice) or (ints_too and type(e) is int) else None for e in p.entries
    ]
    lo, hi, steps, rev, _ = box_of(
        Plan(
            (), p.shape, tuple([slice(0, n, 1) if e is None else e for e, n in zip(first, p.shape)])
        )
    )
    if tuple(hi) != x.shape or any(lo) or any(s != 1 for s in steps):
        strides = tuple(steps) if any(s != 1 for s in steps) else None
        x = Slice(tuple(lo), tuple(hi), strides)(x)
    if rev:
        x = Rev(tuple(rev))(x)
    rest = [
        e if f is None else 0 if type(f) is int else slice(0, n, 1)
        for e, f, n in zip(p.entries, first, x.shape)
    ]
    return x, Plan((), x.shape, tuple(rest), (), p.apart)


__all__ = [
    "BadIndex",
    "BadIndexType",
    "Plan",
    "Windows",
    "getitem",
    "index_vectors",
    "plan",
    "read",
    "windows",
]
