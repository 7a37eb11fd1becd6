"""Reductions other than the sum: max, min, prod, and, or, xor; and the places of extrema."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from fnx.core import dtypes
from fnx.core import scalar as expr
from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.cost import REDUCTION
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import Primitive
from fnx.core.recipe import Call, Fold, Operand, Recipe
from fnx.core.recipe import Reshape as ReshapeRecipe
from fnx.ops.base import float32_accumulation
from fnx.ops.base.broadcast import (
    NARROW,
    Broadcast,
    Shape,
    Sum,
    batched_axes,
    broadcast_axis,
    check_axes,
    scalar,
    scalar_like,
    without,
)
from fnx.ops.base.compose import Program
from fnx.ops.base.permute import Reshape, Transpose
from fnx.ops.base.sharding_rule import Factors, all_but, reduced_axes
from fnx.ops.elementwise.arithmetic import div, mul
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.elementwise.pointwise import ANY, INTEGRAL, NUMBER, add
from fnx.ops.elementwise.select import eq, ne, or_, select, select_n
from fnx.ops.reduction.cumulative import Cumulative
from fnx.ops.structure.join import Concatenate, Iota
from fnx.ops.structure.slice import Slice


def lowest(dtype: np.dtype) -> Any:
    """The smallest value: -inf for floats."""
    if dtypes.is_inexact(dtype):
        return complex(-math.inf, -math.inf) if dtypes.is_complex(dtype) else -math.inf
    return False if dtype.kind == "b" else int(dtypes.iinfo(dtype).min)


def highest(dtype: np.dtype) -> Any:
    """The largest value: inf for floats."""
    if dtypes.is_inexact(dtype):
        return complex(math.inf, math.inf) if dtypes.is_complex(dtype) else math.inf
    return True if dtype.kind == "b" else int(dtypes.iinfo(dtype).max)


def _combine(op: str, acc: expr.Expr, new: expr.Expr) -> expr.Expr:
    return expr.extremum(op, acc, new) if op in ("max", "min") else expr.apply(op, acc, new)


@dataclass(frozen=True)
class Reduction(Primitive):
    """Folds a commutative, associative operation over `axes`, which disappear."""

    axes: Shape
    accepts = ANY
    cost = REDUCTION
    op = ""  # the scalar operation
    ufunc: ClassVar[np.ufunc]

    def identity(self, dtype: np.dtype) -> Any:
        """The value of an empty reduction."""
        raise NotImplementedError

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        if x.dtype not in self.accepts:
            raise TypeMismatch(
                f"{self.name} of dtype {x.dtype}, shape {x.shape}; expected one of "
                f"{', '.join(dtypes.NAME[d] for d in self.accepts)}"
            )
        check_axes(self.name, self.axes, x.shape)
        return (ShapedArray(without(x.shape, self.axes), x.dtype, x.weak_type),)

    def impl(self, x: np.ndarray) -> Any:  # type: ignore[override]
        if not x.size:
            return np.full(without(x.shape, self.axes), self.identity(x.dtype), x.dtype)
        return type(self).ufunc.reduce(x, axis=self.axes)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        moved, out = batched_axes(self.axes, axes[0])
        return (type(self)(moved)(args[0]),), (out,)

    def sharding(self, x: ShapedArray) -> Factors:
        extremum = self.op in ("max", "min") and not dtypes.is_complex(x.dtype)
        return reduced_axes(
            x.ndim, self.axes, self.op if extremum else type(self), self.identity(x.dtype)
        )

    def lower(self, x: Operand) -> Recipe:  # type: ignore[override]
        narrow = float32_accumulation.NARROW if self.op == "mul" else float32_accumulation.SMALL
        if x.dtype in narrow:  # not all small formats have an infinity to start from
            return float32_accumulation.through_float32(self, x)
        if all(x.shape[k] == 1 for k in self.axes):
            return ReshapeRecipe(x)
        identity = self.identity(dtypes.of_name(x.dtype))
        return Fold(
            x.shape,
            self.axes,
            (expr.const(identity, x.dtype),),
            lambda *ix: (x(*ix),),
            lambda acc, new: (_combine(self.op, acc[0], new[0]),),
            reassociate="float" in x.dtype or "complex" in x.dtype,
        )

    def spread(self, y: Array, shape: Shape) -> Array:
        """A result, broadcast back to the operand's shape."""
        return Broadcast(shape, tuple([k for k in range(len(shape)) if k not in self.axes]))(y)


