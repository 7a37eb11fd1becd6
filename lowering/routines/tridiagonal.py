"""Tridiagonal systems by elimination with partial pivoting, as loops."""

from collections.abc import Callable
from math import prod

from fnx.core import recipe, scalar
from fnx.core.scalar import Expr
from fnx.lowering.generate.generation import Generation
from fnx.lowering.generate.values import Materialized, Value
from fnx.lowering.ir.kernel import Stmt, Store

from .batched_matrices import const, each, finish, loop, named, nth, place, work
from .unrolled_lu import exchanged, pivot_size


class _System:
    """System `t` of a stack, of n rows; the statements that solve it in the place of its solution.

    `diagonals` are those below, on and above the main one. Rows of U are 1, c1, c2; the next one waits
    in the same places until it is eliminated.
    """

    def __init__(
        self,
        t: Expr,
        shape: tuple[int, ...],
        diagonals: list[Materialized],
        rhs: Materialized,
        x: Materialized,
        workspace: tuple[Materialized, Materialized],
    ):
        self.n, self.cols = shape[-2:]
        self.diagonals, self.rhs, self.x = diagonals, rhs, x
        self.c1, self.c2 = workspace
        self.dtype = x.buffer.dtype
        self.top = scalar.mul(t, scalar.size(self.n))
        self.x_start = nth(x, t, self.n * self.cols).index
        self.rhs_start = nth(rhs, t, self.n * self.cols).index

    # --- where numbers are

    def diagonal(self, k: int, i: Expr) -> Expr:
        s = self.diagonals[k]
        return scalar.load(s.buffer, scalar.add(s.base, scalar.add(self.top, i)), self.dtype)

    def kept(self, c: Materialized, i: Expr) -> Expr:
        return scalar.load(c.buffer, scalar.add(c.base, i), self.dtype)

    def keep(self, c: Materialized, i: Expr, value: Expr) -> Stmt:
        return Store(c.buffer, scalar.add(c.base, i), value)

    def _position(self, start: Expr, i: Expr, j: Expr) -> Expr:
        return scalar.add(start, scalar.add(scalar.mul(i, scalar.size(self.cols)), j))

    def given(self, i: Expr, j: Expr) -> Expr:
        return scalar.load(self.rhs.buffer, self._position(self.rhs_start, i, j), self.dtype)

    def value(self, i: Expr, j: Expr) -> Expr:
        return scalar.load(self.x.buffer, self._position(self.x_start, i, j), self.dtype)

    def put(self, i: Expr, j: Expr, value: Expr) -> Stmt:
        return Store(self.x.buffer, self._position(self.x_start, i, j), value)

    def along_row(self, make: Callable[[Expr], list[Stmt]]) -> Stmt:
        return loop(self.cols, make, vector=True)

    # --- what is done

    def solve(self) -> list[Stmt]:
        n, last, first = self.n, scalar.size(self.n - 1), scalar.size(0)

        def divide(j: Expr) -> list[Stmt]:
            pivot = self.kept(self.c1, last)
            return [self.put(last, j, scalar.apply("div", self.value(last, j), pivot))]

        body = [
            self.keep(self.c1, first, self.diagonal(1, first)),
            self.keep(self.c2, first, self.diagonal(2, first)),
            self.along_row(lambda j: [self.put(first, j, self.given(first, j))]),
            loop(n - 1, self._eliminate),
            self.along_row(divide),
        ]
        if n > 1:
            row = scalar.size(n - 2)
            body.append(self._subtract(row, [self.kept(self.c1, row)]))
        if n > 2:
            body.append(loop(n - 2, self._backward))
        return body

    def _eliminate(self, i: Expr) -> list[Stmt]:
        """Row i of U, from the one that waits and the one below, of which the other waits next."""
        below, zero = scalar.add(i, scalar.size(1)), const(0, self.dtype)
        waiting = [self.kept(self.c1, i), self.kept(self.c2, i)]
        rows, read = named([*waiting, *(self.diagonal(k, below) for k in range(3))], "r")
        p, q, *low = rows
        (swap,), compared = named([scalar.compare("gt", pivot_size(low[0]), pivot_size(p))], "s")
        both = [exchanged(swap, a, b) for a, b in zip((p, q, zero), low, strict=True)]
        flat, chosen = named([e for pair in both for e in pair], "u")
        (u0, u1, u2), (o0, o1, o2) = flat[0::2], flat[1::2]
        (f,), divided = named([scalar.apply("div", o0, u0)], "f")

        def column(j: Expr) -> list[Stmt]:
            given, load = named([self.value(i, j), self.given(below, j)], "b")
            y, rest = exchanged(swap, *given)
            return [
                load,
                self.put(i, j, scalar.apply("div", y, u0)),
                self.put(below, j, scalar.sub(rest, scalar.mul(f, y))),
            ]

        return [
            read, compared, chosen, divided,
            self.keep(self.c1, i, scalar.apply("div", u1, u0)),
            self.keep(self.c2, i, scalar.apply("div", u2, u0)),
            self.keep(self.c1, below, scalar.sub(o1, scalar.mul(f, u1))),
            self.keep(self.c2, below, scalar.sub(o2, scalar.mul(f, u2))),
            self.along_row(column),
        ]  # fmt: skip

    def _backward(self, step: Expr) -> list[Stmt]:
        i = scalar.sub(scalar.size(self.n - 3), step)
        factors, read = named([self.kept(self.c1, i), self.kept(self.c2, i)], "c")
        return [read, self._subtract(i, factors)]

    def _subtract(self, i: Expr, factors: list[Expr]) -> Stmt:
        """x[i] without its products with the rows below."""

        def column(j: Expr) -> list[Stmt]:
            v = self.value(i, j)
            for k, factor in enumerate(factors, 1):
                below = self.value(scalar.add(i, scalar.size(k)), j)
                v = scalar.sub(v, scalar.mul(factor, below))
            return [self.put(i, j, v)]

        return self.along_row(column)


def tridiagonal_solve(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    shape, (out,) = r.operands[3].shape, outs
    x = place(builder, out)
    if out.size:
        *diagonals, rhs = [builder.store(h) for h in r.operands]  # type: ignore[arg-type]
        c1, c2 = (work(builder, out.dtype, shape[-2]) for _ in range(2))
        outer, builder.block = builder.block, []
        one = lambda t: _System(t, shape, diagonals, rhs, x, (c1, c2)).solve()
        each(builder, prod(shape[:-2]), one)
        body, builder.block = builder.block, outer
        note = f"{list(shape)} tridiagonal_solve"
        builder.emit_nest(["tridiagonal_solve"], body, [], note=note)
    finish(builder, out)


ROUTINES = {
    "tridiagonal_solve": tridiagonal_solve,
}
