"""The elements at which windows have their extremum: read, and added to."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core import scalar as expr
from fnx.core.aval import ShapedArray
from fnx.core.errors import ShapeError
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import Undefined
from fnx.core.recipe import Call, Fold, Operand, Point, Recipe
from fnx.ops.base.broadcast import Broadcast, Shape, broadcast_axis
from fnx.ops.base.compose import Program
from fnx.ops.base.permute import Reshape, move_axis
from fnx.ops.elementwise.pointwise import dtype_table
from fnx.ops.reduction.reduction import highest, lowest
from fnx.ops.structure.gather import ScatterAdd
from fnx.ops.structure.gather_dimension_numbers import GatherScatterMode, ScatterDimensionNumbers
from fnx.ops.structure.join import Iota
from fnx.ops.structure.sliding_windows import Windowed

_REAL = dtype_table("iuf")


@dataclass(frozen=True)
class _Chosen(Windowed):
    """What the two have in common; `select` is "max" or "min", the first extremum is chosen."""

    select: str

    def chosen(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each window the position in x, in row-major order, and whether there is one."""
        fill = self.fill(x.dtype)
        view = self.windows(x, fill)
        places = self.windows(np.arange(x.size).reshape(x.shape), -1)
        shape = view.shape[: x.ndim]
        size = math.prod(view.shape[x.ndim :])
        flat, where = view.reshape(*shape, size), places.reshape(*shape, size)
        flat = flat.astype(np.float32) if flat.dtype.itemsize == 2 else flat
        real = np.where(where < 0, flat.dtype.type(fill), flat)
        pick = (np.argmax if self.select == "max" else np.argmin)(real, -1)
        # Padding is never chosen before an element that equals it.
        best = np.take_along_axis(real, pick[..., None], -1)
        same = (where >= 0) & ((real == best) | (np.isnan(real) & np.isnan(best)))
        pick = np.where(same.any(-1), same.argmax(-1), pick)
        found = np.take_along_axis(where, pick[..., None], -1)[..., 0]
        return np.maximum(found, 0), found >= 0

    def check(self, x: ShapedArray, other: ShapedArray, shape: Shape) -> None:
        if other.shape != shape or other.dtype != x.dtype or x.dtype not in _REAL:
            raise ShapeError(
                f"{self.name} with an operand {x} and {other}; expected shape {shape}, and equal dtypes "
                "of real numbers"
            )

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        at = next(k for k in axes if k is not None)
        xs = [
            broadcast_axis(x, size, at) if k is None else move_axis(x, k, at)
            for x, k in zip(args, axes)
        ]
        more = {k: v for k, v in vars(self).items() if k not in Windowed.__dataclass_fields__}
        outs = self.with_axis(at, **more).apply(*xs)
        return outs, (at,) * len(outs)

    def fills(self, axis: int, dtypes: Sequence[np.dtype]) -> tuple | None:
        """None where there is padding: an element is chosen before padding that equals it."""
        plain = self.padding[axis] == (0, 0) and self.base_dilation[axis] == 1
        return (0,) * len(dtypes) if plain else None

    def fill(self, dtype: np.dtype) -> Any:
        """The worst value, which stands outside of the operand."""
        return lowest(dtype) if self.select == "max" else highest(dtype)