@dataclass(frozen=True)
class _ReduceExtremum(Reduction):
    """The largest or smallest element."""

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        # The tangent is shared evenly by all elements that are the extremum. Where that is nan none
        # equals it: 0 / 0 is the nan that derivatives of both modes have then.
        (x,), (t,) = primals, tangents
        out = self(x)
        here = ConvertElementType(x.dtype, x.weak_type)(eq(x, self.spread(out, x.shape)))
        count = Sum(self.axes)(here)
        return (out,), (div(Sum(self.axes)(mul(here, t)), count),)


@dataclass(frozen=True)
class Max(_ReduceExtremum):
    """The largest element; NaN if there is one."""

    name = "reduce_max"
    op, ufunc = "max", np.maximum

    def identity(self, dtype: np.dtype) -> Any:
        return lowest(dtype)


@dataclass(frozen=True)
class Min(_ReduceExtremum):
    """The smallest element; NaN if there is one."""

    name = "reduce_min"
    op, ufunc = "min", np.minimum

    def identity(self, dtype: np.dtype) -> Any:
        return highest(dtype)


@dataclass(frozen=True)
class Prod(Reduction):
    """The product."""

    name = "reduce_prod"
    accepts = NUMBER
    op, ufunc = "mul", np.multiply

    def identity(self, dtype: np.dtype) -> Any:
        return 1

    def impl(self, x: np.ndarray) -> Any:  # type: ignore[override]
        if x.dtype in NARROW:
            return np.multiply.reduce(x, self.axes, np.float32).astype(x.dtype)
        return np.multiply.reduce(x, self.axes, x.dtype)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        # The product of all others is the one of those before times the one of those after: right
        # where an element is 0.
        (x,), (t,) = primals, tangents
        x, t = _flat(x, self.axes), _flat(t, self.axes)
        last = (len(x.shape) - 1,)
        others = mul(_before(x, False), _before(x, True))
        return (self(primals[0]),), (Sum(last)(mul(t, others)),)


def _flat(x: Array, axes: Shape) -> Array:
    """`axes` moved to the end and made one."""
    kept = [k for k in range(len(x.shape)) if k not in axes]
    order = (*kept, *axes)
    moved = x if order == tuple(range(len(order))) else Transpose(order)(x)
    head = tuple([x.shape[k] for k in kept])
    n = math.prod([x.shape[k] for k in axes])
    return moved if moved.shape == (*head, n) else Reshape((*head, n))(moved)


def _before(x: Array, reverse: bool) -> Array:
    """The product of the elements before each one, along the last axis."""
    *head, n = x.shape
    if not n:
        return x
    one = Broadcast((*head, 1), ())(scalar_like(1, x))
    low, high = (1, n) if reverse else (0, n - 1)
    rest = Slice((0,) * len(head) + (low,), (*head, high))(x)
    parts = (rest, one) if reverse else (one, rest)
    shifted = Concatenate(len(head))(*parts)
    return Cumulative("cumprod", len(head), reverse)(shifted)


@dataclass(frozen=True)
class _ReduceBits(Reduction):
    """A bitwise operation over all elements."""

    accepts = INTEGRAL


@dataclass(frozen=True)
class ReduceAnd(_ReduceBits):
    """All bits that all elements have; of bools, whether all are true."""

    name = "reduce_and"
    op, ufunc = "and", np.bitwise_and

    def identity(self, dtype: np.dtype) -> Any:
        return -1 if dtype.kind == "i" else highest(dtype)


@dataclass(frozen=True)
class ReduceOr(_ReduceBits):
    """All bits that any element has; of bools, whether any is true."""

    name = "reduce_or"
    op, ufunc = "or", np.bitwise_or

    def identity(self, dtype: np.dtype) -> Any:
        return 0


@dataclass(frozen=True)
class ReduceXor(_ReduceBits):
    """The bits that an odd number of elements have."""

    name = "reduce_xor"
    op, ufunc = "xor", np.bitwise_xor

    def identity(self, dtype: np.dtype) -> Any:
        return 0


