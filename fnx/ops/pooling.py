"""Reductions over sliding windows, and how gradients pass through the windows of extrema."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core import scalar as expr
from fnx.core.aval import ShapedArray
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.core.primitive import Primitive, Undefined
from fnx.core.recipe import Fold, Host, Operand, Recipe
from fnx.ops import widen
from fnx.ops.broadcast import NARROW, Shape, broadcast_axis
from fnx.ops.permute import move_axis
from fnx.ops.pointwise import NUMBER, dtype_table
from fnx.ops.reduction import highest, lowest
from fnx.ops.slice import Pad

_REAL = dtype_table("iuf")
_KINDS = {"sum": (np.add, "add"), "max": (np.maximum, "max"), "min": (np.minimum, "min")}


@dataclass(frozen=True)
class Windowed(Primitive):
    """Windows of `window_dimensions`, one for each element of the result.

    The operand is spread by `base_dilation` and padded; windows start every `window_strides`
    elements, and their elements are `window_dilation` apart.
    """

    window_dimensions: Shape
    window_strides: Shape
    padding: tuple[tuple[int, int], ...]
    base_dilation: Shape
    window_dilation: Shape

    def pads(self) -> tuple[tuple[int, int, int], ...]:
        return tuple([(lo, hi, d - 1) for (lo, hi), d in zip(self.padding, self.base_dilation)])

    def out_shape(self, shape: Shape) -> Shape:
        rank = len(shape)
        for given in (
            self.window_dimensions,
            self.window_strides,
            self.padding,
            self.base_dilation,
            self.window_dilation,
        ):
            if len(given) != rank:
                raise ShapeError(
                    f"{self.name} of an operand of shape {shape} with window_dimensions "
                    f"{self.window_dimensions}, window_strides {self.window_strides}, padding "
                    f"{self.padding}; expected one entry for each of {rank} axes"
                )
        if min((*self.window_strides, *self.base_dilation, *self.window_dilation, 1)) < 1:
            raise InvalidValue(f"{self.name}: strides and dilations are at least 1")
        padded = Pad(self.pads()).out_shape(shape)
        return tuple(
            [
                max(0, (n - (w - 1) * d - 1) // s + 1) if n else 0
                for n, w, d, s in zip(
                    padded, self.window_dimensions, self.window_dilation, self.window_strides
                )
            ]
        )

    def windows(self, x: np.ndarray, fill: Any) -> np.ndarray:
        """A view of shape (*result, *window)."""
        shape = self.out_shape(x.shape)
        padded = Pad(self.pads()).impl(x, np.asarray(fill, x.dtype))
        strides = [s * k for s, k in zip(padded.strides, self.window_strides)]
        inner = [s * k for s, k in zip(padded.strides, self.window_dilation)]
        full = (*shape, *self.window_dimensions)
        if not math.prod(full):
            return np.empty(full, x.dtype)
        return np.lib.stride_tricks.as_strided(padded, full, (*strides, *inner), writeable=False)

    def with_axis(self, at: int, **changes: Any) -> "Windowed":
        """The same for operands with another axis, put in at `at`, along which windows have size 1."""

        def put(values: tuple, new: Any) -> tuple:
            return (*values[:at], new, *values[at:])

        made = {
            "window_dimensions": put(self.window_dimensions, 1),
            "window_strides": put(self.window_strides, 1),
            "padding": put(self.padding, (0, 0)),
            "base_dilation": put(self.base_dilation, 1),
            "window_dilation": put(self.window_dilation, 1),
        }
        return type(self)(**made, **changes)

    def point(self, x: Operand, out: tuple, window: tuple) -> tuple[expr.Expr, list[expr.Expr]]:
        """Whether an element of a window is one of the operand's, and which."""
        here, index = expr.const(True, "bool"), []
        for k, n in enumerate(x.shape):
            (lo, hi), base = self.padding[k], self.base_dilation[k]
            place = expr.add(
                expr.mul(out[k], expr.size(self.window_strides[k])),
                expr.mul(window[k], expr.size(self.window_dilation[k])),
            )
            place = expr.sub(place, expr.size(lo)) if lo else place
            element = place
            if base > 1:
                element = expr.apply("div", place, expr.size(base))
                exact = expr.mul(element, expr.size(base))
                here = expr.logical_and(here, expr.compare("eq", exact, place))
            if lo > 0:
                here = expr.logical_and(here, expr.compare("ge", place, expr.size(0)))
            if hi > 0:
                here = expr.logical_and(here, expr.compare("lt", element, expr.size(n)))
            if lo > 0 or hi > 0 or base > 1:
                element = expr.clamp(expr.size(0), element, expr.size(n - 1))
            index.append(element)
        return here, index


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
        ufunc = _KINDS[self.kind][0]
        if self.kind == "sum":
            wide = np.float32 if x.dtype in NARROW else x.dtype
            return np.asarray(ufunc.reduce(view, axes, wide)).astype(x.dtype, copy=False)
        return ufunc.reduce(view, axes)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        return (self.with_axis(axes[0])(args[0]),), (axes[0],)

    def lower(self, x: Operand) -> Recipe:  # type: ignore[override]
        rank, out = len(x.shape), self.out_shape(x.shape)
        if 0 in x.shape:
            return Host()
        if self.kind == "sum" and x.dtype in widen.NARROW:
            return widen.through_float32(self, x)
        dtype = dtypes.bfloat16 if x.dtype == "bfloat16" else np.dtype(x.dtype)
        start = expr.const(self.identity(dtype), x.dtype)

        def fn(*ix: expr.Expr) -> tuple[expr.Expr, ...]:
            here, index = self.point(x, ix[:rank], ix[rank:])
            return (expr.select(here, x(*index), start),)

        return Fold(
            (*out, *self.window_dimensions),
            tuple(range(rank, 2 * rank)),
            (start,),
            fn,
            lambda acc, new: (expr.apply(_KINDS[self.kind][1], acc[0], new[0]),),
            reassociate="float" in x.dtype,
        )


