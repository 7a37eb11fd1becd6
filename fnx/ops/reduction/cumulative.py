"""Cumulative sums, products, extrema and logsumexps; and the recurrence that their tangents obey."""

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from fnx.core import dtypes, recipe
from fnx.core import scalar as expr
from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.cost import REDUCTION
from fnx.core.errors import TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import Primitive, Undefined
from fnx.core.recipe import Operand, Recipe
from fnx.ops.base import float32_accumulation
from fnx.ops.base.broadcast import (
    Broadcast,
    Shape,
    broadcast_axis,
    check_axes,
    full,
    scalar,
    without,
)
from fnx.ops.base.permute import move_axis, reshape
from fnx.ops.base.sharding_rule import Factors, all_but
from fnx.ops.elementwise.arithmetic import exp, log1p, max_, min_, mul, sub
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.elementwise.pointwise import FLOAT, NUMBER, add, dtype_table
from fnx.ops.elementwise.select import eq, gt, lt, select
from fnx.ops.structure.join import Concatenate
from fnx.ops.structure.slice import Slice, slice_axis

_REAL = dtype_table("iuf")
_UFUNC = {
    "cumsum": np.add,
    "cumprod": np.multiply,
    "cummax": np.maximum,
    "cummin": np.minimum,
    "cumlogsumexp": np.logaddexp,
}
_ACCEPTS = {
    "cumsum": NUMBER,
    "cumprod": NUMBER,
    "cummax": _REAL,
    "cummin": _REAL,
    "cumlogsumexp": FLOAT,
}

_EXACT = ("cummax", "cummin")  # whose results are elements


def _combine(kind: str, a: expr.Expr, b: expr.Expr) -> expr.Expr:
    if kind == "cumlogsumexp":
        return expr.logaddexp(a, b)
    if kind in ("cummax", "cummin"):
        return expr.extremum(kind[3:], a, b)
    return expr.add(a, b) if kind == "cumsum" else expr.mul(a, b)


def _start(kind: str, dtype: str) -> int | float:
    """What changes nothing that it is combined with."""
    if kind in ("cumsum", "cumprod"):
        return int(kind == "cumprod")
    sign = 1 if kind == "cummin" else -1
    if "float" in dtype:
        return sign * float("inf")
    info = dtypes.iinfo(dtype)
    return int(info.max if sign > 0 else info.min)


def _gap(a: Array, b: Array) -> Array:
    """a - b, and 0 between equal infinities."""
    return select(eq(a, b), scalar(0, a.dtype), sub(a, b))


def _log_add_exp(a: Array, b: Array) -> Array:
    high, low = max_(a, b), min_(a, b)
    return add(high, log1p(exp(_gap(low, high))))


_COMBINE = {
    "cumsum": add,
    "cumprod": mul,
    "cummax": max_,
    "cummin": min_,
    "cumlogsumexp": _log_add_exp,
}


def _before(grid: Any, x: Any, axis: int, reverse: bool, local: Sequence[Array], fold: Any,
            first: Any) -> Array:  # fmt: skip
    """What the members before this one along a cut axis come to, beside all its elements.

    `local` are each member's own results, whose last elements `fold` folds along axis 0.
    """
    names, end = x.cut[axis], 0 if reverse else x.x.shape[axis] - 1
    totals = [grid.rows(slice_axis(y, end, end + 1, axis), names) for y in local]
    mine = grid.own(shift(fold(*totals), 0, reverse, first), names)
    shape = x.x.shape
    return Broadcast(shape, tuple([k for k in range(len(shape)) if k != axis]))(
        reshape(mine, without(shape, (axis,)))
    )


