"""Broadcast and Sum, each the transpose of the other; and what is made of them alone."""

from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core import scalar as expr
from fnx.core.array import Array, ConcreteArray, as_written
from fnx.core.aval import ShapedArray
from fnx.core.cost import FREE, REDUCTION
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.interpreter import current, evaluate
from fnx.core.primitive import Primitive
from fnx.core.recipe import Fold, Library, Operand, Point, Recipe, Reshape
from fnx.ops.base import float32_accumulation
from fnx.ops.base.linear import Linear
from fnx.ops.base.sharding_rule import Factors, part, reduced_axes

Shape = tuple[int, ...]


def check_sizes(name: str, shape: Shape) -> None:
    """Raise for a shape that has negative sizes."""
    if any(n < 0 for n in shape):
        raise ShapeError(f"{name} with shape {shape}; expected sizes of at least 0")


@dataclass(frozen=True)
class Broadcast(Linear):
    """Axis k of the operand becomes axis `broadcast_dimensions[k]` of `shape`; the rest repeats."""

    shape: Shape
    broadcast_dimensions: Shape
    name = "broadcast_in_dim"
    cost = FREE
    moves = True

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        shape, dims = self.shape, self.broadcast_dimensions
        check_sizes(self.name, shape)
        if (
            len(dims) != len(x.shape)
            or any(not 0 <= d < len(shape) for d in dims)
            or tuple(sorted(set(dims))) != dims
        ):
            raise ShapeError(
                f"broadcast_in_dim: broadcast_dimensions {dims} do not map an operand of shape "
                f"{x.shape} into shape {shape}; expected one axis of the result per axis of the "
                "operand, in increasing order"
            )
        for n, d in zip(x.shape, dims):
            if n != 1 and n != shape[d]:
                raise ShapeError(
                    f"broadcast_in_dim: an operand of shape {x.shape} does not fit into shape "
                    f"{shape} with broadcast_dimensions {dims}; an axis has size 1 or that of the result"
                )
        return (ShapedArray(shape, x.dtype, x.weak_type),)

    def impl(self, x: np.ndarray) -> np.ndarray:  # type: ignore[override]
        shape = self.shape
        if x.ndim:
            inner = [1] * len(shape)
            for n, d in zip(x.shape, self.broadcast_dimensions):
                inner[d] = n
            x = x.reshape(inner)
            if x.shape == shape:
                return x
        try:
            out = np.empty(shape, x.dtype)
        except ValueError:
            check_sizes(self.name, shape)
            raise
        out[...] = x
        return out

    def expanded(self, shape: Shape) -> Shape:
        """The axes of the result along which an operand of `shape` repeats."""
        kept = {d for n, d in zip(shape, self.broadcast_dimensions) if n != 1 or self.shape[d] == 1}
        return tuple([d for d in range(len(self.shape)) if d not in kept])

    def transpose(self, cts: tuple, x: Any) -> tuple:  # type: ignore[override]
        axes = self.expanded(x.shape)
        total = Sum(axes)(cts[0]) if axes else cts[0]
        if total.shape == x.shape:
            return (total,)
        gone = [k for k, d in enumerate(self.broadcast_dimensions) if d in axes]
        return (insert_axes(total, tuple(gone)),)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        (axis,) = axes
        shape, dims = self.shape, self.broadcast_dimensions
        at = dims[axis - 1] + 1 if axis else 0
        dims = (*dims[:axis], at, *[d + 1 for d in dims[axis:]])
        return (Broadcast((*shape[:at], size, *shape[at:]), dims)(args[0]),), (at,)

    def sharding(self, x: ShapedArray) -> Factors:
        wide = [n != self.shape[d] for n, d in zip(x.shape, self.broadcast_dimensions)]
        axes = tuple([None if w else d for w, d in zip(wide, self.broadcast_dimensions)])
        rank = tuple(range(len(self.shape)))

        def local(parts: Mapping[int, int]) -> Broadcast:
            shape = [part(n, parts.get(d, 1)) for d, n in enumerate(self.shape)]
            return Broadcast(tuple(shape), self.broadcast_dimensions)

        return Factors((axes,), (rank,), local=local)

    def lower(self, x: Operand) -> Recipe:  # type: ignore[override]
        dims = self.broadcast_dimensions
        zero = expr.size(0)
        return Point(
            lambda *ix: x(*[zero if n == 1 else ix[d] for n, d in zip(x.shape, dims)]),
        )


def check_axes(name: str, axes: Shape, shape: Shape) -> None:
    """Raise unless `axes` are different axes of `shape`."""
    if len(set(axes)) != len(axes) or any(not 0 <= a < len(shape) for a in axes):
        raise InvalidValue(
            f"{name}: axes {axes} of an operand of shape {shape}; expected different axes between 0 "
            f"and {len(shape) - 1}"
        )


def without(shape: Shape, axes: Shape) -> Shape:
    """`shape` less `axes`."""
    return tuple([n for k, n in enumerate(shape) if k not in axes])


def batched_axes(axes: Shape, at: int) -> tuple[Shape, int]:
    """Axes to reduce when a batch axis is put in at `at`; and the batch axis of the result."""
    return tuple([a + (a >= at) for a in axes]), at - sum(a < at for a in axes)


# Sums of these are accumulated in float32.
NARROW = frozenset(float32_accumulation.NARROW.values())


