"""Reductions of floats of 16 bits and fewer, accumulated in float32."""

import numpy as np

from fnx.core import dtypes
from fnx.core import scalar as expr
from fnx.core.aval import ShapedArray
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import Primitive
from fnx.core.recipe import Call, Operand, Point, Recipe
from fnx.ops.base.compose import Program
from fnx.ops.base.sharding_rule import Factors, axis_by_axis

# By name as in recipes.
NARROW = {"float16": np.dtype(np.float16), "bfloat16": dtypes.bfloat16}
SMALL = {n: dtypes.of_name(n) for n, wide in dtypes.COMPUTED.items() if wide == "float32"}
NARROW |= SMALL


def accumulator(dtype: np.dtype) -> np.dtype:
    """What partial results are in."""
    return np.dtype(np.float32) if dtypes.NAME[dtype] in NARROW else dtype


@dataclass(frozen=True)
class Cast(Primitive):
    """A conversion between floats, in programs that only lowering sees."""

    dtype: np.dtype
    name = "cast"

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        return (ShapedArray(x.shape, self.dtype),)

    def impl(self, x: np.ndarray) -> np.ndarray:  # type: ignore[override]
        return x.astype(self.dtype)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        return (self(args[0]),), axes

    def sharding(self, x: ShapedArray) -> Factors:
        return axis_by_axis(x.ndim, x.ndim)

    def lower(self, x: Operand) -> Recipe:  # type: ignore[override]
        return Point(lambda *ix: expr.cast(x(*ix), dtypes.NAME[self.dtype]))


def through_float32(prim: Primitive, *xs: Operand) -> Recipe:
    """`prim` of narrow operands of one dtype, computed in float32."""
    dtype = NARROW[xs[0].dtype]
    p = Program(tuple([ShapedArray(x.shape, dtype) for x in xs]))
    wide = p(prim, *[p(Cast(dtypes.float32), v) for v in p.inputs])
    return Call(p.jaxpr(prim.name, p(Cast(dtype), wide)))
