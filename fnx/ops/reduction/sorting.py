"""Sorting: sort by one or several keys, and the k largest elements."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import Primitive
from fnx.core.recipe import Library, Operand, Recipe
from fnx.ops.base.permute import Reshape, batch_first
from fnx.ops.base.sharding_rule import Factors, all_but
from fnx.ops.elementwise.arithmetic import add, mul
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.reduction.reduction import lowest
from fnx.ops.structure.basic import move_axis, scalar
from fnx.ops.structure.gather import Gather
from fnx.ops.structure.gather_dimension_numbers import GatherDimensionNumbers, GatherScatterMode
from fnx.ops.structure.movement import Iota

_INT = np.dtype(np.int64)


def take_along(x: Array, indices: Array, axis: int) -> Array:
    """Elements of x at positions along an axis, which must be inside; other axes go in step."""
    rank = len(x.shape)
    others = tuple(a for a in range(rank) if a != axis)
    dims = GatherDimensionNumbers((), (axis,), (axis,), others, others)
    inside = GatherScatterMode.PROMISE_IN_BOUNDS
    gather = Gather(dims, None, False, inside, (1,) * rank, False)
    return gather(x, Reshape((*indices.shape, 1))(indices))


def _sort_key(x: np.ndarray) -> np.ndarray:
    """What NumPy sorts in the same order: nans last, in both zeros equal, for half precision too."""
    return x.astype(np.float32) if x.dtype == dtypes.bfloat16 else x


def _order(keys: tuple[np.ndarray, ...], axis: int, stable: bool) -> np.ndarray:
    if len(keys) == 1:
        return np.argsort(_sort_key(keys[0]), axis=axis, kind="stable" if stable else None)
    # Sort by the last key first; stable sorts keep its order among equals of the earlier ones.
    order = np.argsort(_sort_key(keys[-1]), axis=axis, kind="stable")
    for key in reversed(keys[:-1]):
        by = np.take_along_axis(_sort_key(key), order, axis)
        order = np.take_along_axis(order, np.argsort(by, axis=axis, kind="stable"), axis)
    return order


@dataclass(frozen=True)
class Sort(Primitive):
    """The operands sorted along an axis, together, by the first `num_keys` of them."""

    dimension: int
    is_stable: bool = True
    num_keys: int = 1
    name = "sort"
    multiple_results = True

    def abstract(self, *xs: ShapedArray) -> tuple[ShapedArray, ...]:
        if not 1 <= self.num_keys <= len(xs):
            raise InvalidValue(f"sort of {len(xs)} operands cannot have {self.num_keys} keys")
        if any(x.shape != xs[0].shape for x in xs) or not 0 <= self.dimension < xs[0].ndim:
            raise ShapeError(
                f"sort needs operands of one shape with an axis {self.dimension}, not shapes "
                f"{[x.shape for x in xs]}"
            )
        return xs

    def impl(self, *xs: np.ndarray) -> tuple[np.ndarray, ...]:
        axis = self.dimension
        if len(xs) == 1 and xs[0].dtype != dtypes.bfloat16:
            return (np.sort(xs[0], axis=axis, kind="stable" if self.is_stable else None),)
        order = _order(xs[: self.num_keys], axis, self.is_stable)
        return tuple(np.take_along_axis(x, order, axis) for x in xs)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        axis, shape = self.dimension, primals[0].shape
        places = Iota(axis, _INT, shape)()
        *outs, order = Sort(axis, self.is_stable, self.num_keys)(*primals, places)
        touts = [None if t is None else take_along(t, order, axis) for t in tangents]
        return tuple(outs), tuple(touts)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        xs = batch_first(size, args, axes)
        new = Sort(self.dimension + 1, self.is_stable, self.num_keys)
        return new(*xs), (0,) * len(xs)

    def sharding(self, *xs: ShapedArray) -> Factors:
        return all_but(xs[0].ndim, (self.dimension,), len(xs), len(xs))

    def lower(self, *xs: Operand) -> Recipe:
        return Library("sort", xs, (self.dimension, self.num_keys))


@dataclass(frozen=True)
class TopK(Primitive):
    """The k largest elements along an axis, largest first, and their positions (int32).

    Of equal elements the first come first; nan counts as the largest.
    """

    k: int
    axis: int
    name = "top_k"
    multiple_results = True

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        if dtypes.is_complex(x.dtype):
            raise TypeMismatch(
                f"top_k of dtype {x.dtype}, which is not ordered; take the largest of abs(x) or x.real"
            )
        if not 0 <= self.axis < x.ndim:
            raise ShapeError(
                f"top_k needs an operand with an axis {self.axis}, not shape {x.shape}"
            )
        if not 0 <= self.k <= x.shape[self.axis]:
            raise InvalidValue(
                f"top_k cannot take the {self.k} largest of {x.shape[self.axis]} elements: k must be "
                f"between 0 and the length of axis {self.axis}"
            )
        shape = (*x.shape[: self.axis], self.k, *x.shape[self.axis + 1 :])
        return x.update(shape=shape), ShapedArray(shape, dtypes.int32, x.weak_type)

    def impl(self, x: np.ndarray) -> tuple[np.ndarray, ...]:  # type: ignore[override]
        axis, n = self.axis, x.shape[self.axis]
        # A stable sort of the reversed array, read backwards: equal elements keep their order.
        order = np.argsort(np.flip(_sort_key(x), axis), axis=axis, kind="stable")
        order = np.flip(order, axis)
        order = (n - 1) - order.take(range(self.k), axis=axis)
        return np.take_along_axis(x, order, axis), order.astype(np.int32)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        values, places = self(*primals)
        t = tangents[0]
        return (values, places), (None if t is None else take_along(t, places, self.axis), None)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        return TopK(self.k, self.axis + 1)(move_axis(args[0], axes[0], 0)), (0, 0)

    def sharding(self, x: ShapedArray) -> Factors:
        return all_but(x.ndim, (self.axis,), results=2)

    def along(self, grid: Any, parts: Sequence[Any]) -> list | None:
        """The largest of each member's largest, if those are no more than a part."""
        (x,), k, axis = parts, self.k, self.axis
        names, b = x.cut[axis], x.x.shape[axis]
        count = grid.count(names)
        if not k or k * count > b:
            return None
        values, places = self(grid.masked(x, axis, lowest(x.x.dtype)).x)
        first = mul(ConvertElementType(_INT)(grid.number(names)), scalar(b, _INT))
        places = add(ConvertElementType(_INT)(places), first)
        shape = (*x.shape[:axis], k * count, *x.shape[axis + 1 :])
        values, places = [grid.gather(grid.part(v, shape, x.cut), axis).x for v in (values, places)]
        values, order = self(values)
        places = ConvertElementType(dtypes.int32)(take_along(places, order, axis))
        shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
        return [grid.part(v, shape, x.with_axis(axis, ())) for v in (values, places)]

    def lower(self, x: Operand) -> Recipe:  # type: ignore[override]
        return Library("top_k", (x,), (self.k, self.axis))
