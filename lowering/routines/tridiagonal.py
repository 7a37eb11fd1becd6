"""Tridiagonal systems by elimination with partial pivoting, as loops."""

from typing import TYPE_CHECKING

from fnx.core import recipe, scalar
from fnx.core.scalar import Expr
from fnx.lowering.build.values import Handle, Stored
from fnx.lowering.ir.kernel import Buffer, Stmt, Store

from .small_lu import exchanged, pivot_size
from .stacks import const, each, finish, loop, named, nth, place, prod, work

if TYPE_CHECKING:
    from fnx.lowering.build.builder import Builder

ZERO = scalar.size(0)


def tridiagonal_solve(builder: "Builder", r: recipe.Library, outs: list[Handle]) -> None:
    """Rows of U are 1, c1, c2; the next one waits in the same places until it is eliminated."""
    b = r.operands[3]
    (out,) = outs
    n, cols = b.shape[-2:]
    x = place(builder, out)
    if not out.size:
        finish(builder, out)
        return
    stored = [builder.store(h) for h in r.operands]  # type: ignore[arg-type]
    rhs, dtype = stored.pop(), out.dtype
    c1, c2 = work(builder, dtype, n), work(builder, dtype, n)
    zero, one_ = const(0, dtype), scalar.size(1)

    def kept(c: Stored, i: Expr) -> Expr:
        return scalar.load(c.buffer, scalar.add(c.base, i), dtype)

    def keep(c: Stored, i: Expr, value: Expr) -> Stmt:
        return Store(c.buffer, scalar.add(c.base, i), value)

    def one(t: Expr) -> list[Stmt]:
        top, first = scalar.mul(t, scalar.size(n)), nth(x, t, n * cols).index
        start = nth(rhs, t, n * cols).index

        def diagonal(k: int, i: Expr) -> Expr:
            s = stored[k]
            return scalar.load(s.buffer, scalar.add(s.base, scalar.add(top, i)), dtype)

        def at(buffer: Buffer, base: Expr, i: Expr, j: Expr) -> tuple[Buffer, Expr]:
            return buffer, scalar.add(base, scalar.add(scalar.mul(i, scalar.size(cols)), j))

        def x_at(i: Expr, j: Expr) -> tuple[Buffer, Expr]:
            return at(x.buffer, first, i, j)

        def given(i: Expr, j: Expr) -> Expr:
            return scalar.load(*at(rhs.buffer, start, i, j), dtype)

        def eliminate(i: Expr) -> list[Stmt]:
            below = scalar.add(i, one_)
            rows, read = named(
                [kept(c1, i), kept(c2, i), *(diagonal(k, below) for k in range(3))], "r"
            )
            p, q, *low = rows
            (swap,), compared = named(
                [scalar.compare("gt", pivot_size(low[0]), pivot_size(p))], "s"
            )
            both = [exchanged(swap, a, b) for a, b in zip((p, q, zero), low, strict=True)]
            flat, chosen = named([e for pair in both for e in pair], "u")
            (u0, u1, u2), (o0, o1, o2) = flat[0::2], flat[1::2]
            (f,), divided = named([scalar.apply("div", o0, u0)], "f")

            def column(j: Expr) -> list[Stmt]:
                given_, load = named([scalar.load(*x_at(i, j), dtype), given(below, j)], "b")
                y, rest = exchanged(swap, *given_)
                return [
                    load,
                    Store(*x_at(i, j), scalar.apply("div", y, u0)),
                    Store(*x_at(below, j), scalar.sub(rest, scalar.mul(f, y))),
                ]

            return [
                read, compared, chosen, divided,
                keep(c1, i, scalar.apply("div", u1, u0)),
                keep(c2, i, scalar.apply("div", u2, u0)),
                keep(c1, below, scalar.sub(o1, scalar.mul(f, u1))),
                keep(c2, below, scalar.sub(o2, scalar.mul(f, u2))),
                loop(cols, column, vector=True),
            ]  # fmt: skip

        def back(i: Expr, factors: list[Expr]) -> list[Stmt]:
            """x[i] without its products with the rows below."""

            def column(j: Expr) -> list[Stmt]:
                v = scalar.load(*x_at(i, j), dtype)
                for k, factor in enumerate(factors, 1):
                    other = scalar.load(*x_at(scalar.add(i, scalar.size(k)), j), dtype)
                    v = scalar.sub(v, scalar.mul(factor, other))
                return [Store(*x_at(i, j), v)]

            return [loop(cols, column, vector=True)]

        def backward(step: Expr) -> list[Stmt]:
            i = scalar.sub(scalar.size(n - 3), step)
            factors, read = named([kept(c1, i), kept(c2, i)], "c")
            return [read, *back(i, factors)]

        last = scalar.size(n - 1)

        def finish_last(j: Expr) -> list[Stmt]:
            found = scalar.apply("div", scalar.load(*x_at(last, j), dtype), kept(c1, last))
            return [Store(*x_at(last, j), found)]

        return [
            keep(c1, ZERO, diagonal(1, ZERO)),
            keep(c2, ZERO, diagonal(2, ZERO)),
            loop(cols, lambda j: [Store(*x_at(ZERO, j), given(ZERO, j))], vector=True),
            loop(n - 1, eliminate),
            loop(cols, finish_last, vector=True),
            *(back(scalar.size(n - 2), [kept(c1, scalar.size(n - 2))]) if n > 1 else []),
            *([loop(n - 2, backward)] if n > 2 else []),
        ]

    outer, builder.block = builder.block, []
    each(builder, prod(b.shape[:-2]), one)
    body, builder.block = builder.block, outer
    builder.emit_nest(["tridiagonal_solve"], body, [], note=f"{list(b.shape)} tridiagonal_solve")
    finish(builder, out)


ROUTINES = {
    "tridiagonal_solve": tridiagonal_solve,
}
