"""A product of stacks of matrices: its operands, its axes by what they are, its sizes."""

from collections.abc import Sequence
from math import prod
from typing import Any

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.generate.generation import Generation
from fnx.lowering.generate.values import Materialized, Shape, Value
from fnx.lowering.routines.batched_matrices import filled


class Product:
    """The operands and axes of a dot_general, summed in `dtype`."""

    def __init__(self, lhs: Any, rhs: Any, dims: Any, dtype: str):
        (self.lc, self.rc), (self.lb, self.rb) = dims
        self.lhs, self.rhs, self.dtype = lhs, rhs, dtype
        self.lf = others_of(lhs.ndim, self.lc, self.lb)
        self.rf = others_of(rhs.ndim, self.rc, self.rb)
        self.batch: Shape = tuple(lhs.shape[k] for k in self.lb)
        self.left: Shape = tuple(lhs.shape[k] for k in self.lf)
        self.right: Shape = tuple(rhs.shape[k] for k in self.rf)
        self.inner: Shape = tuple(lhs.shape[k] for k in self.lc)
        self.m, self.n, self.k = prod(self.left), prod(self.right), prod(self.inner)

    def term(
        self, t: Sequence[Expr], i: Sequence[Expr], k: Sequence[Expr], j: Sequence[Expr]
    ) -> Any:
        """The two factors of one product."""
        x = self.lhs(*placed_at((*self.lb, *self.lf, *self.lc), (*t, *i, *k)))
        y = self.rhs(*placed_at((*self.rb, *self.rc, *self.rf), (*t, *k, *j)))
        return scalar.cast(x, self.dtype), scalar.cast(y, self.dtype)


def others_of(ndim: int, *taken: Sequence[int]) -> Shape:
    return tuple(k for k in range(ndim) if not any(k in axes for axes in taken))


def placed_at(perm: Sequence[int], index: Sequence[Expr]) -> tuple[Expr, ...]:
    where = dict(zip(perm, index, strict=True))
    return tuple(where[k] for k in range(len(perm)))


def copied(builder: Generation, h: Value, order: Shape, dtype: str) -> tuple[Shape, Materialized]:
    """An operand's axes in another order: the copy's shape, and where it is."""
    shape = tuple(h.shape[k] for k in order)
    inverse = [order.index(k) for k in range(h.ndim)]
    copies = builder.copies.setdefault(h, {})
    block, stored = copies.get((order, dtype), (None, None))
    if block is not builder.block:  # or another product in this block made the same copy
        stored = filled(
            builder, shape, dtype, lambda *ix: scalar.cast(h(*(ix[k] for k in inverse)), dtype)
        )
        copies[order, dtype] = builder.block, stored
    return shape, stored