@dataclass(frozen=True)
class Cumulative(Primitive):
    """Every partial result of a fold along `axis`, from its end if `reverse`."""

    name: str = field()
    axis: int
    reverse: bool = False
    cost = REDUCTION

    def params(self) -> dict[str, Any]:
        return {"axis": self.axis, "reverse": self.reverse}

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        if x.dtype not in _ACCEPTS[self.name]:
            raise TypeMismatch(
                f"{self.name} of dtype {x.dtype}; expected one of "
                f"{', '.join(dtypes.NAME[d] for d in _ACCEPTS[self.name])}"
            )
        check_axes(self.name, (self.axis,), x.shape)
        return (x,)

    def impl(self, x: np.ndarray) -> Any:  # type: ignore[override]
        ufunc, axis = _UFUNC[self.name], self.axis
        wide = x.dtype if self.name in _EXACT else float32_accumulation.accumulator(x.dtype)
        if not self.reverse:
            return ufunc.accumulate(x, axis, wide).astype(x.dtype, copy=False)
        return np.flip(ufunc.accumulate(np.flip(x, axis), axis, wide), axis).astype(x.dtype)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        (x,), (t,) = primals, tangents
        out = self(x)
        if self.name == "cumsum":
            return (out,), (self(t),)
        if out.weak_type:
            out = ConvertElementType(out.dtype)(
                out
            )  # as JAX's, which differentiates another formula
        keep, take = self.slopes(x, out)
        return (out,), (Recurrence(self.axis, self.reverse)(keep, mul(t, take)),)

    def slopes(self, x: Array, out: Array) -> tuple[Array, Array]:
        """Derivatives of each result in the result before it and in its own element."""
        before = shift(out, self.axis, self.reverse, int(self.name == "cumprod"))
        if self.name == "cumprod":
            return x, before
        if self.name == "cumlogsumexp":
            first = shift(full(x.shape, True, dtypes.bool_), self.axis, self.reverse, False)
            share = lambda part: exp(_gap(part, out))
            return select(first, share(before), scalar(0, x.dtype)), share(x)
        better = gt if self.name == "cummax" else lt
        first = shift(full(x.shape, True, dtypes.bool_), self.axis, self.reverse, False)
        one, half, none = (scalar(v, x.dtype) for v in (1, 0.5, 0))
        take = select(better(x, before), one, select(eq(x, before), half, none))
        take = select(first, take, one)
        return sub(one, take), take

    def transpose(self, cts: tuple, x: Any) -> tuple:  # type: ignore[override]
        if self.name != "cumsum":
            raise self._missing("transpose", "reverse-mode differentiation of a linear use")
        return (Cumulative(self.name, self.axis, not self.reverse)(cts[0]),)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        at = axes[0]
        return (Cumulative(self.name, self.axis + (self.axis >= at), self.reverse)(args[0]),), (at,)

    def sharding(self, x: ShapedArray) -> Factors:
        return all_but(x.ndim, (self.axis,))

    def along(self, grid: Any, parts: Sequence[Any]) -> list:
        """Each member's part, and then what came before it (a scan in two passes, Blelloch 1990)."""
        first = _start(self.name, dtypes.NAME[parts[0].x.dtype])
        x = grid.masked(parts[0], self.axis, first)
        local = self(x.x)
        fold = Cumulative(self.name, 0, self.reverse)
        before = _before(grid, x, self.axis, self.reverse, (local,), fold, first)
        return [grid.part(_COMBINE[self.name](before, local), x.shape, x.cut)]

    def lower(self, x: Operand) -> Recipe:  # type: ignore[override]
        narrow = float32_accumulation.SMALL if self.name in _EXACT else float32_accumulation.NARROW
        if x.dtype in narrow:
            return float32_accumulation.through_float32(self, x)
        return recipe.Cumulative(
            x.shape,
            self.axis,
            self.reverse,
            (expr.const(_start(self.name, x.dtype), x.dtype),),
            lambda *ix: (x(*ix),),
            lambda acc, new: (_combine(self.name, acc[0], new[0]),),
        )


def shift(x: Array, axis: int, reverse: bool, value: Any) -> Array:
    """Each element's predecessor along an axis; `value` for the first."""
    shape, n = x.shape, x.shape[axis]
    if not n:
        return x
    lo, hi = [0] * len(shape), list(shape)
    if reverse:
        lo[axis] = 1
    else:
        hi[axis] = n - 1
    rest = Slice(tuple(lo), tuple(hi))(x)
    edge = Broadcast((*shape[:axis], 1, *shape[axis + 1 :]), ())(scalar(value, x.dtype))
    return Concatenate(axis)(*((rest, edge) if reverse else (edge, rest)))


