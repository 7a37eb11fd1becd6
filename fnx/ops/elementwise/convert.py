"""Conversions of dtype: by value, by bits, and to fewer bits of precision."""

from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core import scalar as expr
from fnx.core.array import Array, ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.cost import FREE, SELECTION
from fnx.core.errors import ShapeError, TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import Primitive
from fnx.core.recipe import Library, Operand, Point, Recipe
from fnx.ops.base.linear import Linear
from fnx.ops.base.permute import move_axis
from fnx.ops.base.sharding_rule import Factors
from fnx.ops.elementwise.pointwise import FLOAT, Pointwise


def _saturate(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Float to integer: toward zero, out of range to the nearest end, nan to 0."""
    info = dtypes.iinfo(dtype)
    wide = x if x.dtype.itemsize >= 4 else x.astype(np.float32)
    low, high = float(info.min), float(info.max)  # the upper one may round up, to a power of two
    inside = (wide > low) & (wide < high)
    if inside.all():
        return wide.astype(dtype)
    out = np.where(inside, wide, 0).astype(dtype)
    out = np.where(wide >= high, dtype.type(info.max), out)
    return np.where(wide <= low, dtype.type(info.min), out)


def cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The conversion of values that fnx defines."""
    if dtypes.float0 in (dtype, x.dtype):
        return np.zeros(x.shape, dtype)
    if x.dtype.kind == "c" and dtype.kind != "c":
        if dtype.kind == "b":
            return x.astype(dtype)
        x = x.real
    if x.dtype in dtypes.SMALL and dtype in dtypes.SMALL:  # not all have a way to each other
        x = x.astype(dtypes.SMALL[x.dtype])
    if dtypes.is_integer(dtype) and dtypes.is_float(x.dtype):
        return _saturate(x, dtype)
    return x.astype(dtype)


@dataclass(frozen=True)
class ConvertElementType(Pointwise):
    """The same values in dtype `new_dtype`."""

    new_dtype: np.dtype
    weak_type: bool = False
    name = "convert_element_type"
    cost = FREE
    any_dtype = True

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        return (ShapedArray(x.shape, self.new_dtype, self.weak_type),)

    def impl(self, x: np.ndarray) -> Any:  # type: ignore[override]
        out = cast(x, self.new_dtype)
        return (ConcreteArray(np.asarray(out, order="C"), True),) if self.weak_type else out

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        inexact = dtypes.is_inexact(self.new_dtype)
        tangent = self(tangents[0]) if inexact else None
        return (self(primals[0]),), (tangent,)

    def transpose(self, cts: tuple, x: Any) -> tuple:  # type: ignore[override]
        given, ct = x.aval, cts[0]
        # Of one type it is recorded where weak: its tangent may not be, when it is differentiated again.
        same = ct.dtype == given.dtype and not ct.weak_type and not given.weak_type
        return (ct if same else ConvertElementType(given.dtype, given.weak_type)(ct),)

    def scalar_fn(self, name: str) -> Any:  # type: ignore[override]
        target = dtypes.NAME[self.new_dtype]
        if name.startswith("complex") and not target.startswith("complex") and target != "bool":
            return lambda x: expr.cast(expr.apply("real", x), target)
        return lambda x: expr.cast(x, target)


def convert(x: Array, dtype: np.dtype) -> Array:
    """`x` in `dtype`; itself if it has it."""
    return x if x.dtype == dtype else ConvertElementType(dtype)(x)


def strong(x: Array) -> Array:
    """`x` with its dtype for good: not weak."""
    return ConvertElementType(x.dtype)(x) if x.weak_type else x


@dataclass(frozen=True)
class BitcastConvertType(Primitive):
    """The same bits read as `new_dtype`; of another width, the last axis splits or joins."""

    new_dtype: np.dtype
    name = "bitcast_convert_type"
    any_dtype = True
    cost = SELECTION

    def shape(self, x: Any) -> tuple[int, ...]:
        old, new = dtypes.bits(x.dtype), dtypes.bits(self.new_dtype)
        parts = "c" in (x.dtype.kind, self.new_dtype.kind) and min(old, new) < 8
        if parts or (x.dtype == dtypes.bool_) != (self.new_dtype == dtypes.bool_):
            raise TypeMismatch(
                f"bitcast_convert_type of {x.dtype} to {self.new_dtype}; expected real numbers"
            )
        if old == new:
            return x.shape
        if old > new:
            return (*x.shape, old // new)
        if not x.shape or x.shape[-1] != new // old:
            raise ShapeError(
                f"bitcast_convert_type of {x.dtype}, shape {x.shape}, to {self.new_dtype}; expected a "
                f"last axis of size {new // old}"
            )
        return x.shape[:-1]

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        return (ShapedArray(self.shape(x), self.new_dtype),)

    def impl(self, x: np.ndarray) -> Any:  # type: ignore[override]
        shape = self.shape(x)
        old, new = dtypes.bits(x.dtype), dtypes.bits(self.new_dtype)
        if old == new or min(old, new) >= 8:
            return np.ndarray(shape, self.new_dtype, np.ascontiguousarray(x))
        raw = np.asarray(x, order="C").view(f"u{x.itemsize}")
        offsets = np.arange(0, max(old, new), min(old, new), dtype=f"u{max(old, new) // 8 or 1}")
        if old > new:  # the lowest bits come first
            found = (raw[..., None] >> offsets & ((1 << new) - 1)).astype(np.uint8)
        else:
            found = np.bitwise_or.reduce(raw.astype(offsets.dtype) << offsets, axis=-1)
        return found.view(self.new_dtype)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        return (self(*primals),), (None,)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        return (self(move_axis(args[0], axes[0], 0)),), (0,)

    def sharding(self, x: ShapedArray) -> Factors:
        rank = min(x.ndim, len(self.shape(x)))
        axes, more = tuple(range(rank)), (None,)
        return Factors(
            ((*axes, *more[: x.ndim - rank]),), ((*axes, *more[: len(self.shape(x)) - rank]),)
        )

    def lower(self, x: Operand) -> Recipe:  # type: ignore[override]
        name = dtypes.NAME[self.new_dtype]
        old, new = (dtypes.bits(dtypes.of_name(n)) for n in (x.dtype, name))
        if "complex" in x.dtype + name:
            return Library("same_bytes", (x,))
        if old == new:
            return Point(lambda *ix: expr.bitcast(x(*ix), name))
        narrow, wide = (f"uint{n}" for n in sorted((old, new)))

        def part(*ix: expr.Expr) -> expr.Expr:
            offset = expr.cast(expr.mul(ix[-1], expr.size(new)), wide)
            bits = expr.bitcast(x(*ix[:-1]), wide)
            return expr.bitcast(
                expr.cast(expr.apply("shift_right_logical", bits, offset), narrow), name
            )

        def whole(*ix: expr.Expr) -> expr.Expr:
            found = expr.const(0, wide)
            for k in range(new // old):
                bits = expr.cast(expr.bitcast(x(*ix, expr.size(k)), narrow), wide)
                bits = expr.apply("shift_left", bits, expr.const(old * k, wide))
                found = expr.apply("or", found, bits)
            return expr.bitcast(found, name)

        return Point(part if old > new else whole)  # the lowest bits come first


def _itemsize(name: str) -> int:
    return 2 if name == "bfloat16" else np.dtype(name).itemsize


# Bits of the exponent and of the mantissa.
FORMAT = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float64": (11, 52)}


@dataclass(frozen=True)
class ReducePrecision(Pointwise):
    """Rounded (half to even) to a float format of `exponent_bits` and `mantissa_bits`."""

    exponent_bits: int
    mantissa_bits: int
    name = "reduce_precision"
    cost = SELECTION
    accepts = FLOAT

    def impl(self, x: np.ndarray) -> Any:  # type: ignore[override]
        exponent, mantissa = FORMAT[dtypes.NAME[x.dtype]]
        out = _round_mantissa(x, mantissa - self.mantissa_bits)
        if self.exponent_bits < exponent:
            # As XLA has it: what would be subnormal in the small format becomes zero.
            largest, smallest = self.range(x.dtype)
            out = np.where(np.abs(out) > largest, np.copysign(x.dtype.type(np.inf), x), out)
            out = np.where(np.abs(out) < smallest, np.copysign(x.dtype.type(0), x), out)
        return np.where(np.isnan(x), x, out)

    def range(self, dtype: np.dtype) -> tuple[Any, Any]:
        """The largest and the smallest normal number of the small format."""
        bias = (1 << (self.exponent_bits - 1)) - 1
        bits = min(self.mantissa_bits, FORMAT[dtypes.NAME[dtype]][1])
        return tuple(np.array([(2.0 - 2.0**-bits) * 2.0**bias, 2.0 ** (1 - bias)]).astype(dtype))

    def scalar_fn(self, name: str) -> Any:  # type: ignore[override]
        exponent, mantissa = FORMAT[name]
        small = self.exponent_bits < exponent
        largest, smallest = map(float, self.range(dtypes.canonical(name))) if small else (0.0, 0.0)

        def fn(x: expr.Expr) -> expr.Expr:
            out = _round_mantissa_expr(x, mantissa - self.mantissa_bits)
            if small:
                size, negative = expr.apply("abs", out), expr.compare("lt", x, const(0.0))
                inf = expr.select(negative, const(-np.inf), const(np.inf))
                out = expr.select(expr.compare("gt", size, const(largest)), inf, out)
                zero = expr.select(negative, const(-0.0), const(0.0))
                out = expr.select(expr.compare("lt", size, const(smallest)), zero, out)
            return expr.select(expr.compare("ne", x, x), x, out)

        def const(value: float) -> expr.Expr:
            return expr.const(value, name)

        return fn

    jvp = Linear.jvp

    def transpose(self, cts: tuple, x: Any) -> list:  # type: ignore[override]
        return [self(cts[0])]


def _round_mantissa(x: np.ndarray, drop: int) -> np.ndarray:
    """A float without its last `drop` bits, rounded half to even."""
    if drop <= 0:
        return x
    raw = x.view(f"u{x.dtype.itemsize}")
    one, low = raw.dtype.type(1), raw.dtype.type((1 << drop) - 1)
    odd = (raw >> raw.dtype.type(drop)) & one
    return np.asarray((raw + (low >> one) + odd) & ~low).view(x.dtype)


def _round_mantissa_expr(x: expr.Expr, drop: int) -> expr.Expr:
    if drop <= 0:
        return x
    name = f"uint{8 * _itemsize(x.dtype)}"

    def const(value: int) -> expr.Expr:
        return expr.const(value, name)

    raw, low = expr.bitcast(x, name), (1 << drop) - 1
    shifted = expr.apply("shift_right_logical", raw, const(drop))
    odd = expr.apply("and", shifted, const(1))
    raised = expr.add(expr.add(raw, const(low >> 1)), odd)
    kept = const((1 << 8 * _itemsize(x.dtype)) - 1 - low)
    return expr.bitcast(expr.apply("and", raised, kept), x.dtype)
