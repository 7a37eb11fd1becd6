"""slice_set: an operand with the elements of a static box, with strides, replaced."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fnx.core import scalar as expr
from fnx.core.aval import ShapedArray
from fnx.core.errors import ShapeError, TypeMismatch
from fnx.core.primitive import Undefined
from fnx.core.recipe import Operand, Recipe, Update
from fnx.ops.broadcast import broadcast_axis, zeros
from fnx.ops.permute import move_axis
from fnx.ops.slice import Box, Slice


@dataclass(frozen=True)
class SliceSet(Box):
    """The operand with the elements of a box replaced by an update."""

    name = "slice_set"

    def abstract(self, x: ShapedArray, update: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        self.check(x.shape)
        if update.shape != self.box_shape():
            raise ShapeError(
                f"slice_set in an operand of shape {x.shape} of an update of shape {update.shape}; "
                f"expected the slice's shape {self.box_shape()}"
            )
        if update.dtype != x.dtype:
            raise TypeMismatch(
                f"slice_set of dtype {update.dtype} in {x.dtype}; expected equal dtypes"
            )
        return (ShapedArray(x.shape, x.dtype, x.weak_type and update.weak_type),)

    def impl(self, x: np.ndarray, update: np.ndarray) -> np.ndarray:  # type: ignore[override]
        out = x.copy()
        out[self.box()] = update
        return out

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        (x, update), (tx, tu) = primals, tangents
        tx = zeros(x.aval.tangent()) if tx is None else tx
        tu = zeros(update.aval.tangent()) if tu is None else tu
        return (self(*primals),), (self(tx, tu),)

    def transpose(self, cts: tuple, x: Any, update: Any) -> tuple:  # type: ignore[override]
        ct = cts[0]
        read = Slice(self.start_indices, self.limit_indices, self.strides)
        return (
            self(ct, zeros(update.aval.strong())) if type(x) is Undefined else None,
            read(ct) if type(update) is Undefined else None,
        )

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        at = next(k for k in axes if k is not None)
        x, update = (
            broadcast_axis(a, size, at) if k is None else move_axis(a, k, at)
            for a, k in zip(args, axes)
        )
        return (SliceSet(*self.with_axis(at, size))(x, update),), (at,)

    def lower(self, x: Operand, update: Operand) -> Recipe:  # type: ignore[override]
        always = expr.const(True, "bool")
        return Update(
            x,
            update.shape,
            lambda *ix: (always, tuple(self.source(ix))),
            update,
            None,
            unique=True,
            box=self.dense_box(),
        )


__all__ = ["SliceSet"]
