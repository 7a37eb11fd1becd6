"""Strength reduction of products of matrices: one that sums nothing is a multiplication of broadcasts.

Source: dot strength reduction of XLA's algebraic simplifier.
Input: a dot_general and the types of its operands.
Output: the jaxpr of the multiplication, which fuses with its neighbours; or None.
Legal when: all contracted axes have one element, and nothing is converted.
Pays when: always; a call of a library would store both operands and the result.
Costs: nothing.
"""

from collections.abc import Sequence
from functools import lru_cache

from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.jaxpr import Jaxpr
from fnx.interpreters.trace import trace_closed
from fnx.ops.base.broadcast import Broadcast
from fnx.ops.base.permute import Reshape, Transpose
from fnx.ops.elementwise.arithmetic import mul
from fnx.ops.elementwise.pointwise import NUMBER
from fnx.ops.linalg.contraction import DotGeneral


@lru_cache(maxsize=1024)
def outer_product(prim: DotGeneral, x: ShapedArray, y: ShapedArray) -> Jaxpr | None:
    """A product that sums nothing as a multiplication of broadcasts, which fuses with its neighbours."""
    (cx, cy), (bx, by) = prim.dimension_numbers
    (out,) = prim.abstract(x, y)
    if any(x.shape[k] != 1 for k in cx) or out.dtype != x.dtype or x.dtype not in NUMBER:
        return None
    free_x = [k for k in range(x.ndim) if k not in cx and k not in bx]
    free_y = [k for k in range(y.ndim) if k not in cy and k not in by]
    n, m = len(bx), len(bx) + len(free_x)

    def spread(
        v: Array, contracted: Sequence[int], order: list[int], dims: tuple[int, ...]
    ) -> Array:
        if contracted:
            v = Reshape(tuple([s for k, s in enumerate(v.shape) if k not in contracted]))(v)
        left = sorted(order)
        v = Transpose(tuple([left.index(k) for k in order]))(v)
        return Broadcast(out.shape, dims)(v)

    def product(a: Array, b: Array) -> list[Array]:
        batch_axes = tuple(range(n))
        a = spread(a, cx, [*bx, *free_x], (*batch_axes, *range(n, m)))
        return [mul(a, spread(b, cy, [*by, *free_y], (*batch_axes, *range(m, out.ndim))))]

    return trace_closed(product, [x, y])
