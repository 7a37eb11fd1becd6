"""Cholesky and triangular systems of small matrices as straight-line code on their elements.

A call of LAPACK costs a microsecond; these cost less, and stacks of small matrices are one kernel.
"""

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.build import fuse
from fnx.lowering.build.values import Handle, Pending, static_indices
from fnx.lowering.ir.kernel import Stmt, Store

from .stacks import const, each_item, finish, is_complex, loop, named, nan, place

if TYPE_CHECKING:
    from fnx.lowering.build.builder import Builder

UNROLLED = 8  # rows
Rows = list[list[Expr]]


def minus_product(c: Expr, a: Expr, b: Expr) -> Expr:
    """c - a b."""
    if is_complex(c.dtype):
        return scalar.sub(c, scalar.mul(a, b))
    return scalar.apply("fma", scalar.apply("neg", a), b, c)


def reciprocal(a: Expr) -> Expr:
    return scalar.apply("div", const(1, a.dtype), a)


def conj(a: Expr) -> Expr:
    return scalar.apply("conj", a) if is_complex(a.dtype) else a


def cholesky_of(a: Callable[[int, int], Expr], n: int) -> Rows:
    """The rows of L; nan if a diagonal element is not positive."""
    dtype = a(0, 0).dtype
    rows: Rows = [[const(0, dtype)] * n for _ in range(n)]
    good = scalar.const(True, "bool")
    for j in range(n):
        d = a(j, j)
        for k in range(j):
            d = minus_product(d, rows[j][k], conj(rows[j][k]))
        d = scalar.apply("real", d) if is_complex(dtype) else d
        bad = scalar.compare("le", d, const(0, d.dtype))  # nan goes on, as in LAPACK
        good = scalar.logical_and(good, scalar.apply("not", bad))
        root = scalar.apply("sqrt", d)
        root = scalar.apply("complex", root, const(0, d.dtype)) if is_complex(dtype) else root
        rows[j][j] = root
        inverse = reciprocal(root)
        for i in range(j + 1, n):
            s = a(i, j)
            for k in range(j):
                s = minus_product(s, rows[i][k], conj(rows[j][k]))
            rows[i][j] = scalar.mul(s, inverse)
    for i in range(n):
        for j in range(i + 1):
            rows[i][j] = scalar.select(good, rows[i][j], nan(dtype))
    return rows


def substituted(
    m: Callable[[int, int], Expr], inverses: list[Expr] | None, b: list[Expr], forward: bool
) -> list[Expr]:
    """The solution of a triangular system; `inverses` of the diagonal, None if that is 1."""
    n = len(b)
    x: dict[int, Expr] = {}
    for i in range(n) if forward else reversed(range(n)):
        s = b[i]
        for k in x:
            s = minus_product(s, m(i, k), x[k])
        x[i] = s if inverses is None else scalar.mul(s, inverses[i])
    return [x[i] for i in range(n)]


def ready(builder: "Builder", h: Any) -> Handle:
    """An operand that may be read anywhere: pending values are stored first."""
    if isinstance(h.state, Pending):
        builder.store(h)
    return h


def cholesky(builder: "Builder", a: Any, out: Handle) -> None:
    *lead, n, _ = a.shape
    a = ready(builder, a)
    if fuse.is_small(out.shape):

        def elements() -> list[Expr]:
            found = []
            for t in static_indices(tuple(lead)):

                def element(i: int, j: int, t: tuple[Expr, ...] = t) -> Expr:
                    return a(*t, scalar.size(i), scalar.size(j))

                rows = cholesky_of(element, n)
                found += [e for row in rows for e in row]
            return found

        builder.settle_registers(out, builder.evaluated(elements))
        return
    made = place(builder, out)

    def one(t: tuple[Expr, ...]) -> list[Stmt]:
        rows = cholesky_of(lambda i, j: a(*t, scalar.size(i), scalar.size(j)), n)
        names, let = named([e for row in rows for e in row], "l")
        places = [made.position(out.shape, (*t, *ix)) for ix in static_indices((n, n))]
        return [let, *[Store(made.buffer, p, e) for p, e in zip(places, names, strict=True)]]

    work_ = prod(lead) * n**3
    each_item(builder, tuple(lead), one, "cholesky", work_ >= fuse.PARALLEL_WORK)


def triangular_solve(builder: "Builder", params: tuple, a: Any, b: Any, out: Handle) -> None:
    left, lower, transposing, conjugating, unit = params
    *lead, n, _ = a.shape
    a, b = ready(builder, a), ready(builder, b)
    many = b.shape[-1] if left else b.shape[-2]
    conjugating = conjugating and is_complex(a.dtype)
    flip = transposing == left  # whether the system that is solved has A's transpose

    def matrix(t: tuple[Expr, ...]) -> Callable[[int, int], Expr]:
        def m(i: int, k: int) -> Expr:
            i, k = (k, i) if flip else (i, k)
            e = a(*t, scalar.size(i), scalar.size(k))
            return conj(e) if conjugating else e

        return m

    def column(t: tuple[Expr, ...], j: Expr) -> list[tuple[Expr, ...]]:
        return [(*t, scalar.size(i), j) if left else (*t, j, scalar.size(i)) for i in range(n)]

    forward = lower != flip

    if fuse.is_small(out.shape) and fuse.is_small(a.shape):

        def elements() -> list[Expr]:
            found: dict[tuple, Expr] = {}
            for t in static_indices(tuple(lead)):
                m = matrix(t)
                inverses = None if unit else [reciprocal(m(i, i)) for i in range(n)]
                for j in range(many):
                    where = column(t, scalar.size(j))
                    xs = substituted(m, inverses, [b(*ix) for ix in where], forward)
                    found.update(zip(where, xs, strict=True))
            return [found[ix] for ix in static_indices(out.shape)]

        builder.settle_registers(out, builder.evaluated(elements))
        return
    made = place(builder, out)

    def one(t: tuple[Expr, ...]) -> list[Stmt]:
        m, inverses, body = matrix(t), None, []
        if not unit:
            inverses, let = named([reciprocal(m(i, i)) for i in range(n)], "d")
            body.append(let)

        def solved(j: Expr) -> list[Stmt]:
            where = column(t, j)
            xs = substituted(m, inverses, [b(*ix) for ix in where], forward)
            names, let = named(xs, "x")
            places = [made.position(out.shape, ix) for ix in where]
            return [let, *[Store(made.buffer, p, e) for p, e in zip(places, names, strict=True)]]

        if many == 1:
            return [*body, *solved(scalar.size(0))]
        return [*body, loop(many, solved, vector=left)]

    each_item(builder, tuple(lead), one, "triangular_solve", out.size * n >= fuse.PARALLEL_WORK)
    finish(builder, out)
