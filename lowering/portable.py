"""A target of which nothing is known: plain loops, and the host for all that is not loops.

What any target may take over; and the proof that generation asks the machine by its protocol only.
"""

from collections.abc import Callable
from typing import Any

from fnx.core import recipe, scalar
from fnx.core.scalar import Expr
from fnx.lowering.generate.target import Target
from fnx.lowering.generate.values import Value
from fnx.lowering.ir.kernel import Loop, Stmt, Store
from fnx.lowering.routines import sort, unrolled_batched
from fnx.lowering.routines.batched_matrices import same_bytes


def _sums_of_products(r: recipe.Library) -> recipe.Fold:
    """The sums of products that a product of matrices is, in the dtype in which it is summed up."""
    (contracted, batched), dtype = r.params
    count = len(batched[0])
    free = [
        [k for k in range(x.ndim) if k not in (*c, *b)]
        for x, c, b in zip(r.operands, contracted, batched, strict=True)
    ]
    m, n = map(len, free)

    def factor(side: int, *ix: Expr) -> Expr:
        own = ix[count : count + m] if side == 0 else ix[count + m : count + m + n]
        axes = (*batched[side], *free[side], *contracted[side])
        at = dict(zip(axes, (*ix[:count], *own, *ix[count + m + n :]), strict=True))
        x = r.operands[side]
        return scalar.cast(x(*(at[k] for k in range(x.ndim))), dtype)

    left, right = r.operands
    shape = (
        *(left.shape[k] for k in (*batched[0], *free[0])),
        *(right.shape[k] for k in free[1]),
        *(left.shape[k] for k in contracted[0]),
    )
    term = lambda *ix: (scalar.mul(factor(0, *ix), factor(1, *ix)),)
    add = lambda acc, values: (scalar.add(acc[0], values[0]),)
    axes = tuple(range(count + m + n, len(shape)))
    return recipe.Fold(shape, axes, (scalar.const(0, dtype),), term, add, reassociate=True)


def _rounded_product(builder: Any, r: recipe.Library, outs: list[Value]) -> None:
    """A product of matrices that is summed up in another dtype than the result's."""
    (out,) = outs
    fold = _sums_of_products(r)
    index = [scalar.counter("i", n) for n in fold.shape]
    term = builder.evaluated(lambda: fold.fn(*index)[0])
    dims = list(zip(index, fold.shape, strict=True))
    kept = fold.axes[0] if fold.axes else len(dims)
    sums, total = _sum(dims[kept:], fold.init[0], term)
    stored = out.destination or builder.new_stored(out)
    position = stored.position(out.shape, index[:kept])
    body: list[Stmt] = [*sums, Store(stored.buffer, position, scalar.cast(total, out.dtype))]
    for i, n in reversed(dims[:kept]):
        body = [Loop(i, scalar.size(n), body)]
    builder.emit_nest([r.name], body, [], f"{list(out.shape)} sums of {fold.init[0].dtype}")
    out.state = stored
    if builder.target.is_small(out.shape):
        builder.load_registers(out)


_ROUTINES = {**sort.ROUTINES, "same_bytes": same_bytes, "dot_general": _rounded_product}


class PortableRoutines:
    """Library recipes that are loops on any machine."""

    def known(self, r: recipe.Library) -> bool:
        if r.name == "dot_general":
            return self.total(r, []) is not None
        return r.name in _ROUTINES

    def functions(self, r: recipe.Library, outs: list[Value]) -> list[Callable] | None:
        make = unrolled_batched.ELEMENTS.get(r.name)
        return make and make(r, outs)

    def total(self, r: recipe.Library, outs: list[Value]) -> recipe.Fold | None:
        """A product of matrices as a sum of the products of their elements."""
        if r.name != "dot_general" or any(h.dtype != r.params[1] for h in outs):
            return None
        if r.params[1] == "bool" or 0 in r.operands[0].shape:
            return None
        return _sums_of_products(r)

    def computes_matrix(self, r: recipe.Library) -> bool:
        return r.name == "dot_general"  # there is nothing but the reduction

    def library(self, builder: Any, r: recipe.Library, outs: list[Value]) -> None:
        _ROUTINES[r.name](builder, r, outs)


class PortableTarget(Target):
    """Plain loops: no tiles, no packing, no vectors of short rows; no passes but the planning of memory."""

    name = "portable"
    routines = PortableRoutines()

    def products(self, builder: Any, r: recipe.Products, out: Value) -> None:
        """One element after another, each summed up in a register."""
        stored = out.destination or builder.new_stored(out)
        index = [scalar.counter("i", n) for n in r.shape]
        term = builder.evaluated(lambda: scalar.mul(r.left(*index), r.right(*index)))
        summed = list(zip(index, r.shape, strict=True))[r.kept :]
        sums, total = _sum(summed, scalar.const(0, out.dtype), term)
        position = stored.position(out.shape, r.place(*index[: r.kept]))
        body: list[Stmt] = [*sums, Store(stored.buffer, position, total)]
        for i, n in reversed(list(zip(index, r.shape, strict=True))[: r.kept]):
            body = [Loop(i, scalar.size(n), body)]
        builder.emit_nest(["products"], body, [], f"{list(r.shape)} products")
        out.state = stored
        if self.is_small(out.shape):
            builder.load_registers(out)


def _sum(dims: list[tuple[Expr, int]], start: Expr, term: Expr) -> tuple[list[Stmt], Expr]:
    """Nested loops that add up a term, and the variable that holds the sum after them."""
    if not dims:
        return [], scalar.add(start, term)
    (i, n), *rest = dims
    total = scalar.var(start.dtype, "a")
    inner, new = _sum(rest, total, term)
    return [Loop(i, scalar.size(n), inner, [total], [start], [new], reassociate=True)], total
