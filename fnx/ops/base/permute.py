"""Reshape, squeeze, transpose and reverse: the same elements in another order or shape."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fnx.core import scalar as expr
from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.cost import FREE
from fnx.core.errors import InvalidValue, ShapeError
from fnx.core.fast_dataclasses import dataclass
from fnx.core.recipe import Operand, Point, Recipe
from fnx.core.recipe import Reshape as ReshapeRecipe
from fnx.ops.base.broadcast import Shape, broadcast_axis, check_axes, insert_axes, without
from fnx.ops.base.linear import Linear
from fnx.ops.base.sharding_rule import Factors, all_but, part, reshape_factors


@dataclass(frozen=True)
class Reshape(Linear):
    """The elements in row-major order, in shape `new_sizes`."""

    new_sizes: Shape
    name = "reshape"
    cost = FREE
    moves = True

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        if math.prod(self.new_sizes) != x.size or any(n < 0 for n in self.new_sizes):
            raise ShapeError(
                f"reshape of an operand of shape {x.shape} to shape {self.new_sizes}; expected a shape "
                f"of {x.size} elements"
            )
        return (ShapedArray(self.new_sizes, x.dtype, x.weak_type),)

    def impl(self, x: np.ndarray) -> np.ndarray:  # type: ignore[override]
        return x.reshape(self.new_sizes)

    def transpose(self, cts: tuple, x: Any) -> tuple:  # type: ignore[override]
        return (Reshape(x.shape)(cts[0]),)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        return (Reshape((size, *self.new_sizes))(move_axis(args[0], axes[0], 0)),), (0,)

    def sharding(self, x: ShapedArray) -> Factors | None:
        if not x.size:
            return None
        old, new, multiple = reshape_factors(x.shape, self.new_sizes)

        def local(parts: Mapping[int, int]) -> Reshape:
            sizes = [part(n, parts.get(f, 1)) for n, f in zip(self.new_sizes, new)]
            return Reshape(tuple(sizes))

        return Factors((old,), (new,), multiple=multiple, local=local)

    def lower(self, x: Operand) -> Recipe:  # type: ignore[override]
        return ReshapeRecipe(x)


@dataclass(frozen=True)
class Squeeze(Linear):
    """Without `dimensions`, axes of size 1."""

    dimensions: Shape
    name = "squeeze"
    cost = FREE
    moves = True

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        check_axes("squeeze", self.dimensions, x.shape)
        if any(x.shape[d] != 1 for d in self.dimensions):
            raise ShapeError(
                f"squeeze of axes {self.dimensions} of an operand of shape {x.shape}; expected axes of "
                "size 1"
            )
        return (ShapedArray(without(x.shape, self.dimensions), x.dtype, x.weak_type),)

    def impl(self, x: np.ndarray) -> np.ndarray:  # type: ignore[override]
        return x.reshape(without(x.shape, self.dimensions))

    def transpose(self, cts: tuple, x: Any) -> tuple:  # type: ignore[override]
        return (insert_axes(cts[0], self.dimensions),)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        axis = axes[0]
        moved = tuple([d + (d >= axis) for d in self.dimensions])
        return (Squeeze(moved)(args[0]),), (axis - sum(d < axis for d in moved),)

    def sharding(self, x: ShapedArray) -> Factors:
        axes = tuple([None if k in self.dimensions else k for k in range(x.ndim)])
        return Factors((axes,), (tuple([k for k in axes if k is not None]),))

    def lower(self, x: Operand) -> Recipe:  # type: ignore[override]
        return ReshapeRecipe(x)


@dataclass(frozen=True)
class Transpose(Linear):
    """Axis k of the result is axis `permutation[k]` of the operand."""

    permutation: Shape
    name = "transpose"
    cost = FREE
    moves = True

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        if sorted(self.permutation) != list(range(len(x.shape))):
            raise InvalidValue(
                f"transpose: {self.permutation} is not a permutation of the axes of an operand of "
                f"shape {x.shape}"
            )
        shape = tuple([x.shape[k] for k in self.permutation])
        return (ShapedArray(shape, x.dtype, x.weak_type),)

    def impl(self, x: np.ndarray) -> np.ndarray:  # type: ignore[override]
        # Not np.ascontiguousarray: it makes rank 1 of rank 0.
        return x.transpose(self.permutation).copy("C")

    def inverse(self) -> Shape:
        """Where each axis of the operand goes."""
        return tuple([self.permutation.index(k) for k in range(len(self.permutation))])

    def transpose(self, cts: tuple, x: Any) -> tuple:  # type: ignore[override]
        return (Transpose(self.inverse())(cts[0]),)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        axis = axes[0]
        moved = (axis, *[k + (k >= axis) for k in self.permutation])
        return (Transpose(moved)(args[0]),), (0,)

    def sharding(self, x: ShapedArray) -> Factors:
        return Factors((tuple(range(x.ndim)),), (self.permutation,))

    def lower(self, x: Operand) -> Recipe:  # type: ignore[override]
        inverse = self.inverse()
        return Point(lambda *ix: x(*[ix[k] for k in inverse]))


@dataclass(frozen=True)
class Rev(Linear):
    """Reversed along `dimensions`."""

    dimensions: Shape
    name = "rev"
    cost = FREE
    moves = True

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        check_axes("rev", self.dimensions, x.shape)
        return (x,)

    def impl(self, x: np.ndarray) -> np.ndarray:  # type: ignore[override]
        return np.flip(x, self.dimensions).copy("C")

    def transpose(self, cts: tuple, x: Any) -> tuple:  # type: ignore[override]
        return (self(cts[0]),)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        axis = axes[0]
        return (Rev(tuple([d + (d >= axis) for d in self.dimensions]))(args[0]),), (axis,)

    def sharding(self, x: ShapedArray) -> Factors:
        return all_but(x.ndim, self.dimensions)

    def along(self, grid: Any, parts: Sequence[Any]) -> list:
        """Members' parts reversed, and in the reverse order."""
        (x,) = parts
        axis = next(k for k in self.dimensions if x.cut[k])
        rest = tuple([k for k in self.dimensions if k != axis])
        turned = grid.turned(grid.part(Rev((axis,))(x.x), x.shape, x.cut), axis)
        return grid.apply(Rev(rest), [turned]) if rest else [turned]

    def lower(self, x: Operand) -> Recipe:  # type: ignore[override]
        def fn(*ix: Any) -> Any:
            index = list(ix)
            for d in self.dimensions:
                index[d] = expr.sub(expr.size(x.shape[d] - 1), index[d])
            return x(*index)

        return Point(fn)


def move_axis(x: Array, source: int, to: int) -> Array:
    """Axis `source` becomes axis `to` of the result; the others keep their order."""
    if source == to:
        return x
    order = [k for k in range(len(x.shape)) if k != source]
    order.insert(to, source)
    return Transpose(tuple(order))(x)


def batch_first(size: int, args: tuple, axes: tuple) -> list[Array]:
    """Operands with their batch axis first, by repetition where they had none."""
    return [
        broadcast_axis(x, size, 0) if k is None else move_axis(x, k, 0)
        for x, k in zip(args, axes, strict=True)
    ]


def reshape(x: Array, shape: Shape) -> Array:
    """The elements in row-major order in another shape; itself if it has it."""
    return x if x.shape == shape else Reshape(shape)(x)
