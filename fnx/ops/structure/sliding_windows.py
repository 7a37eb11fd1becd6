"""Sliding windows: where they lie, as views and as index expressions."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fnx.core import scalar as expr
from fnx.core.aval import ShapedArray
from fnx.core.errors import InvalidValue, ShapeError
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import Primitive
from fnx.core.recipe import Operand
from fnx.ops.base.broadcast import Shape
from fnx.ops.base.sharding_rule import Factors, all_but
from fnx.ops.structure.slice import Pad


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

    def still(self) -> list[int]:
        """The axes along which there is a window for each element, of that alone."""
        each = zip(
            self.window_dimensions,
            self.window_strides,
            self.padding,
            self.base_dilation,
            self.window_dilation,
        )
        return [k for k, given in enumerate(each) if given == (1, 1, (0, 0), 1, 1)]

    def sharding(self, *xs: ShapedArray) -> Factors:
        rank, still = xs[0].ndim, self.still()
        operands = len([x for x in xs if x.ndim == rank])
        whole = [k for k in range(rank) if k not in still]
        return all_but(rank, whole, operands, len(self.abstract(*xs)))

    def along(self, grid: Any, parts: Sequence[Any]) -> list | None:
        """Members' own windows, with what they reach of the next ones' parts."""
        rank, still = parts[0].ndim, self.still()
        main, axis = next((p, k) for p in parts for k in range(rank) if p.cut[k] and k not in still)
        names, fills = main.cut[axis], self.fills(axis, [p.x.dtype for p in parts])
        step, spread = self.window_strides[axis], self.base_dilation[axis]
        size = (self.window_dimensions[axis] - 1) * self.window_dilation[axis] + 1
        blocks, lo = self.out_shape(main.shape)[axis], self.padding[axis][0]
        if fills is None or not blocks or not size:
            return None
        given = []
        for p, fill in zip(parts, fills, strict=True):
            own = grid.beside(p, axis, names)
            p = grid.reach(grid.lay(p, own), axis, blocks, step, size, lo, spread, fill)
            if p is None:
                return None
            given.append(p)
        outs = grid.apply(self.whole_along(axis), given)
        return [grid.along_one(p, axis, blocks, names) for p in outs]

    def fills(self, axis: int, dtypes: Sequence[np.dtype]) -> tuple | None:
        """What padding and holes along an axis stand for, for each operand; None if they are none."""
        return None

    def whole_along(self, axis: int) -> "Windowed":
        """The same without padding and holes along an axis."""

        def put(values: tuple, new: Any) -> tuple:
            return (*values[:axis], new, *values[axis + 1 :])

        return replace(
            self, padding=put(self.padding, (0, 0)), base_dilation=put(self.base_dilation, 1)
        )

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
