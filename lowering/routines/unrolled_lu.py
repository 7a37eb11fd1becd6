"""LU with partial pivoting, and linear systems, of small matrices.

Up to `UNROLLED_PIVOTED` rows it is straight-line code, which selects rows instead of moving them; up to
`UNROLLED_LU` rows the factors come from loops on memory.
"""

from collections.abc import Callable, Iterable
from typing import Any

from fnx.core import policy, scalar
from fnx.core.scalar import Expr
from fnx.lowering.generate.generation import Generation
from fnx.lowering.generate.values import Materialized, Value, static_indices
from fnx.lowering.ir.kernel import If, Loop, Ref, Stmt, Store

from . import unrolled_cholesky
from .batched_matrices import (
    const,
    each_item,
    finish,
    in_place,
    is_complex,
    loop,
    named,
    permute,
    place,
    swapped,
    work,
)

Rows = list[list[Expr]]


def pivot_size(a: Expr) -> Expr:
    """What LAPACK compares to find a pivot: |re| + |im|."""
    if is_complex(a.dtype):
        parts = (scalar.apply("abs", scalar.apply(p, a)) for p in ("real", "imag"))
        return scalar.add(*parts)
    return scalar.apply("abs", a)


def lu_of(a: Rows) -> tuple[Rows, list[Expr], list[Expr]]:
    """LU factors in one matrix, pivots, and the permutation."""
    a = [list(row) for row in a]
    m, n = len(a), len(a[0])
    order: list[Expr] = [const(i, "int32") for i in range(m)]
    pivots = []
    for k in range(min(m, n)):
        best, p = pivot_size(a[k][k]), const(k, "int32")
        for i in range(k + 1, m):
            better = scalar.compare("gt", pivot_size(a[i][k]), best)
            best = scalar.select(better, pivot_size(a[i][k]), best)
            p = scalar.select(better, const(i, "int32"), p)
        pivots.append(p)
        for i in range(k + 1, m):
            here = scalar.compare("eq", p, const(i, "int32"))
            for row, j in [(a, j) for j in range(n)]:
                row[k][j], row[i][j] = exchanged(here, row[k][j], row[i][j])
            order[k], order[i] = exchanged(here, order[k], order[i])
        is_zero = scalar.compare("eq", a[k][k], const(0, a[k][k].dtype))
        inverse = scalar.select(
            is_zero, const(1, a[k][k].dtype), unrolled_cholesky.reciprocal(a[k][k])
        )
        for i in range(k + 1, m):
            a[i][k] = scalar.mul(a[i][k], inverse)
            for j in range(k + 1, n):
                a[i][j] = unrolled_cholesky.minus_product(a[i][j], a[i][k], a[k][j])
    return a, pivots, order


def exchanged(cond: Expr, x: Expr, y: Expr) -> tuple[Expr, Expr]:
    return scalar.select(cond, y, x), scalar.select(cond, x, y)


def lu(builder: Generation, a: Any, outs: list[Value]) -> None:
    """Factors of small matrices, pivots from 0, and the order of the rows: unrolled, or by loops."""
    *lead, rows, cols = a.shape
    a = unrolled_cholesky.ready(builder, a)
    if max(rows, cols) > policy.UNROLLED_PIVOTED:
        _lu_loops(builder, a, outs)
        return

    def factors(t: tuple[Expr, ...]) -> tuple[list[Expr], ...]:
        given = [[a(*t, *ix) for ix in row] for row in _grid(rows, cols)]
        made, pivots, order = lu_of(given)
        return [e for row in made for e in row], pivots, order

    if all(builder.target.is_small(out.shape) for out in outs):

        def elements() -> list[list[Expr]]:
            found: list[list[Expr]] = [[], [], []]
            for t in static_indices(tuple(lead)):
                for mine, new in zip(found, factors(t), strict=True):
                    mine += new
            return found

        for out, column in zip(outs, builder.evaluated(elements), strict=True):
            builder.settle_registers(out, column)
        return
    places = [place(builder, out) for out in outs]

    def one(t: tuple[Expr, ...]) -> list[Stmt]:
        lets: list[Stmt] = []
        stores: list[Stmt] = []
        for out, made, exprs in zip(outs, places, factors(t), strict=True):
            names, let = named(exprs, "u")
            lets.append(let)
            for ix, e in zip(static_indices(out.shape[len(lead) :]), names, strict=True):
                stores.append(Store(made.buffer, made.position(out.shape, (*t, *ix)), e))
        return [*lets, *stores]

    each_item(builder, tuple(lead), one, "lu")
    for out in outs:
        finish(builder, out)