@dataclass(frozen=True)
class Sum(Linear):
    """The sum over `axes`, which disappear."""

    axes: Shape
    name = "reduce_sum"
    cost = REDUCTION

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        if x.dtype == dtypes.bool_:
            raise TypeMismatch(
                f"reduce_sum of dtype bool, shape {x.shape}; expected numbers: convert it to an "
                "integer dtype to count"
            )
        check_axes("reduce_sum", self.axes, x.shape)
        return (ShapedArray(without(x.shape, self.axes), x.dtype, x.weak_type),)

    def impl(self, x: np.ndarray) -> Any:  # type: ignore[override]
        dtype = x.dtype
        if dtype in NARROW:
            return np.add.reduce(x, self.axes, np.float32).astype(dtype)
        return np.add.reduce(x, self.axes, dtype)

    def transpose(self, cts: tuple, x: Any) -> tuple:  # type: ignore[override]
        kept = tuple([k for k in range(len(x.shape)) if k not in self.axes])
        return (Broadcast(x.shape, kept)(cts[0]),)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        moved, out = batched_axes(self.axes, axes[0])
        return (Sum(moved)(args[0]),), (out,)

    def sharding(self, x: ShapedArray) -> Factors:
        return reduced_axes(x.ndim, self.axes, "sum", 0)

    def lower(self, x: Operand) -> Recipe:  # type: ignore[override]
        if all(x.shape[k] == 1 for k in self.axes):
            return Reshape(x)
        if x.dtype in float32_accumulation.NARROW:
            return float32_accumulation.through_float32(self, x)
        return Fold(
            x.shape,
            self.axes,
            (expr.const(0, x.dtype),),
            lambda *ix: (x(*ix),),
            lambda acc, new: (expr.add(acc[0], new[0]),),
            reassociate="float" in x.dtype or "complex" in x.dtype,
        )


# --- made of these -----------------------------------------------------------------------------


@lru_cache(maxsize=4096, typed=True)
def _scalar(value: Any, dtype: np.dtype) -> ConcreteArray:
    if dtype == dtypes.float0:
        return as_written(ConcreteArray(np.zeros((), dtype)))
    return as_written(ConcreteArray(np.asarray(value, dtype)))


def scalar(value: Any, dtype: np.dtype) -> ConcreteArray:
    """A constant of rank 0."""
    kind = type(value)
    if kind is int or kind is bool or kind is float and value:
        return _scalar(value, dtype)
    array = np.asarray(value, dtype)  # -0.0 and 0.0 are equal, but different constants
    return as_written(ConcreteArray(array)) if any(array.tobytes()) else _scalar(0, dtype)


@lru_cache(maxsize=4096, typed=True)
def _weak_scalar(value: Any, dtype: np.dtype) -> ConcreteArray:
    return as_written(ConcreteArray(np.asarray(value, dtype), True))


def scalar_like(value: Any, x: Any) -> ConcreteArray:
    """A constant of rank 0 that is of the dtype of x, and as weak."""
    if not x.weak_type:
        return scalar(value, x.dtype)
    return _weak_scalar(value or abs(value), x.dtype)


def given(number: ConcreteArray) -> ConcreteArray:
    """A number that others use as well, for a user to keep, or to donate: in memory of its own."""
    if current.get() is evaluate:
        return ConcreteArray(number._value.copy(), number.weak_type)
    return number


def full(shape: Shape, value: Any, dtype: np.dtype) -> Array:
    """`value` everywhere; when traced, a broadcast of a literal."""
    if isinstance(value, Array):
        return Broadcast(shape, ())(value) if shape else value
    return Broadcast(shape, ())(scalar(value, dtype)) if shape else given(scalar(value, dtype))


@dataclass(frozen=True, eq=False)
class Constant(Primitive):
    """An array inside a jaxpr that has no input for it: a user's rule closed over it.

    Functions' own constants are inputs of their jaxprs; rules run when those exist already.
    """

    value: ConcreteArray = field(repr=False)
    name = "constant"
    __eq__, __hash__ = object.__eq__, object.__hash__  # Primitive's would compare no fields

    def abstract(self) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        return (self.value.aval,)

    def impl(self) -> np.ndarray:  # type: ignore[override]
        return self.value._value

    def lower(self, *operands: Operand) -> Recipe:
        return Library("constant", (), self.value._value)


def zeros(aval: ShapedArray) -> Array:
    """Zeros of a type."""
    return full(aval.shape, 0, aval.dtype)


def typed_zeros(aval: ShapedArray) -> Array:
    """Zeros of a type, weak if it is."""
    zero = scalar(0, aval.dtype)
    zero = as_written(zero.with_weak_type(True)) if aval.weak_type else zero  # type: ignore[attr-defined]
    return broadcast_to(zero, aval.shape) if aval.shape else zero


def ones(aval: ShapedArray) -> Array:
    """Ones of a type."""
    return full(aval.shape, 1, aval.dtype)


def broadcast_to(x: Array, shape: Shape) -> Array:
    """Broadcast as NumPy does: axes are aligned at the end."""
    if x.shape == shape:
        return x
    return Broadcast(shape, tuple(range(len(shape) - len(x.shape), len(shape))))(x)


def broadcast_axis(x: Array, size: int, to: int) -> Array:
    """Repeat `size` times along a new axis `to`."""
    n = len(x.shape)
    shape = (*x.shape[:to], size, *x.shape[to:])
    return Broadcast(shape, (*range(to), *range(to + 1, n + 1)))(x)


def insert_axes(x: Array, axes: Shape) -> Array:
    """Axes of size 1 at positions `axes` of the result."""
    rest, shape, dims = iter(x.shape), [], []
    for k in range(len(x.shape) + len(axes)):
        if k in axes:
            shape.append(1)
        else:
            shape.append(next(rest))
            dims.append(k)
    return Broadcast(tuple(shape), tuple(dims))(x)


__all__ = [
    "NARROW",
    "Broadcast",
    "Sum",
    "batched_axes",
    "broadcast_axis",
    "broadcast_to",
    "check_axes",
    "full",
    "insert_axes",
    "ones",
    "scalar",
    "scalar_like",
    "without",
    "zeros",
]
