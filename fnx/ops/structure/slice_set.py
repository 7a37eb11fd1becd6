"""slice_set: an operand with the elements of a static box, with strides, replaced."""

from typing import Any

import numpy as np

from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import Undefined
from fnx.ops.base.broadcast import typed_zeros
from fnx.ops.structure.slice import BoxUpdate, Slice


@dataclass(frozen=True)
class SliceSet(BoxUpdate):
    """The operand with the elements of a box replaced by an update."""

    name = "slice_set"
    update_operand = 1
    update_kind = "set"

    def impl(self, x: np.ndarray, update: np.ndarray) -> np.ndarray:  # type: ignore[override]
        out = x.copy()
        out[self.box()] = update
        return out

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        (x, update), (tx, tu) = primals, tangents
        tx = typed_zeros(x.aval) if tx is None else tx
        tu = typed_zeros(update.aval) if tu is None else tu
        return (self(*primals),), (self(tx, tu),)

    def transpose(self, cts: tuple, x: Any, update: Any) -> tuple:  # type: ignore[override]
        ct = cts[0]
        read = Slice(self.start_indices, self.limit_indices, self.strides)
        return (
            self(ct, typed_zeros(update.aval)) if type(x) is Undefined else None,
            read(ct) if type(update) is Undefined else None,
        )


__all__ = ["SliceSet"]