def _grid(rows: int, cols: int) -> list[list[tuple[Expr, Expr]]]:
    return [[(scalar.size(i), scalar.size(j)) for j in range(cols)] for i in range(rows)]


def _lu_loops(builder: Generation, a: Value, outs: list[Value]) -> None:
    *lead, rows, cols = a.shape
    k = min(rows, cols)
    made = in_place(builder, a, outs[0])
    outs[0].state = made
    pivots, order = (place(builder, out) for out in outs[1:])

    def one(t: tuple[Expr, ...]) -> list[Stmt]:
        def item(s: Materialized, size: int) -> Ref:
            where = scalar.linear_index(t, tuple(lead)) if lead else scalar.size(0)
            return Ref(s.buffer, scalar.add(s.base, scalar.mul(where, scalar.size(size))))

        swaps = item(pivots, k)
        return [
            *lu_loops(item(made, rows * cols), swaps, rows, cols),
            *permute(swaps, item(order, rows), rows, k),
        ]

    each_item(builder, tuple(lead), one, "lu")
    for out in outs:
        finish(builder, out)


def _position(a: Ref, i: Expr, j: Expr, cols: int) -> Expr:
    return scalar.add(a.index, scalar.add(scalar.mul(i, scalar.size(cols)), j))


def lu_loops(a: Ref, pivots: Ref, rows: int, cols: int) -> list[Stmt]:
    """LU in place of a row-major matrix; pivots from 0."""
    dtype = a.buffer.dtype
    one = scalar.size(1)

    def element(i: Expr, j: Expr) -> Expr:
        return scalar.load(a.buffer, _position(a, i, j, cols), dtype)

    def step(k: Expr) -> list[Stmt]:
        below = scalar.sub(scalar.size(rows - 1), k)
        start = pivot_size(element(k, k))
        best, p = scalar.var(start.dtype, "m"), scalar.var("int64", "p")
        i = scalar.var("int64", "i")
        row = scalar.add(scalar.add(k, one), i)
        found = pivot_size(element(row, k))
        better = scalar.compare("gt", found, best)
        search = Loop(
            i,
            below,
            [],
            [best, p],
            [start, k],
            [scalar.select(better, found, best), scalar.select(better, row, p)],
        )
        note = Store(pivots.buffer, scalar.add(pivots.index, k), scalar.cast(p, "int32"))
        exchange = loop(
            cols,
            lambda j: swapped(a.buffer, _position(a, k, j, cols), _position(a, p, j, cols)),
        )
        pivot = element(k, k)
        is_zero = scalar.compare("eq", pivot, const(0, dtype))
        (inverse,), let = named(
            [scalar.select(is_zero, const(1, dtype), unrolled_cholesky.reciprocal(pivot))], "d"
        )

        def eliminate(i: Expr) -> list[Stmt]:
            row = scalar.add(scalar.add(k, one), i)
            (f,), let = named([scalar.mul(element(row, k), inverse)], "f")

            def update(j: Expr) -> list[Stmt]:
                col = scalar.add(scalar.add(k, one), j)
                value = unrolled_cholesky.minus_product(element(row, col), f, element(k, col))
                return [Store(a.buffer, _position(a, row, col, cols), value)]

            right = scalar.sub(scalar.size(cols - 1), k)
            keep = Store(a.buffer, _position(a, row, k, cols), f)
            return [let, keep, loop(right, update, vector=True)]

        moved = If(scalar.compare("ne", p, k), [exchange], [])
        return [search, note, moved, let, loop(below, eliminate)]

    return [loop(min(rows, cols), step)]


