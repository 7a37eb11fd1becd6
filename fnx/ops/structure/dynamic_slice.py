"""Slices at positions that are operands: read, replaced, and added to."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fnx.core import scalar
from fnx.core.array import Array, ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.cost import INDIRECT
from fnx.core.errors import ShapeError, TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import AddTo, Primitive, Undefined
from fnx.core.recipe import Operand, Point, Recipe, Update
from fnx.core.scalar import Expr
from fnx.ops.base.broadcast import typed_zeros
from fnx.ops.base.sharding_rule import Factors, all_but, part
from fnx.ops.structure import indices_in_parts
from fnx.ops.structure.basic import broadcast_axis, convert, move_axis, zeros
from fnx.ops.structure.basic import scalar as number
from fnx.ops.structure.gather import Gather, ScatterAdd
from fnx.ops.structure.gather_dimension_numbers import (
    GatherDimensionNumbers,
    GatherScatterMode,
    Shape,
    as_scatter,
    check_indices,
)
from fnx.ops.structure.movement import Concatenate, Reshape
from fnx.ops.structure.scatter import Scatter
from fnx.ops.structure.slice import AddInto

_INT = np.dtype(np.int64)


def _check_starts(name: str, x: ShapedArray, sizes: Shape, starts: Sequence[ShapedArray]) -> None:
    if len(starts) != len(x.shape) or any(s.shape for s in starts):
        raise ShapeError(
            f"{name} of an operand of shape {x.shape} needs {len(x.shape)} starts of rank 0, not "
            f"shapes {[s.shape for s in starts]}"
        )
    for s in starts:
        check_indices(name, s.dtype)
    if len(sizes) != len(x.shape) or any(not 0 <= n <= m for n, m in zip(sizes, x.shape)):
        raise ShapeError(
            f"{name}: a slice of shape {sizes} does not fit into an operand of shape {x.shape}"
        )


def _box(shape: Shape, sizes: Shape, starts: Sequence[np.ndarray]) -> tuple[slice, ...]:
    """The slices, moved inside where they stick out."""
    box = []
    for m, n, s in zip(shape, sizes, starts):
        i = int(s)
        if i < 0:
            i = 0
        elif i > m - n:
            i = m - n
        box.append(slice(i, i + n))
    return tuple(box)


def _shifted(index: Sequence[Expr], shape: Shape, sizes: Shape, starts: Sequence[Operand]) -> tuple:
    return tuple(
        scalar.add(scalar.clamp(scalar.size(0), scalar.cast(s(), "int64"), scalar.size(m - n)), i)
        for i, m, n, s in zip(index, shape, sizes, starts, strict=True)
    )


def _lanes_of_starts(size: int, starts: Sequence, axes: Sequence) -> Array:
    """Starts with a batch axis as index vectors: shape (size, number of starts)."""
    columns = []
    for s, k in zip(starts, axes, strict=True):
        column = broadcast_axis(s, size, 0) if k is None else s
        columns.append(convert(Reshape((size, 1))(column), _INT))
    return columns[0] if len(columns) == 1 else Concatenate(1)(*columns)


def _batch_dims(rank: int, operand_batched: bool) -> GatherDimensionNumbers:
    """One whole-rank window per batch element."""
    offset = tuple(range(1, rank + 1))
    if operand_batched:
        return GatherDimensionNumbers(offset, (), offset, (0,), (0,))
    return GatherDimensionNumbers(offset, (), tuple(range(rank)))


@dataclass(frozen=True)
class DynamicSlice(Primitive):
    """The slice of `slice_sizes` that begins at the starts, moved inside where it sticks out."""

    slice_sizes: Shape
    name = "dynamic_slice"
    cost = INDIRECT
    moves = True
    typed_by = slice(0, 1)  # type: ignore[assignment]

    def abstract(self, x: ShapedArray, *starts: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        _check_starts(self.name, x, self.slice_sizes, starts)
        return (ShapedArray(self.slice_sizes, x.dtype, x.weak_type),)

    def impl(self, x: np.ndarray, *starts: np.ndarray) -> np.ndarray:  # type: ignore[override]
        out = x[_box(x.shape, self.slice_sizes, starts)]
        return out if out.flags.c_contiguous else out.copy()

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        x, *starts = primals
        t = tangents[0]
        return (self(x, *starts),), (None if t is None else self(t, *starts),)

    def transpose(self, cts: tuple, x: Undefined, *starts: Array) -> tuple:  # type: ignore[override]
        ct = cts[0]
        into = None
        if all([type(a) is ConcreteArray for a in (ct, *starts)]):
            box = _box(x.shape, self.slice_sizes, [s._value for s in starts])
            into = AddInto(box, ct._value)
        add = AddTo(x.aval, lambda acc: dynamic_slice_add(acc, ct, *starts), into)
        return (add, *(None,) * len(starts))

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        (x, *starts), (ax, *rest) = args, axes
        x = x if ax is None else move_axis(x, ax, 0)
        if all(k is None for k in rest):
            return (DynamicSlice((size, *self.slice_sizes))(x, number(0, _INT), *starts),), (0,)
        batched = ax is not None
        dims = _batch_dims(len(starts), batched)
        sizes = (1, *self.slice_sizes) if batched else self.slice_sizes
        gather = Gather(dims, None, False, GatherScatterMode.CLIP, sizes, False)
        return (gather(x, _lanes_of_starts(size, starts, rest)),), (0,)

    def sharding(self, x: ShapedArray, *starts: ShapedArray) -> Factors:
        sizes = self.slice_sizes
        rule = all_but(x.ndim, [k for k, (n, m) in enumerate(zip(x.shape, sizes)) if n != m])

        def local(parts: Mapping[int, int]) -> DynamicSlice:
            return DynamicSlice(tuple([part(n, parts.get(k, 1)) for k, n in enumerate(sizes)]))

        return Factors((*rule.operands, *((),) * len(starts)), rule.results, local=local)

    def along(self, grid: Any, parts: Sequence[Any]) -> list | None:
        return indices_in_parts.dynamic_slice(self, grid, parts)

    def lower(self, x: Operand, *starts: Operand) -> Recipe:  # type: ignore[override]
        return Point(lambda *index: x(*_shifted(index, x.shape, self.slice_sizes, starts)))


@dataclass(frozen=True)
class _SliceUpdate(Primitive):
    """What replacing and adding to a slice have in common."""

    combine = None
    keeps_weak = True
    typed_by = slice(0, 2)  # type: ignore[assignment]

    def abstract(self, x: ShapedArray, update: ShapedArray, *starts: ShapedArray) -> tuple:  # type: ignore[override]
        _check_starts(self.name, x, update.shape, starts)
        if x.dtype != update.dtype:
            raise TypeMismatch(
                f"{self.name} needs an update of the operand's dtype {x.dtype}, not {update.dtype}; "
                "convert it with .astype"
            )
        return (
            ShapedArray(x.shape, x.dtype, self.keeps_weak and x.weak_type and update.weak_type),
        )

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        x, update, *starts = primals
        tx, tu, *_ = tangents
        out = self(x, update, *starts)
        if tx is None and tu is None:
            return (out,), (None,)
        tx = typed_zeros(x.aval.tangent()) if tx is None else tx
        tu = typed_zeros(update.aval.tangent()) if tu is None else tu
        return (out,), (self(tx, tu, *starts),)

    def scatter(self, dims: Any) -> Primitive:
        raise NotImplementedError

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        (x, update, *starts), (ax, au, *rest) = args, axes
        x = broadcast_axis(x, size, 0) if ax is None else move_axis(x, ax, 0)
        update = broadcast_axis(update, size, 0) if au is None else move_axis(update, au, 0)
        if all(k is None for k in rest):
            return (self(x, update, number(0, _INT), *starts),), (0,)
        scatter = self.scatter(as_scatter(_batch_dims(len(starts), True)))
        return (scatter(x, _lanes_of_starts(size, starts, rest), update),), (0,)

    def sharding(self, x: ShapedArray, update: ShapedArray, *starts: ShapedArray) -> Factors:
        shapes = zip(x.shape, update.shape)
        axes = all_but(x.ndim, [k for k, (n, m) in enumerate(shapes) if n != m]).results
        return Factors((*axes * 2, *((),) * len(starts)), axes)

    def along(self, grid: Any, parts: Sequence[Any]) -> list:
        return indices_in_parts.dynamic_update(self, grid, parts)

    def lower(self, x: Operand, update: Operand, *starts: Operand) -> Recipe:  # type: ignore[override]
        def target(*index: Expr) -> tuple[Expr, tuple[Expr, ...]]:
            return scalar.const(True, "bool"), _shifted(index, x.shape, update.shape, starts)

        return Update(x, update.shape, target, update, self.combine, unique=True)


@dataclass(frozen=True)
class DynamicUpdateSlice(_SliceUpdate):
    """The operand with the slice that begins at the starts replaced by the update."""

    name = "dynamic_update_slice"
    keeps_weak = False  # as JAX's
    update_operand = 1
    update_kind = "set"

    def impl(self, x: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> np.ndarray:  # type: ignore[override]
        out = x.copy()
        out[_box(x.shape, update.shape, starts)] = update
        return out

    def transpose(self, cts: tuple, x: Any, update: Any, *starts: Array) -> tuple:  # type: ignore[override]
        ct = cts[0]
        ct_x = ct_u = None
        if isinstance(x, Undefined):
            ct_x = self(ct, zeros(update.aval.strong()), *starts)
        if isinstance(update, Undefined):
            ct_u = DynamicSlice(update.shape)(ct, *starts)
        return (ct_x, ct_u, *(None,) * len(starts))

    def scatter(self, dims: Any) -> Primitive:
        return Scatter(dims, False, GatherScatterMode.CLIP, True)


@dataclass(frozen=True)
class DynamicSliceAdd(_SliceUpdate):
    """The operand with the update added to the slice that begins at the starts."""

    name = "dynamic_slice_add"
    update_operand = 1
    update_kind = "add"
    combine = staticmethod(lambda old, new: scalar.apply("add", old, new))

    def impl(self, x: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> np.ndarray:  # type: ignore[override]
        out = x.copy()
        box = _box(x.shape, update.shape, starts)
        out[box] += update
        return out

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        if tangents[1] is None:
            return (self(*primals),), (tangents[0],)
        return super().jvp(primals, tangents)

    def transpose(self, cts: tuple, x: Any, update: Any, *starts: Array) -> tuple:  # type: ignore[override]
        ct = cts[0]
        ct_x = ct if isinstance(x, Undefined) else None
        ct_u = DynamicSlice(update.shape)(ct, *starts) if isinstance(update, Undefined) else None
        return (ct_x, ct_u, *(None,) * len(starts))

    def scatter(self, dims: Any) -> Primitive:
        return ScatterAdd(dims, False, GatherScatterMode.CLIP, True)


dynamic_update_slice = DynamicUpdateSlice()
dynamic_slice_add = DynamicSliceAdd()
