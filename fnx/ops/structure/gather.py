"""Gather, and the scatter-add that is its transpose; the other scatters build on these."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fnx.core import dtypes, scalar
from fnx.core.array import Array, ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.cost import INDIRECT
from fnx.core.errors import TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import AddTo, Primitive, Undefined
from fnx.core.recipe import Operand, Point, Recipe, Reshape, Update
from fnx.core.scalar import Expr
from fnx.core.threads.fork_safety import cached_property
from fnx.ops.base.broadcast import typed_zeros
from fnx.ops.base.sharding_rule import Factors, part
from fnx.ops.structure import indices_in_parts
from fnx.ops.structure.basic import broadcast_axis, move_axis
from fnx.ops.structure.gather_dimension_numbers import (
    FILL,
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
    Shape,
    Windows,
    as_scatter,
    check_indices,
    default_fill,
    scatter_windows,
    windows,
)


def _up(axes: Shape) -> Shape:
    return tuple([a + 1 for a in axes])


@dataclass(frozen=True)
class Gather(Primitive):
    """Windows of an operand at the positions that the index vectors (last axis of indices) name."""

    dimension_numbers: GatherDimensionNumbers
    fill_value: Any
    indices_are_sorted: bool
    mode: GatherScatterMode
    slice_sizes: Shape
    unique_indices: bool
    name = "gather"
    cost = INDIRECT
    moves = True
    typed_by = slice(0, 1)  # type: ignore[assignment]

    def windows(self, x: Any, indices: Any) -> Windows:
        return windows(self.dimension_numbers, x.shape, indices.shape, self.slice_sizes)

    @cached_property
    def _plans(self) -> dict[tuple[Shape, Shape, np.dtype], Windows]:
        return {}  # by the shapes of the operands

    def _plan(self, x: np.ndarray, indices: np.ndarray) -> Windows:
        check_indices(self.name, indices.dtype)
        if len(self._plans) > 1000:
            self._plans.clear()
        found = self._plans[x.shape, indices.shape, indices.dtype] = self.windows(x, indices)
        return found

    def fill(self, dtype: np.dtype) -> Any:
        return default_fill(dtype) if self.fill_value is None else self.fill_value

    def abstract(self, x: ShapedArray, indices: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        check_indices("gather", indices.dtype)
        return (ShapedArray(self.windows(x, indices).shape, x.dtype, x.weak_type),)

    def impl(self, x: np.ndarray, indices: np.ndarray) -> np.ndarray:  # type: ignore[override]
        w = self._plans.get((x.shape, indices.shape, indices.dtype)) or self._plan(x, indices)
        if not x.size:
            return np.full(w.shape, self.fill(x.dtype), x.dtype)
        if w.single:
            box, inside = w.box(indices)
            if inside or self.mode is not FILL:
                out = x[box].reshape(w.shape)
                return out if out.flags.c_contiguous else out.copy()
            return np.full(w.shape, self.fill(x.dtype), x.dtype)
        at, good = w.positions(indices, self.mode)
        if not w.plain:
            x = x.reshape(*w.before, w.block_size, *w.after)
        out = x.take(at, axis=w.lo, mode="clip")
        if good is not None:
            good = good.reshape(*good.shape, *(1,) * (len(w.inner_shape) + len(w.after)))
            out = np.where(good, out, np.asarray(self.fill(x.dtype), x.dtype))
        return out if w.perm is None else out.transpose(w.perm).copy()

    def linear(self) -> "Gather":
        """The same for tangents, which are zero where the result is filled."""
        if self.mode is not FILL:
            return self
        return Gather(self.dimension_numbers, 0, *self._flags())

    def _flags(self) -> tuple:
        return self.indices_are_sorted, self.mode, self.slice_sizes, self.unique_indices

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        (x, indices), t = primals, tangents[0]
        return (self(x, indices),), (None if t is None else self.linear()(t, indices),)

    def transpose(self, cts: tuple, x: Undefined, indices: Array) -> tuple:  # type: ignore[override]
        dims = as_scatter(self.dimension_numbers)
        add = ScatterAdd(dims, self.indices_are_sorted, self.mode, self.unique_indices)
        ct, into = cts[0], None
        if type(ct) is ConcreteArray and type(indices) is ConcreteArray:
            into = partial(_add_into, add, indices._value, ct._value)
        return AddTo(x.aval, lambda acc: add(acc, indices, ct), into), None

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        (x, indices), (ax, ai) = args, axes
        n, both = self.dimension_numbers, ax is not None and ai is not None
        x = x if ax is None else move_axis(x, ax, 0)
        indices = indices if ai is None else move_axis(indices, ai, 0)
        dims = batched_dims(n, ax is not None, ai is not None)
        sizes = self.slice_sizes
        if ax is not None:
            sizes = (1 if both else size, *sizes)
        # Members that read from one operand may read the same elements, each in an order of its own.
        new = Gather(
            dims, self.fill_value, self.indices_are_sorted and ai is None, self.mode, sizes,
            self.unique_indices and (both or ai is None),
        )  # fmt: skip
        return (new(x, indices),), (0,)

    def sharding(self, x: ShapedArray, indices: ShapedArray) -> Factors:
        """Axes that are read whole, and the index vectors, one result each."""
        n = self.dimension_numbers
        inside = [
            k
            for k in range(x.ndim)
            if k not in n.collapsed_slice_dims and k not in n.operand_batching_dims
        ]
        rank = len(n.offset_dims) + indices.ndim - 1
        outer = iter([d for d in range(rank) if d not in n.offset_dims])
        picks = tuple([("i", k) for k in range(indices.ndim - 1)])
        xs: list = [None] * x.ndim
        for k, i in zip(n.operand_batching_dims, n.start_indices_batching_dims, strict=True):
            xs[k] = picks[i]
        out: list = [None] * rank
        for k, d in zip(inside, n.offset_dims, strict=True):
            if self.slice_sizes[k] == x.shape[k]:
                xs[k] = out[d] = ("x", k)
        for pick in picks:
            out[next(outer)] = pick

        def local(parts: Mapping) -> Gather:
            sizes = [part(m, parts.get(("x", k), 1)) for k, m in enumerate(self.slice_sizes)]
            return replace(self, slice_sizes=tuple(sizes))

        exact = {pick: indices.shape[pick[1]] for pick in picks}
        return Factors((tuple(xs), (*picks, None)), (tuple(out),), {}, exact, local)

    def along(self, grid: Any, parts: Sequence[Any]) -> list | None:
        return indices_in_parts.gather(self, grid, parts)

    def lower(self, x: Operand, indices: Operand) -> Recipe:  # type: ignore[override]
        w = self.windows(x, indices)
        empty = 0 in x.shape
        fill = None
        if self.mode is FILL or empty:
            fill = scalar.literal(self.fill(dtypes.canonical(x.dtype)), x.dtype)

        def element(*index: Expr) -> Expr:
            if empty:
                return fill
            at, inside = w.element(indices, index, self.mode)
            return x(*at) if fill is None else scalar.select(inside, x(*at), fill)

        return Point(element)


def _add_into(add: "ScatterAdd", indices: np.ndarray, ct: np.ndarray, out: np.ndarray) -> None:
    add.write(out, indices, ct)


def batched_dims(n: GatherDimensionNumbers, x: bool, indices: bool) -> GatherDimensionNumbers:
    """Dimension numbers for an operand and indices that have (or lack) a batch axis, axis 0."""
    offset, collapsed, index_map = _up(n.offset_dims), n.collapsed_slice_dims, n.start_index_map
    x_batch, i_batch = n.operand_batching_dims, n.start_indices_batching_dims
    if x:
        collapsed, index_map, x_batch = _up(collapsed), _up(index_map), _up(x_batch)
    if indices:
        i_batch = _up(i_batch)
    if x and indices:
        x_batch, i_batch = (0, *x_batch), (0, *i_batch)
    elif x:
        offset = (0, *offset)
    return GatherDimensionNumbers(offset, collapsed, index_map, x_batch, i_batch)


@dataclass(frozen=True)
class AnyScatter(Primitive):
    """An operand with windows of updates combined into it; a subclass says how."""

    dimension_numbers: ScatterDimensionNumbers
    indices_are_sorted: bool
    mode: GatherScatterMode
    unique_indices: bool
    update_operand = 2
    ufunc = None  # of (old, new); None replaces
    typed_by = slice(0, None, 2)  # type: ignore[assignment]
    combine = None  # the same, of expressions

    def windows(self, x: Any, indices: Any, updates: Any) -> Windows:
        return scatter_windows(self.dimension_numbers, x.shape, indices.shape, updates.shape)

    def abstract(self, x: ShapedArray, indices: ShapedArray, updates: ShapedArray) -> tuple:  # type: ignore[override]
        check_indices(self.name, indices.dtype)
        if x.dtype != updates.dtype:
            raise TypeMismatch(
                f"{self.name} needs updates of the operand's dtype {x.dtype}, not {updates.dtype}; "
                "convert them with .astype"
            )
        self.windows(x, indices, updates)
        weak = x.weak_type and updates.weak_type
        return (ShapedArray(x.shape, x.dtype, weak),)

    def sharding(self, x: ShapedArray, indices: ShapedArray, updates: ShapedArray) -> Factors:
        """Axes that are written whole."""
        n = self.dimension_numbers
        gone = (*n.inserted_window_dims, *n.operand_batching_dims)
        inside = [k for k in range(x.ndim) if k not in gone]
        xs: list = [None] * x.ndim
        us: list = [None] * updates.ndim
        for k, d in zip(inside, n.update_window_dims, strict=True):
            if x.shape[k] == updates.shape[d]:
                xs[k] = us[d] = k
        return Factors((tuple(xs), (None,) * indices.ndim, tuple(us)), (tuple(xs),))

    def along(self, grid: Any, parts: Sequence[Any]) -> list | None:
        return indices_in_parts.scatter(self, grid, parts)

    def impl(self, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:  # type: ignore[override]
        check_indices(self.name, indices.dtype)
        out = x.copy()
        self.write(out, indices, updates)
        return out

    def write(self, out: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> None:
        """Combine updates into `out` in place."""
        w = self.windows(out, indices, updates)
        if not updates.size or not out.size:
            return
        if w.single:
            box, inside = w.box(indices)
            if inside or self.mode is not FILL:
                self._combine(out, box, updates.reshape(w.sizes))
            return
        mode = self.mode if self.mode is FILL else GatherScatterMode.CLIP
        at, good = w.positions(indices, mode)
        if w.perm is not None:
            updates = updates.transpose(w.made)
        view = out.reshape(*w.before, w.block_size, *w.after)
        batch, inner = w.batch_shape, w.inner_shape
        if good is not None:
            good = good.reshape(-1)
            at = np.broadcast_to(at, (*batch, *inner)).reshape(good.size, *inner)[good]
            updates = updates.reshape(*w.before, good.size, *inner, *w.after)
            updates = updates.compress(good, axis=len(w.before))
        if self.ufunc is None or self.unique_indices:
            self._combine(view, (*(slice(None),) * len(w.before), at), updates)
        else:
            accumulate_at(self.ufunc, out, w, at, updates)

    def _combine(self, out: np.ndarray, at: tuple, updates: np.ndarray) -> None:
        if self.ufunc is None:
            out[at] = updates
        else:
            out[at] = self.ufunc(out[at], updates)

    def again(self, kind: type["AnyScatter"], **changes: Any) -> Any:
        """A scatter of another kind at the same places."""
        given = {
            "dimension_numbers": self.dimension_numbers,
            "indices_are_sorted": self.indices_are_sorted,
            "mode": self.mode,
            "unique_indices": self.unique_indices,
        }
        return kind(**(given | changes))

    def reader(self, x: Any, indices: Any, updates: Any, fill: Any = 0) -> Gather:
        """The gather of the windows that this writes; `fill` where there are none."""
        w = self.windows(x, indices, updates)
        flags = self.indices_are_sorted, self.mode, w.sizes, self.unique_indices
        return Gather(w.dims, fill, *flags)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        (x, indices, updates), (ax, ai, au) = args, axes
        x = broadcast_axis(x, size, 0) if ax is None else move_axis(x, ax, 0)
        if au is None:
            updates = broadcast_axis(updates, size, 0)
        else:
            updates = move_axis(updates, au, 0)
        if ai is not None:
            indices = move_axis(indices, ai, 0)
        dims = batched_dims(GatherDimensionNumbers(*self.dimension_numbers), True, ai is not None)
        new = self.again(
            type(self),
            dimension_numbers=as_scatter(dims),
            indices_are_sorted=self.indices_are_sorted and ai is None,
        )
        return (new(x, indices, updates),), (0,)

    def lower(self, x: Operand, indices: Operand, updates: Operand) -> Recipe:  # type: ignore[override]
        w = self.windows(x, indices, updates)
        if 0 in x.shape:
            return Reshape(x)

        def target(*index: Expr) -> tuple[Expr, tuple[Expr, ...]]:
            at, inside = w.element(indices, index, self.mode)
            return inside, at

        unique = self.unique_indices or w.single
        n = self.dimension_numbers
        by_rows = (
            indices.ndim == 2 and 0 not in n.update_window_dims and not n.operand_batching_dims
        )
        runs = self.indices_are_sorted and by_rows
        return Update(x, updates.shape, target, updates, self.combine, unique, runs)


def accumulate_at(
    ufunc: np.ufunc, out: np.ndarray, w: Windows, at: Any, updates: np.ndarray
) -> None:
    """Combine updates into `out` at positions that may repeat.

    `ufunc.at` is fast for one flat index array only, so whole positions are worked out.
    """
    block, after = w.block_size, w.after
    inner = int(np.prod(after, dtype=np.int64))
    if inner != 1:
        at = (np.asarray(at) * inner).reshape(*np.shape(at), 1) + np.arange(inner)
    if w.before:
        outer = np.arange(int(np.prod(w.before, dtype=np.int64))) * (block * inner)
        at = outer.reshape(-1, *(1,) * np.ndim(at)) + at
    flat = np.broadcast_to(at, np.shape(at)).reshape(-1)
    ufunc.at(out.reshape(-1), flat, updates.reshape(-1))


@dataclass(frozen=True)
class ScatterAdd(AnyScatter):
    """An operand with windows of updates added to it; updates of one place add up."""

    name = "scatter-add"
    update_kind = "add"
    ufunc = np.add
    combine = staticmethod(
        lambda old, new: scalar.apply("or" if old.dtype == "bool" else "add", old, new)
    )

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        (x, indices, updates), (tx, _, tu) = primals, tangents
        out = self(x, indices, updates)
        if tu is None:
            return (out,), (tx,)
        tx = typed_zeros(x.aval) if tx is None else tx
        return (out,), (self(tx, indices, tu),)

    def transpose(self, cts: tuple, x: Any, indices: Array, updates: Any) -> tuple:  # type: ignore[override]
        ct = cts[0]
        ct_x = ct if isinstance(x, Undefined) else None
        if not isinstance(updates, Undefined):
            return ct_x, None, None
        return ct_x, None, self.reader(x, indices, updates)(ct, indices)
