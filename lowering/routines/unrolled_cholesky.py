"""Cholesky and triangular systems of small matrices as straight-line code on their elements.

A call of LAPACK costs a microsecond; these cost less, and stacks of small matrices are one kernel.
"""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.generate.generation import Generation
from fnx.lowering.generate.values import Fused, Value, static_indices
from fnx.lowering.ir.kernel import Stmt, Store

from .batched_matrices import const, each_item, finish, is_complex, loop, named, nan, place

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


def ready(builder: Generation, h: Any) -> Value:
    """An operand that may be read anywhere: pending values are stored first."""
    if isinstance(h.state, Fused):
        builder.store(h)
    return h


def cholesky(builder: Generation, a: Any, out: Value) -> None:
    """Factors by unrolled operations: in registers, or matrix by matrix."""
    *lead, n, _ = a.shape
    a = ready(builder, a)
    if builder.target.is_small(out.shape):

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
    each_item(builder, tuple(lead), one, "cholesky", work_ >= builder.machine.parallel_work)


class _System:
    """Triangular systems of a few equations: their matrices and right-hand sides by index."""

    def __init__(self, builder: Generation, params: tuple, a: Any, b: Any):
        self.left, lower, transposing, conjugating, self.unit = params
        self.n = a.shape[-1]
        self.a, self.b = ready(builder, a), ready(builder, b)
        self.many = b.shape[-1] if self.left else b.shape[-2]
        self.conjugating = conjugating and is_complex(a.dtype)
        self.flip = transposing == self.left  # whether the system that is solved has A's transpose
        self.forward = lower != self.flip

    def entry(self, t: tuple[Expr, ...], i: int, k: int) -> Expr:
        """An element of the matrix of system `t`."""
        i, k = (k, i) if self.flip else (i, k)
        e = self.a(*t, scalar.size(i), scalar.size(k))
        return conj(e) if self.conjugating else e

    def inverses(self, t: tuple[Expr, ...]) -> list[Expr] | None:
        """Of the diagonal; None if it is one."""
        return None if self.unit else [reciprocal(self.entry(t, i, i)) for i in range(self.n)]

    def column(self, t: tuple[Expr, ...], j: Expr) -> list[tuple[Expr, ...]]:
        """The indices of a right-hand side."""
        at = [scalar.size(i) for i in range(self.n)]
        return [(*t, i, j) if self.left else (*t, j, i) for i in at]

    def solution(
        self, t: tuple[Expr, ...], inverses: list[Expr] | None, where: list[tuple[Expr, ...]]
    ) -> list[Expr]:
        """What the right-hand side at these indices becomes."""
        given = [self.b(*ix) for ix in where]
        return substituted(partial(self.entry, t), inverses, given, self.forward)


def triangular_solve(builder: Generation, params: tuple, a: Any, b: Any, out: Value) -> None:
    """Solutions by unrolled substitution: in registers, or in a loop over right-hand sides."""
    system, lead = _System(builder, params, a, b), tuple(a.shape[:-2])
    if builder.target.is_small(out.shape) and builder.target.is_small(a.shape):

        def elements() -> list[Expr]:
            found: dict[tuple, Expr] = {}
            for t in static_indices(lead):
                inverses = system.inverses(t)
                for j in range(system.many):
                    where = system.column(t, scalar.size(j))
                    found.update(zip(where, system.solution(t, inverses, where), strict=True))
            return [found[ix] for ix in static_indices(out.shape)]

        builder.settle_registers(out, builder.evaluated(elements))
        return
    made = place(builder, out)

    def one(t: tuple[Expr, ...]) -> list[Stmt]:
        inverses, body = system.inverses(t), []
        if inverses is not None:
            inverses, let = named(inverses, "d")
            body.append(let)

        def solved(j: Expr) -> list[Stmt]:
            where = system.column(t, j)
            names, let = named(system.solution(t, inverses, where), "x")
            places = [made.position(out.shape, ix) for ix in where]
            return [let, *[Store(made.buffer, p, e) for p, e in zip(places, names, strict=True)]]

        if system.many == 1:
            return [*body, *solved(scalar.size(0))]
        return [*body, loop(system.many, solved, vector=system.left)]

    work_ = out.size * system.n
    each_item(builder, lead, one, "triangular_solve", work_ >= builder.machine.parallel_work)
    finish(builder, out)
