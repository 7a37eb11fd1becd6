"""Factors of many small matrices and solutions of their systems by index, for loops over them.

`small_problems.py` asks for one element at a time; the matrix of a problem is factored once.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core import policy, recipe, scalar
from fnx.core.scalar import Expr
from fnx.lowering.generate.values import Value, memoised

from . import unrolled_cholesky, unrolled_lu
from .batched_matrices import LETTER, const, is_complex

Functions = list[Callable[..., Expr]]


def _matrices(of: Callable[..., list[list[Expr]]]) -> Callable[..., Expr]:
    """Element (*t, i, j) of what `of(*t)` gives."""
    rows = memoised(of)
    return lambda *ix: rows(*ix[:-2])[ix[-2].attr][ix[-1].attr]


def _rows(a: Any, t: Sequence[Expr]) -> list[list[Expr]]:
    m, n = a.shape[-2:]
    return [[a(*t, scalar.size(i), scalar.size(j)) for j in range(n)] for i in range(m)]


def _fits(r: recipe.Library, most: int) -> bool:
    """Whether matrices are small, few vectors solved for, and numbers such as LAPACK has."""
    a, b = r.operands[0], r.operands[-1]
    few = 0 < b.shape[-1] <= policy.SMALL and 0 < b.shape[-2] <= policy.SMALL
    return few and 0 < max(a.shape[-2:]) <= most and a.dtype in LETTER


def cholesky(r: recipe.Library, outs: list[Value]) -> Functions | None:
    a, n = r.operands[0], r.operands[0].shape[-1]
    if not _fits(r, policy.UNROLLED_ORDER):
        return None

    def of(*t: Expr) -> list[list[Expr]]:
        rows = _rows(a, t)
        return unrolled_cholesky.cholesky_of(lambda i, j: rows[i][j], n)

    return [_matrices(of)]


def triangular_solve(r: recipe.Library, outs: list[Value]) -> Functions | None:
    a, b = r.operands
    left, lower, transposing, conjugating, unit = r.params
    if not _fits(r, policy.UNROLLED_ORDER):
        return None
    conjugating = conjugating and is_complex(a.dtype)
    flip = transposing == left  # whether the system that is solved has A's transpose
    n, forward = a.shape[-1], lower != flip

    def of(*t: Expr) -> list[list[Expr]]:
        rows, given = _rows(a, t), _rows(b, t)

        def m(i: int, k: int) -> Expr:
            e = rows[k][i] if flip else rows[i][k]
            return unrolled_cholesky.conj(e) if conjugating else e

        inverses = None if unit else [unrolled_cholesky.reciprocal(m(i, i)) for i in range(n)]
        columns = _transposed(given) if left else given
        solved = [unrolled_cholesky.substituted(m, inverses, c, forward) for c in columns]
        return _transposed(solved) if left else solved

    return [_matrices(of)]


def _transposed(rows: list[list[Expr]]) -> list[list[Expr]]:
    return [list(column) for column in zip(*rows, strict=True)]


def lu(r: recipe.Library, outs: list[Value]) -> Functions | None:
    a = r.operands[0]
    if not _fits(r, policy.UNROLLED_PIVOTED):
        return None
    of = memoised(lambda *t: unrolled_lu.lu_of(_rows(a, t)))

    def listed(part: int) -> Callable[..., Expr]:
        return lambda *ix: of(*ix[:-1])[part][ix[-1].attr]

    return [_matrices(lambda *t: of(*t)[0]), listed(1), listed(2)]


def lu_solve(r: recipe.Library, outs: list[Value]) -> Functions | None:
    factors, pivots, b = r.operands
    (op,) = r.params
    n = b.shape[-2]
    if not _fits(r, policy.UNROLLED_PIVOTED):
        return None
    solution = unrolled_lu.by_pivots(n, op == "t")

    def of(*t: Expr) -> list[list[Expr]]:
        f = _rows(factors, t)
        inverses = [unrolled_cholesky.reciprocal(f[i][i]) for i in range(n)]
        swaps = [pivots(*t, scalar.size(k)) for k in range(n - 1)]
        return _transposed([solution(f, inverses, swaps, c) for c in _transposed(_rows(b, t))])

    return [_matrices(of)]


def solve(r: recipe.Library, outs: list[Value]) -> Functions | None:
    a, b = r.operands
    if not _fits(r, policy.UNROLLED_PIVOTED):
        return None

    def of(*t: Expr) -> list[list[Expr]]:
        f, inverses, order = unrolled_lu.factors(_rows(a, t))
        columns = _transposed(_rows(b, t))
        return _transposed([unrolled_lu.by_order(f, inverses, order, c) for c in columns])

    return [_matrices(of)]


def permutation(r: recipe.Library, outs: list[Value]) -> Functions | None:
    """What swaps of rows make of their numbers, one after the other."""
    pivots, (rows,) = r.operands[0], outs[0].shape[-1:]
    if rows > policy.UNROLLED_LU:
        return None

    def of(*t: Expr) -> list[Expr]:
        order = [const(i, "int32") for i in range(rows)]
        for k in range(pivots.shape[-1]):
            p = pivots(*t, scalar.size(k))
            for i in range(k + 1, rows):
                here = scalar.compare("eq", p, const(i, "int32"))
                order[k], order[i] = unrolled_lu.exchanged(here, order[k], order[i])
        return order

    found = memoised(of)
    return [lambda *ix: found(*ix[:-1])[ix[-1].attr]]


ELEMENTS: dict[str, Callable[[recipe.Library, list[Value]], Functions | None]] = {
    "cholesky": cholesky,
    "triangular_solve": triangular_solve,
    "lu": lu,
    "lu_solve": lu_solve,
    "solve": solve,
    "lu_pivots_to_permutation": permutation,
}