@dataclass(frozen=True)
class Recurrence(Primitive):
    """y[k] = a[k] * y[k - 1] + b[k] along `axis`, from 0 before the first; linear in b."""

    axis: int
    reverse: bool = False
    name = "linear_recurrence"

    def abstract(self, a: ShapedArray, b: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        if a.shape != b.shape or a.dtype != b.dtype or a.dtype not in NUMBER:
            raise TypeMismatch(
                f"linear_recurrence of {a} and {b}; expected numbers of equal shapes and dtypes"
            )
        return (ShapedArray(a.shape, a.dtype, a.weak_type and b.weak_type),)

    def impl(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:  # type: ignore[override]
        out = np.empty(b.shape, float32_accumulation.accumulator(b.dtype))
        rows, factors, terms = (np.moveaxis(v, self.axis, 0) for v in (out, a, b))
        steps = range(len(rows))
        last = None
        for k in reversed(steps) if self.reverse else steps:
            rows[k] = terms[k] if last is None else factors[k] * last + terms[k]
            last = rows[k]
        return out.astype(b.dtype, copy=False)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        (a, _), (ta, tb) = primals, tangents
        out = self(*primals)
        term = tb
        if ta is not None:
            by_a = mul(ta, shift(out, self.axis, self.reverse, 0))
            term = by_a if tb is None else add(by_a, tb)
        return (out,), (self(a, term),)

    def transpose(self, cts: tuple, a: Any, b: Any) -> tuple:  # type: ignore[override]
        if type(a) is Undefined:
            raise self._missing("transpose", "a recurrence that is linear in its factors")
        after = shift(a, self.axis, not self.reverse, 0)
        return None, Recurrence(self.axis, not self.reverse)(after, cts[0])

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        at = next(k for k in axes if k is not None)
        xs = [
            broadcast_axis(x, size, at) if k is None else move_axis(x, k, at)
            for x, k in zip(args, axes)
        ]
        return (Recurrence(self.axis + (self.axis >= at), self.reverse)(*xs),), (at,)

    def sharding(self, a: ShapedArray, b: ShapedArray) -> Factors:
        return all_but(a.ndim, (self.axis,), operands=2)

    def along(self, grid: Any, parts: Sequence[Any]) -> list:
        """Each member's part from 0, and then the product of its factors and what comes before it."""
        axis = self.axis
        a, b = parts if parts[0].cut[axis] else parts[::-1]
        other = grid.lay(b, grid.beside(b, axis, a.cut[axis]))
        a = grid.lay(a, other.cut)
        a, b = (a, other) if parts[0].cut[axis] else (other, a)
        a, b = grid.masked(a, axis, 1), grid.masked(b, axis, 0)
        local, factors = self(a.x, b.x), Cumulative("cumprod", axis, self.reverse)(a.x)
        fold = Recurrence(0, self.reverse)
        before = _before(grid, b, axis, self.reverse, (factors, local), fold, 0)
        # The product of factors may be infinite where nothing came before.
        more = select(eq(before, scalar(0, b.x.dtype)), before, mul(factors, before))
        return [grid.part(add(local, more), b.shape, b.cut)]

    def lower(self, a: Operand, b: Operand) -> Recipe:  # type: ignore[override]
        if b.dtype in float32_accumulation.NARROW:
            return float32_accumulation.through_float32(self, a, b)
        zero = expr.const(0, b.dtype)
        shape: Shape = b.shape
        return recipe.Cumulative(
            shape,
            self.axis,
            self.reverse,
            (zero,),
            lambda *ix: (a(*ix), b(*ix)),
            lambda acc, new: (expr.add(expr.mul(new[0], acc[0]), new[1]),),
        )


__all__ = ["Cumulative", "Recurrence", "shift"]