def solve(builder: Generation, a: Any, b: Any, out: Value) -> None:
    n = b.shape[-2]
    a, b = unrolled_cholesky.ready(builder, a), unrolled_cholesky.ready(builder, b)
    if n > policy.UNROLLED_PIVOTED:
        _solve_loops(builder, a, b, out)
        return

    def made(t: tuple[Expr, ...]) -> tuple[Rows, list[Expr], list[Expr]]:
        return factors([[a(*t, *ix) for ix in row] for row in _grid(n, n)])

    def solution(
        f: Rows, inverses: list[Expr], order: list[Expr], t: tuple[Expr, ...], j: Expr
    ) -> list[Expr]:
        return by_order(f, inverses, order, [b(*t, scalar.size(i), j) for i in range(n)])

    _solutions(builder, a, out, made, solution, "solve")


def factors(a: Rows) -> tuple[Rows, list[Expr], list[Expr]]:
    """LU factors, the inverses of the diagonal of U, and the permutation."""
    made, _, order = lu_of(a)
    return made, [unrolled_cholesky.reciprocal(made[i][i]) for i in range(len(made))], order


def by_order(f: Rows, inverses: list[Expr], order: list[Expr], given: list[Expr]) -> list[Expr]:
    """The solution of a system by factors and a permutation."""
    y = []
    for p in order:  # the row that the permutation names
        e = given[-1]
        for k in range(len(given) - 2, -1, -1):
            here = scalar.compare("eq", p, const(k, "int32"))
            e = scalar.select(here, given[k], e)
        y.append(e)
    y = unrolled_cholesky.substituted(lambda i, k: f[i][k], None, y, True)
    return unrolled_cholesky.substituted(lambda i, k: f[i][k], inverses, y, False)


def _solutions(
    builder: Generation,
    a: Value,
    out: Value,
    factors: Callable[..., tuple[Rows, list[Expr], list[Expr]]],
    solution: Callable[..., list[Expr]],
    name: str,
    prepare: Callable[..., list[Stmt]] | None = None,
) -> None:
    """Solutions of systems: `factors(t)` of item t, `solution(*factors, t, j)` column j by rows.

    With `prepare` statements come first that put the factors into memory, one item at a time.
    """
    *lead, n, cols = out.shape
    if builder.target.is_small(out.shape) and builder.target.is_small(a.shape):

        def elements() -> list[Expr]:
            found = []
            for t in static_indices(tuple(lead)):
                f = factors(t)
                xs = [solution(*f, t, scalar.size(j)) for j in range(cols)]
                found += [xs[j][i] for i in range(n) for j in range(cols)]
            return found

        builder.settle_registers(out, builder.evaluated(elements))
        return
    made = place(builder, out)

    def one(t: tuple[Expr, ...]) -> list[Stmt]:
        f, inverses, order = factors(t)
        flat = [*[e for row in f for e in row], *inverses, *order]
        names, first = named(flat, "f")
        rows = [names[i * n : (i + 1) * n] for i in range(n)]
        rest = names[n * n :]

        def column(j: Expr) -> list[Stmt]:
            xs, let = named(solution(rows, rest[:n], rest[n:], t, j), "x")
            places = [made.position(out.shape, (*t, scalar.size(i), j)) for i in range(n)]
            return [let, *[Store(made.buffer, p, e) for p, e in zip(places, xs, strict=True)]]

        body = column(scalar.size(0)) if cols == 1 else [loop(cols, column, vector=True)]
        return [*(prepare(t) if prepare else []), first, *body]

    parallel = prepare is None and out.size * n * n >= builder.machine.parallel_work
    each_item(builder, tuple(lead), one, name, parallel)
    finish(builder, out)