@dataclass(frozen=True)
class ReduceWindowSum(_ReduceWindow):
    """The sum of each window."""

    name = "reduce_window_sum"
    kind = "sum"
    accepts = NUMBER

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        return (self(primals[0]),), (self(tangents[0]),)

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


# --- the elements at which windows have their extremum: read, and added to -----------------------------


@dataclass(frozen=True)
class _Chosen(Windowed):
    """What the two have in common; `select` is "max" or "min", the first extremum is chosen."""

    select: str

    def chosen(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each window the position in x, in row-major order, and whether there is one."""
        fill = lowest(x.dtype) if self.select == "max" else highest(x.dtype)
        view = self.windows(x, fill)
        places = self.windows(np.arange(x.size).reshape(x.shape), -1)
        shape = view.shape[: x.ndim]
        flat, where = view.reshape(*shape, -1), places.reshape(*shape, -1)
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
        return (self.with_axis(at, **self.more(at, size))(*xs),), (at,)

    def more(self, at: int, size: int) -> dict:
        return {"select": self.select}

    def lower(self, *operands: Operand) -> Recipe:
        return Host()


@dataclass(frozen=True)
class WindowGather(_Chosen):
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

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        tangent = None if tangents[0] is None else self(tangents[0], primals[1])
        return (self(*primals),), (tangent,)

    def transpose(self, cts: tuple, t: Any, x: Any) -> tuple:  # type: ignore[override]
        if type(x) is Undefined:
            raise self._missing("transpose", "a use that is linear in the operand")
        return WindowScatter(**vars(self))(cts[0], x), None


@dataclass(frozen=True)
class WindowScatter(_Chosen):
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

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        tangent = None if tangents[0] is None else self(tangents[0], primals[1])
        return (self(*primals),), (tangent,)

    def transpose(self, cts: tuple, source: Any, x: Any) -> tuple:  # type: ignore[override]
        if type(x) is Undefined:
            raise self._missing("transpose", "a use that is linear in the operand")
        return WindowGather(**vars(self))(cts[0], x), None


__all__ = [
    "ReduceWindowMax",
    "ReduceWindowMin",
    "ReduceWindowSum",
    "WindowGather",
    "WindowScatter",
    "Windowed",
]
