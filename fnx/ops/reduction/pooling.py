"""Reductions over sliding windows: sums, and extrema (pooling)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core import scalar as expr
from fnx.core.aval import ShapedArray
from fnx.core.errors import TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.recipe import Fold, Operand, Point, Recipe
from fnx.ops.base import float32_accumulation
from fnx.ops.base.broadcast import NARROW
from fnx.ops.base.linear import Linear
from fnx.ops.elementwise.pointwise import NUMBER, dtype_table
from fnx.ops.reduction.reduction import highest, lowest
from fnx.ops.reduction.select_and_scatter import WindowGather
from fnx.ops.structure.sliding_windows import Windowed

_REAL = dtype_table("iuf")
_UFUNCS = {"sum": np.add, "max": np.maximum, "min": np.minimum}


@dataclass(frozen=True)
class _ReduceWindow(Windowed):
    """A fold over each window, with the operation's identity as padding."""

    kind = ""
    accepts = _REAL

    def identity(self, dtype: np.dtype) -> Any:
        return {"sum": lambda d: 0, "max": lowest, "min": highest}[self.kind](dtype)

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        if x.dtype not in self.accepts:
            raise TypeMismatch(f"{self.name} of dtype {x.dtype}; expected numbers")
        return (ShapedArray(self.out_shape(x.shape), x.dtype, x.weak_type),)

    def impl(self, x: np.ndarray) -> Any:  # type: ignore[override]
        view = self.windows(x, self.identity(x.dtype))
        axes = tuple(range(x.ndim, 2 * x.ndim))
        if not view.size:
            return np.full(view.shape[: x.ndim], self.identity(x.dtype), x.dtype)
        ufunc = _UFUNCS[self.kind]
        if self.kind == "sum":
            wide = np.float32 if x.dtype in NARROW else x.dtype
            return np.asarray(ufunc.reduce(view, axes, wide)).astype(x.dtype, copy=False)
        return ufunc.reduce(view, axes)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        return (self.with_axis(axes[0])(args[0]),), (axes[0],)

    def fills(self, axis: int, dtypes: Sequence[np.dtype]) -> tuple | None:
        return (self.identity(dtypes[0]),)

    def lower(self, x: Operand) -> Recipe:  # type: ignore[override]
        rank, out = len(x.shape), self.out_shape(x.shape)
        if 0 in x.shape:
            dtype = dtypes.canonical(x.dtype)
            return Point(lambda *ix: expr.const(self.identity(dtype), x.dtype))
        rounds = float32_accumulation.NARROW if self.kind == "sum" else float32_accumulation.SMALL
        if x.dtype in rounds:
            return float32_accumulation.through_float32(self, x)
        dtype = dtypes.of_name(x.dtype)
        start = expr.const(self.identity(dtype), x.dtype)

        def fn(*ix: expr.Expr) -> tuple[expr.Expr, ...]:
            here, index = self.point(x, ix[:rank], ix[rank:])
            return (expr.select(here, x(*index), start),)

        return Fold(
            (*out, *self.window_dimensions),
            tuple(range(rank, 2 * rank)),
            (start,),
            fn,
            lambda acc, new: (self._combine(acc[0], new[0]),),
            reassociate="float" in x.dtype,
        )

    def _combine(self, acc: expr.Expr, new: expr.Expr) -> expr.Expr:
        return expr.add(acc, new) if self.kind == "sum" else expr.extremum(self.kind, acc, new)


@dataclass(frozen=True)
class ReduceWindowSum(_ReduceWindow):
    """The sum of each window."""

    name = "reduce_window_sum"
    kind = "sum"
    accepts = NUMBER

    jvp = Linear.jvp

    def transpose(self, cts: tuple, x: Any) -> tuple:  # type: ignore[override]
        # Each element gets the sum of the results whose windows it was in: windows again, over the
        # cotangent spread by the strides.
        padding = []
        for n, m, w, s, d, (lo, _), base in zip(
            x.shape,
            cts[0].shape,
            self.window_dimensions,
            self.window_strides,
            self.window_dilation,
            self.padding,
            self.base_dilation,
        ):
            reach = (w - 1) * d
            low = reach - lo
            spread, wanted = (m - 1) * s + 1 if m else 0, (n - 1) * base + 1 if n else 0
            padding.append((low, wanted + reach - spread - low))
        back = ReduceWindowSum(
            self.window_dimensions,
            self.base_dilation,
            tuple(padding),
            self.window_strides,
            self.window_dilation,
        )
        return (back(cts[0]),)


@dataclass(frozen=True)
class _WindowExtremum(_ReduceWindow):
    """The largest or smallest element of each window."""

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        (x,), (t,) = primals, tangents
        return (self(x),), (WindowGather(**vars(self), select=self.kind)(t, x),)


@dataclass(frozen=True)
class ReduceWindowMax(_WindowExtremum):
    """The largest element of each window."""

    name = "reduce_window_max"
    kind = "max"


@dataclass(frozen=True)
class ReduceWindowMin(_WindowExtremum):
    """The smallest element of each window."""

    name = "reduce_window_min"
    kind = "min"
