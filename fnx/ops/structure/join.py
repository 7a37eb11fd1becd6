"""Concatenate and split, and arrays made of nothing: iota."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core import scalar as expr
from fnx.core.aval import ShapedArray
from fnx.core.cost import FREE, SIMPLE
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import Primitive, Undefined
from fnx.core.recipe import Operand, Piece, Pieces, Point, Recipe
from fnx.ops.base.broadcast import Shape, broadcast_axis, check_sizes, typed_zeros, without
from fnx.ops.base.permute import move_axis
from fnx.ops.base.sharding_rule import Factors, all_but, part
from fnx.ops.structure.slice import Slice


@dataclass(frozen=True)
class Concatenate(Primitive):
    """Operands one after the other along `dimension`."""

    dimension: int
    name = "concatenate"
    cost = SIMPLE
    moves = True

    def abstract(self, *xs: ShapedArray) -> tuple[ShapedArray, ...]:
        d, first = self.dimension, xs[0]
        if any(x.dtype != first.dtype for x in xs):
            raise TypeMismatch(
                f"concatenate of dtypes {', '.join(str(x.dtype) for x in xs)}; expected equal dtypes"
            )
        if not 0 <= d < len(first.shape) or any(
            len(x.shape) != len(first.shape) or without(x.shape, (d,)) != without(first.shape, (d,))
            for x in xs
        ):
            raise ShapeError(
                f"concatenate of shapes {', '.join(str(x.shape) for x in xs)} along axis {d}; expected "
                "shapes that are equal but for that axis"
            )
        total = sum(x.shape[d] for x in xs)
        shape = (*first.shape[:d], total, *first.shape[d + 1 :])
        return (ShapedArray(shape, first.dtype, all(x.weak_type for x in xs)),)

    def impl(self, *xs: np.ndarray) -> np.ndarray:
        return np.concatenate(xs, self.dimension)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        filled = [typed_zeros(x.aval) if t is None else t for x, t in zip(primals, tangents)]
        return (self(*primals),), (self(*filled),)

    def transpose(self, cts: tuple, *xs: Any) -> list:
        (ct,), d, outs = cts, self.dimension, []
        start = 0
        for x in xs:
            stop = start + x.shape[d]
            if type(x) is Undefined:
                lo, hi = [0] * len(ct.shape), list(ct.shape)
                lo[d], hi[d] = start, stop
                outs.append(Slice(tuple(lo), tuple(hi))(ct))
            else:
                outs.append(None)
            start = stop
        return outs

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        at = next(k for k in axes if k is not None)
        xs = [
            broadcast_axis(x, size, at) if k is None else move_axis(x, k, at)
            for x, k in zip(args, axes)
        ]
        return (Concatenate(self.dimension + (self.dimension >= at))(*xs),), (at,)

    def sharding(self, *xs: ShapedArray) -> Factors:
        return all_but(xs[0].ndim, (self.dimension,), len(xs))

    def along(self, grid: Any, parts: Sequence[Any]) -> list | None:
        return grid.join(parts, self.dimension)

    def lower(self, *xs: Operand) -> Recipe:
        d, start, pieces = self.dimension, 0, []
        for x in xs:
            lo, hi = [0] * len(x.shape), list(x.shape)
            lo[d], hi[d] = start, start + x.shape[d]
            pieces.append(Piece(tuple(lo), tuple(hi), _shifted(x, d, start)))
            start = hi[d]
        return Pieces(tuple(pieces))


def _shifted(x: Operand, axis: int, by: int) -> Any:
    def fn(*ix: expr.Expr) -> expr.Expr:
        return x(*ix[:axis], expr.sub(ix[axis], expr.size(by)), *ix[axis + 1 :])

    return fn


@dataclass(frozen=True)
class Split(Primitive):
    """Consecutive parts of `sizes` along `axis`."""

    axis: int
    sizes: Shape
    name = "split"
    cost = FREE
    moves = True
    multiple_results = True

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        a = self.axis
        if not 0 <= a < len(x.shape) or sum(self.sizes) != x.shape[a] or min(self.sizes) < 0:
            raise InvalidValue(
                f"split of an operand of shape {x.shape} along axis {a} into sizes {self.sizes}; "
                "expected sizes that add up to that of the axis"
            )
        return tuple(
            [
                ShapedArray((*x.shape[:a], n, *x.shape[a + 1 :]), x.dtype, x.weak_type)
                for n in self.sizes
            ]
        )

    def impl(self, x: np.ndarray) -> tuple:  # type: ignore[override]
        ends = list(accumulate(self.sizes))
        head = (slice(None),) * self.axis
        return tuple([x[(*head, slice(end - n, end))] for n, end in zip(self.sizes, ends)])

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        return self(primals[0]), self(tangents[0])

    def transpose(self, cts: tuple, x: Any) -> tuple:  # type: ignore[override]
        parts = [
            typed_zeros(aval) if ct is None else ct
            for ct, aval in zip(cts, self.abstract(x.aval), strict=True)
        ]
        return (Concatenate(self.axis)(*parts),)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        at = axes[0]
        outs = Split(self.axis + (self.axis >= at), self.sizes)(args[0])
        return outs, (at,) * len(outs)

    def sharding(self, x: ShapedArray) -> Factors:
        return all_but(x.ndim, (self.axis,), results=len(self.sizes))

    def along(self, grid: Any, parts: Sequence[Any]) -> list:
        ends = accumulate(self.sizes)
        return [grid.window(parts[0], self.axis, end - n, n) for n, end in zip(self.sizes, ends)]

    def lower(self, x: Operand) -> tuple[Recipe, ...]:  # type: ignore[override]
        starts = [end - n for n, end in zip(self.sizes, accumulate(self.sizes))]
        return tuple([Point(_shifted(x, self.axis, -start)) for start in starts])


@dataclass(frozen=True)
class Iota(Primitive):
    """0, 1, 2, ... along axis `dimension` of `shape`."""

    dimension: int
    dtype: np.dtype
    shape: Shape
    name = "iota"
    cost = FREE

    def abstract(self) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        check_sizes(self.name, self.shape)
        if not 0 <= self.dimension < len(self.shape) or self.dtype == dtypes.bool_:
            raise InvalidValue(
                f"iota of dtype {self.dtype} along axis {self.dimension} of shape {self.shape}; "
                "expected an axis of the shape and a dtype of numbers"
            )
        return (ShapedArray(self.shape, self.dtype),)

    def impl(self) -> np.ndarray:  # type: ignore[override]
        check_sizes(self.name, self.shape)
        line = np.arange(self.shape[self.dimension]).astype(self.dtype)
        if len(self.shape) == 1:
            return line
        out = np.empty(self.shape, self.dtype)
        out[...] = line.reshape((-1,) + (1,) * (len(self.shape) - 1 - self.dimension))
        return out

    def sharding(self) -> Factors:
        axes = tuple([None if k == self.dimension else k for k in range(len(self.shape))])

        def local(parts: Mapping[int, int]) -> Iota:
            shape = [part(n, parts.get(k, 1)) for k, n in enumerate(self.shape)]
            return Iota(self.dimension, self.dtype, tuple(shape))

        return Factors((), (axes,), local=local)

    def lower(self) -> Recipe:  # type: ignore[override]
        name = dtypes.NAME[self.dtype]
        return Point(lambda *ix: expr.cast(ix[self.dimension], name))