def lu_solve(
    builder: Generation, factors: Any, pivots: Any, b: Any, out: Value, transposing: bool
) -> None:
    """Systems with factors that are known, as straight-line code."""
    n = b.shape[-2]
    factors, pivots, b = (unrolled_cholesky.ready(builder, h) for h in (factors, pivots, b))

    def system(t: tuple[Expr, ...]) -> tuple[Rows, list[Expr], list[Expr]]:
        f = [[factors(*t, *ix) for ix in row] for row in _grid(n, n)]
        inverses = [unrolled_cholesky.reciprocal(f[i][i]) for i in range(n)]
        return f, inverses, [pivots(*t, scalar.size(k)) for k in range(n - 1)]

    _solutions(builder, factors, out, system, _by_pivots(b, transposing), "lu_solve")


def _by_pivots(b: Value, transposing: bool) -> Callable[..., list[Expr]]:
    """Column j of item t's solution by factors, inverses of the diagonal of U, and pivots."""
    n = b.shape[-2]
    solved = by_pivots(n, transposing)

    def solution(
        f: Rows, inverses: list[Expr], swaps: list[Expr], t: tuple[Expr, ...], j: Expr
    ) -> list[Expr]:
        return solved(f, inverses, swaps, [b(*t, scalar.size(i), j) for i in range(n)])

    return solution


def by_pivots(n: int, transposing: bool) -> Callable[..., list[Expr]]:
    """The solution of a system by factors, inverses of the diagonal of U, and pivots."""

    def exchange(swaps: list[Expr], y: list[Expr], steps: Iterable[int]) -> list[Expr]:
        y = list(y)
        for k in steps:
            for i in range(k + 1, n):
                here = scalar.compare("eq", swaps[k], const(i, "int32"))
                y[k], y[i] = exchanged(here, y[k], y[i])
        return y

    def solution(f: Rows, inverses: list[Expr], swaps: list[Expr], y: list[Expr]) -> list[Expr]:
        if transposing:
            y = unrolled_cholesky.substituted(lambda i, k: f[k][i], inverses, y, True)
            y = unrolled_cholesky.substituted(lambda i, k: f[k][i], None, y, False)
            return exchange(swaps, y, reversed(range(n - 1)))
        y = exchange(swaps, y, range(n - 1))
        y = unrolled_cholesky.substituted(lambda i, k: f[i][k], None, y, True)
        return unrolled_cholesky.substituted(lambda i, k: f[i][k], inverses, y, False)

    return solution


def _solve_loops(builder: Generation, a: Value, b: Value, out: Value) -> None:
    """Factors by loops in memory of their own, then straight-line code."""
    n = b.shape[-2]
    factors, swaps = work(builder, a.dtype, n * n), work(builder, "int32", n)
    f, pivots = Ref(factors.buffer, factors.base), Ref(swaps.buffer, swaps.base)

    def copy(t: tuple[Expr, ...], i: Expr) -> list[Stmt]:
        return [loop(n, lambda j: [Store(f.buffer, _position(f, i, j, n), a(*t, i, j))])]

    def prepare(t: tuple[Expr, ...]) -> list[Stmt]:
        return [loop(n, lambda i: copy(t, i)), *lu_loops(f, pivots, n, n)]

    def system(t: tuple[Expr, ...]) -> tuple[Rows, list[Expr], list[Expr]]:
        found = [[factors.read((n, n), ix) for ix in row] for row in _grid(n, n)]
        inverses = [unrolled_cholesky.reciprocal(found[i][i]) for i in range(n)]
        return found, inverses, [swaps.read((n,), (scalar.size(k),)) for k in range(n - 1)]

    _solutions(builder, a, out, system, _by_pivots(b, False), "solve", prepare)