# --- places of extrema -------------------------------------------------------------------------


@dataclass(frozen=True)
class ArgExtremum(Primitive):
    """The index along the one axis of `axes` of an extremum: the first; the first NaN before all."""

    axes: Shape
    index_dtype: np.dtype
    cost = REDUCTION
    find = extremum = None  # NumPy's function, and the reduction to the extremum

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        if len(self.axes) != 1 or x.dtype not in ANY or dtypes.is_complex(x.dtype):
            raise TypeMismatch(
                f"{self.name} of dtype {x.dtype} along axes {self.axes}; expected one axis, and a dtype "
                "that is ordered"
            )
        check_axes(self.name, self.axes, x.shape)
        if not x.shape[self.axes[0]]:
            raise InvalidValue(
                f"{self.name} along axis {self.axes[0]}, which is empty, of an operand of shape {x.shape}"
            )
        if not dtypes.is_integer(self.index_dtype):
            raise TypeMismatch(f"{self.name}: index_dtype {self.index_dtype}; expected integers")
        return (ShapedArray(without(x.shape, self.axes), self.index_dtype),)

    def impl(self, x: np.ndarray) -> Any:  # type: ignore[override]
        if x.dtype.kind == "c":  # NumPy has an order of them
            raise TypeError
        x = x.astype(np.float32) if x.dtype in NARROW else x
        return np.asarray(type(self).find(x, self.axes[0])).astype(self.index_dtype)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        return (self(*primals),), (None,)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        moved, out = batched_axes(self.axes, axes[0])
        return (type(self)(moved, self.index_dtype)(args[0]),), (out,)

    def sharding(self, x: ShapedArray) -> Factors:
        rule = all_but(x.ndim, self.axes)
        return Factors(rule.operands, (without(rule.operands[0], self.axes),))

    def along(self, grid: Any, parts: Sequence[Any]) -> list:
        """Where each member's extremum is, and then the first of the members with the extremum."""
        (axis,), kind = self.axes, type(self)
        reduce = kind.extremum((axis,))  # type: ignore[misc]
        x = grid.masked(parts[0], axis, reduce.identity(parts[0].x.dtype))
        names, wide = x.cut[axis], dtypes.int64
        place = ConvertElementType(wide)(kind(self.axes, wide)(x.x))
        size = scalar(x.x.shape[axis], wide)
        place = add(place, mul(ConvertElementType(wide)(grid.number(names)), size))
        bests, places = grid.rows(reduce(x.x), names), grid.rows(place, names)
        member = kind((0,), wide)(bests)
        here = eq(Iota(0, wide, places.shape)(), broadcast_axis(member, places.shape[0], 0))
        found = Max((0,))(select(here, places, scalar(0, wide)))
        shape, cut = without(x.shape, self.axes), without(x.cut, self.axes)
        return [grid.part(ConvertElementType(self.index_dtype)(found), shape, cut)]

    def lower(self, x: Operand) -> Recipe:  # type: ignore[override]
        # Two folds that run at vector speed: the extremum, then the first index where it stands.
        dtype, (axis,) = dtypes.of_name(x.dtype), self.axes
        p = Program((ShapedArray(x.shape, dtype),))
        value = p.inputs[0]
        best = p(self.extremum(self.axes), value)
        kept = tuple([k for k in range(len(x.shape)) if k != axis])
        here = p(eq, value, p(Broadcast(x.shape, kept), best))
        if dtypes.is_float(dtype):
            here = p(or_, here, p(ne, value, value))
        index = p(Iota(axis, dtypes.int64, x.shape))
        far = p.constant(x.shape[axis], dtypes.int64)
        first = p(Min(self.axes), p(select_n, here, far, index))
        out = p(ConvertElementType(self.index_dtype), first)
        return Call(p.jaxpr(self.name, out))


@dataclass(frozen=True)
class ArgMax(ArgExtremum):
    """Where the largest element is."""

    name = "argmax"
    find, extremum = np.argmax, Max


@dataclass(frozen=True)
class ArgMin(ArgExtremum):
    """Where the smallest element is."""

    name = "argmin"
    find, extremum = np.argmin, Min
