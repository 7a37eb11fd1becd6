"""Tridiagonal systems by Thomas' algorithm, as loops."""

from typing import TYPE_CHECKING

from fnx.core import recipe, scalar
from fnx.core.scalar import Expr

from .kernel import Let, Stmt, Store
from .stacks import (
    each,
    finish,
    loop,
    nth,
    place,
    prod,
    work,
)
from .values import Handle

if TYPE_CHECKING:
    from .build import Builder

ZERO = scalar.size(0)


def tridiagonal_solve(builder: "Builder", r: recipe.Library, outs: list[Handle]) -> None:
    """Thomas' algorithm: each row is eliminated with the one before, then solved backwards."""
    b = r.operands[3]
    (out,) = outs
    n, cols = b.shape[-2:]
    x = place(builder, out)
    if not out.size:
        finish(builder, out)
        return
    stored = [builder.store(h) for h in r.operands]  # type: ignore[arg-type]
    rhs, dtype = stored.pop(), out.dtype
    c = work(builder, dtype, n)

    def one(t: Expr) -> list[Stmt]:
        top, first = scalar.mul(t, scalar.size(n)), nth(x, t, n * cols).index

        def diagonal(k: int, i: Expr) -> Expr:
            s = stored[k]
            return scalar.load(s.buffer, scalar.add(s.base, scalar.add(top, i)), dtype)

        start = nth(rhs, t, n * cols).index

        def row(base: Expr, i: Expr, j: Expr) -> Expr:
            return scalar.add(base, scalar.add(scalar.mul(i, scalar.size(cols)), j))

        def forward(i: Expr, before: Expr | None) -> list[Stmt]:
            pivot, low = scalar.var(dtype, "p"), scalar.var(dtype, "l")
            p = diagonal(1, i)
            names, values = [pivot], [p]
            if before is not None:
                last = scalar.load(c.buffer, scalar.add(c.base, before), dtype)
                values = [scalar.sub(p, scalar.mul(diagonal(0, i), last)), diagonal(0, i)]
                names = [pivot, low]

            def column(j: Expr) -> list[Stmt]:
                v = scalar.load(rhs.buffer, row(start, i, j), dtype)
                if before is not None:
                    old = scalar.load(x.buffer, row(first, before, j), dtype)
                    v = scalar.sub(v, scalar.mul(low, old))
                return [Store(x.buffer, row(first, i, j), scalar.apply("div", v, pivot))]

            after = Store(
                c.buffer, scalar.add(c.base, i), scalar.apply("div", diagonal(2, i), pivot)
            )
            return [Let(names, values), after, loop(cols, column, vector=True)]

        def backward(i: Expr) -> list[Stmt]:
            k = scalar.sub(scalar.size(n - 2), i)
            factor = scalar.load(c.buffer, scalar.add(c.base, k), dtype)

            def column(j: Expr) -> list[Stmt]:
                here = row(first, k, j)
                below = scalar.load(x.buffer, row(first, scalar.add(k, scalar.size(1)), j), dtype)
                v = scalar.load(x.buffer, here, dtype)
                return [Store(x.buffer, here, scalar.sub(v, scalar.mul(factor, below)))]

            return [loop(cols, column, vector=True)]

        one_ = scalar.size(1)
        return [
            *forward(ZERO, None),
            loop(n - 1, lambda i: forward(scalar.add(i, one_), i)),
            loop(n - 1, backward),
        ]

    outer, builder.block = builder.block, []
    each(builder, prod(b.shape[:-2]), one)
    body, builder.block = builder.block, outer
    builder.emit_nest(["tridiagonal_solve"], body, [], note=f"{list(b.shape)} tridiagonal_solve")
    finish(builder, out)


ROUTINES = {
    "tridiagonal_solve": tridiagonal_solve,
}