@dataclass(frozen=True)
class WindowPick(_Chosen):
    """(operand, companion): each window's extremum, and the companion of that element.

    `absent` stands for the companion where a window has no element; programs that only lowering
    sees are made of it.
    """

    absent: int
    name = "window_pick"
    multiple_results = True

    def abstract(self, x: ShapedArray, y: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        shape = self.out_shape(x.shape)
        return ShapedArray(shape, x.dtype), ShapedArray(shape, y.dtype)

    def impl(self, x: np.ndarray, y: np.ndarray) -> tuple:  # type: ignore[override]
        place, real = self.chosen(x)
        best = np.where(real, x.reshape(-1)[place], x.dtype.type(self.fill(x.dtype)))
        return best, np.where(real, y.reshape(-1)[place], y.dtype.type(self.absent))

    def lower(self, x: Operand, y: Operand) -> Recipe:  # type: ignore[override]
        rank = len(x.shape)
        dtype = dtypes.of_name(x.dtype)
        start = expr.const(self.fill(dtype), x.dtype), expr.const(self.absent, y.dtype)
        op = "gt" if self.select == "max" else "lt"

        def fn(*ix: expr.Expr) -> tuple[expr.Expr, ...]:
            here, index = self.point(x, ix[:rank], ix[rank:])
            return tuple(
                [expr.select(here, v(*index), s) for v, s in zip((x, y), start, strict=True)]
            )

        def combine(old: tuple, new: tuple) -> tuple:
            better = expr.compare(op, new[0], old[0])
            if "float" in x.dtype:  # the first nan stays
                nan, was = (expr.compare("ne", v, v) for v in (new[0], old[0]))
                better = expr.apply("or", better, expr.logical_and(nan, expr.apply("not", was)))
            return tuple([expr.select(better, n, o) for n, o in zip(new, old, strict=True)])

        shape = (*self.out_shape(x.shape), *self.window_dimensions)
        return Fold(shape, tuple(range(rank, 2 * rank)), start, fn, combine)


class _Moved(_Chosen):
    """What is linear in its first operand, and where it goes decided by the second."""

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        tangent = None if tangents[0] is None else self(tangents[0], primals[1])
        return (self(*primals),), (tangent,)


@dataclass(frozen=True)
class WindowGather(_Moved):
    """(tangents, operand): the tangents where the operand's windows have their extremum."""

    name = "select_and_gather_add"

    def abstract(self, t: ShapedArray, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        self.check(x, t, x.shape)
        return (ShapedArray(self.out_shape(x.shape), t.dtype),)

    def impl(self, t: np.ndarray, x: np.ndarray) -> Any:  # type: ignore[override]
        place, real = self.chosen(x)
        if not t.size:
            return np.zeros(place.shape, t.dtype)
        return np.where(real, t.reshape(-1)[place], t.dtype.type(0))

    def transpose(self, cts: tuple, t: Any, x: Any) -> tuple:  # type: ignore[override]
        if type(x) is Undefined:
            raise self._missing("transpose", "a use that is linear in the operand")
        return WindowScatter(**vars(self))(cts[0], x), None

    def lower(self, t: Operand, x: Operand) -> Recipe:  # type: ignore[override]
        if 0 in x.shape:
            return Point(lambda *ix: expr.const(0, t.dtype))
        p = _program(t, x)
        _, picked = p(WindowPick(**vars(self), absent=0), p.inputs[1], p.inputs[0])
        return Call(p.jaxpr(self.name, picked))


@dataclass(frozen=True)
class WindowScatter(_Moved):
    """(source, operand): each window's source added where the operand has its extremum there."""

    name = "select_and_scatter_add"

    def abstract(self, source: ShapedArray, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        self.check(x, source, self.out_shape(x.shape))
        return (ShapedArray(x.shape, source.dtype),)

    def impl(self, source: np.ndarray, x: np.ndarray) -> Any:  # type: ignore[override]
        place, real = self.chosen(x)
        wide = source.dtype if source.dtype.itemsize > 2 else np.dtype(np.float32)
        out = np.zeros(x.size, wide)
        np.add.at(out, place[real], source[real].astype(wide))
        return out.reshape(x.shape).astype(source.dtype, copy=False)

    def transpose(self, cts: tuple, source: Any, x: Any) -> tuple:  # type: ignore[override]
        if type(x) is Undefined:
            raise self._missing("transpose", "a use that is linear in the operand")
        return WindowGather(**vars(self))(cts[0], x), None

    def along(self, grid: Any, parts: Sequence[Any]) -> list | None:
        """What members' own windows add to what they reach, put together."""
        source, x = parts
        still = self.still()
        axis = next(k for k in range(x.ndim) for p in parts if p.cut[k] and k not in still)
        names = x.cut[axis] or source.cut[axis]
        step, blocks = self.window_strides[axis], source.shape[axis]
        size = (self.window_dimensions[axis] - 1) * self.window_dilation[axis] + 1
        if self.fills(axis, ()) is None or not blocks:
            return None
        x, source = [grid.lay(p, grid.beside(p, axis, names)) for p in (x, source)]
        reached = grid.reach(x, axis, blocks, step, size, 0, 1, 0)
        if reached is None:
            return None
        own = grid.along_one(grid.masked(source, axis, 0), axis, source.x.shape[axis], ())
        (y,) = grid.apply(self, [own, reached])
        return grid.sum_reached(y, axis, names, own.x.shape[axis] * step, x.shape[axis])

    def lower(self, source: Operand, x: Operand) -> Recipe:  # type: ignore[override]
        n, m = math.prod(x.shape), math.prod(source.shape)
        if not n or not m:
            return Point(lambda *ix: expr.const(0, source.dtype))
        p = _program(source, x)
        positions = p(Reshape(x.shape), p(Iota(0, dtypes.int64, (n,))))
        _, places = p(WindowPick(**vars(self), absent=-1), p.inputs[1], positions)
        total = p(Broadcast((n,), ()), p.constant(0, p.inputs[0].aval.dtype))
        total = p(_ADD_AT, total, p(Reshape((m, 1)), places), p(Reshape((m,)), p.inputs[0]))
        return Call(p.jaxpr(self.name, p(Reshape(x.shape), total)))


_ADD_AT = ScatterAdd(
    ScatterDimensionNumbers((), (0,), (0,)), False, GatherScatterMode.FILL_OR_DROP, False
)


def _program(*operands: Operand) -> Program:
    return Program([ShapedArray(x.shape, dtypes.of_name(x.dtype)) for x in operands])
