"""Cholesky, triangular systems, LU and linear systems, one matrix of a stack after the other.

Real matrices are left to fnx's own routines (dense.py), others to LAPACK, whose matrices are
column-major. Where that does not matter, a routine is told that it sees transposed matrices; LU
works on transposed copies.
"""

from dataclasses import replace
from math import prod
from typing import Any

from fnx.core import policy, recipe, scalar
from fnx.core.fast_dataclasses import dataclass
from fnx.core.scalar import Expr
from fnx.lowering.cpu.llvm import ir_vectors
from fnx.lowering.cpu.routines.fortran import call
from fnx.lowering.generate.affine_views import Matrices, View, matrices, offset, view
from fnx.lowering.generate.generation import Generation
from fnx.lowering.generate.values import Materialized, Value
from fnx.lowering.ir.kernel import Fill, If, Loop, Ref, Stmt
from fnx.lowering.routines import unrolled_cholesky, unrolled_lu
from fnx.lowering.routines.batched_matrices import (
    at,
    columns,
    const,
    each,
    filled,
    finish,
    in_place,
    info,
    is_complex,
    loop,
    minus_one,
    nan,
    not_zero,
    nth,
    permute,
    place,
    result,
    swapped,
    symbol,
    transposed,
    work,
)

from . import dense

ZERO = scalar.size(0)


# --- cholesky ----------------------------------------------------------------------------------


def cholesky(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    """Lower factors, in place where the matrix is dead."""
    a: Value = r.operands[0]  # type: ignore[assignment]
    (out,) = outs
    n = a.shape[-1]
    if n <= policy.UNROLLED_ORDER and out.size:
        unrolled_cholesky.cholesky(builder, a, out)
        return
    lives = in_place(builder, a, out)
    out.state = lives

    def factored(matrix: Ref) -> tuple[Stmt, Expr]:
        """The call, and whether there is no factor."""
        if ir_vectors.exists(a.dtype):
            return dense.cholesky(builder, matrix, n)
        failed = info(builder)
        # What is lower in rows is upper in columns.
        args = ["U", n, matrix, n, Ref(failed, ZERO)]
        written = [lives.buffer, failed]
        return call(builder, symbol("potrf", a.dtype), args, written), not_zero(failed, ZERO)

    def one(t: Expr) -> list[Stmt]:
        matrix = nth(lives, t, n * n)
        potrf, bad = factored(matrix)

        def clear(i: Expr) -> list[Stmt]:
            row, more, zeros = _zeros_above(matrix, i, n)
            nans = Fill(Ref(lives.buffer, row), more, nan(a.dtype))
            return [zeros, If(bad, [nans], [])]

        return [potrf, loop(n, clear)]

    if n:
        each(builder, prod(a.shape[:-2]), one)
    finish(builder, out)


def _zeros_above(matrix: Ref, i: Expr, n: int) -> tuple[Expr, Expr, Stmt]:
    """Where row i begins, how much of it is up to the diagonal, and zeros for the rest."""
    row = scalar.add(matrix.index, scalar.mul(i, scalar.size(n)))
    more = scalar.add(i, scalar.size(1))
    rest = Ref(matrix.buffer, scalar.add(row, more))
    left = scalar.sub(scalar.size(n), more)
    return row, more, Fill(rest, left, const(0, matrix.buffer.dtype))


def cholesky_slope(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    """A tangent, or a cotangent, in place of its lower triangle."""
    l, t = r.operands
    (out,) = outs
    n = t.shape[-1]
    factors = builder.store(l)  # type: ignore[arg-type]
    lives = in_place(builder, t, out, factors)  # type: ignore[arg-type]
    out.state = lives

    def one(index: Expr) -> list[Stmt]:
        matrix, factor = nth(lives, index, n * n), nth(factors, index, n * n)
        call_ = dense.slope(builder, r.name, factor, matrix, n)
        return [call_, loop(n, lambda i: [_zeros_above(matrix, i, n)[2]])]

    if n:
        each(builder, prod(t.shape[:-2]), one)
    finish(builder, out)


# --- triangular systems ------------------------------------------------------------------------


def _triangular_view(builder: Generation, a: Value) -> tuple[Matrices, list[int]]:
    """Triangular matrices as a library reads them, and the strides of the stack."""
    lead = a.ndim - 2
    v = view(builder, a)
    found = v and matrices(v, a.shape, (lead,), (lead + 1,))
    return (found, list(found.view.strides[:lead])) if found else _rows(builder, a)


def triangular_solve(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    """Systems with a triangular matrix, in place where the right-hand side is dead."""
    a, b = r.operands
    (out,) = outs
    left, lower, transposing, conjugating, unit = r.params
    if not is_complex(b.dtype):
        conjugating = False
    n = a.shape[-1]
    if n <= policy.UNROLLED_ORDER and out.size:
        unrolled_cholesky.triangular_solve(builder, r.params, a, b, out)
        return
    if conjugating and not transposing:
        plain = a
        stored = work(builder, a.dtype, prod(a.shape))
        a = Value(a.shape, a.dtype)
        a.destination = stored
        builder.join(a, lambda *ix: scalar.apply("conj", plain(*ix)), "conj")
    matrix, strides = _triangular_view(builder, a)  # type: ignore[arg-type]
    lives = in_place(builder, b, out, Materialized(matrix.view.buffer))  # type: ignore[arg-type]
    out.state = lives
    lead = tuple(a.shape[:-2])
    conjugated = conjugating and transposing
    if conjugated and matrix.transposed:  # conj(A^T) of a transposed one: no such option
        matrix, strides = _rows(builder, a)  # type: ignore[arg-type]
    flip = matrix.transposed
    form = _Triangle(lower != flip, transposing != flip, unit, conjugated)

    count = prod(lead)
    if left and b.shape[-1] == 1 and count > 1 and not any(strides) and ir_vectors.exists(b.dtype):
        # One matrix for all vectors, which lie in rows: X op(A)' = B.
        form = replace(form, transposing=not form.transposing)
        address, rows = Ref(matrix.view.buffer, matrix.view.base), at(lives)
        call_ = _trsm(builder, form, address, matrix.leading, rows, lives, (count, n), False)
        builder.emit(call_)
        finish(builder, out)
        return

    def one(t: Expr) -> list[Stmt]:
        address = Ref(matrix.view.buffer, scalar.add(matrix.view.base, offset(t, lead, strides)))
        rhs = nth(lives, t, prod(b.shape[-2:]))
        return [_trsm(builder, form, address, matrix.leading, rhs, lives, b.shape[-2:], left)]

    if out.size:
        each(builder, prod(lead), one)
    finish(builder, out)


def _rows(builder: Generation, a: Value) -> tuple[Matrices, list[int]]:
    """The same of matrices that are stored in rows for it, if they are not yet."""
    lead = a.ndim - 2
    v = view(builder, Value(a.shape, a.dtype, builder.store(a)))
    found = v and matrices(v, a.shape, (lead,), (lead + 1,))
    assert found
    return found, list(found.view.strides[:lead])


@dataclass(frozen=True)
class _Triangle:
    """A triangular factor as it lies in rows: which half, what is done to it first."""

    lower: bool
    transposing: bool
    unit: bool
    conjugated: bool = False


def _trsm(
    builder: Generation,
    f: _Triangle,
    a: Ref,
    leading: int,
    b: Ref,
    lives: Materialized,
    shape: Any,
    left: bool = True,
) -> Stmt:
    """op(A) X = B (or X op(A) = B) in place of B, for row-major matrices of a stack."""
    rows, cols = shape
    half = "U" if f.lower else "L"  # in columns
    unit = "U" if f.unit else "N"
    dtype = b.buffer.dtype
    n = rows if left else cols
    if (cols if left else rows) == 1 and not (left and f.conjugated):
        kept = f.transposing if left else not f.transposing
        op = "N" if kept else "C" if f.conjugated else "T"
        args = [half, op, unit, n, a, leading, b, 1]
        return call(builder, symbol("trsv", dtype, "blas"), args, [lives.buffer])
    if ir_vectors.exists(dtype):
        strides = (1, leading) if f.transposing else (leading, 1)
        lower = f.lower != f.transposing
        return dense.solve(builder, a, strides, lower, f.unit, b, shape, left)
    op = "N" if not f.transposing else "C" if f.conjugated else "T"
    side = "R" if left else "L"
    args = [side, half, op, unit, cols, rows, const(1, dtype), a, leading, b, cols]
    return call(builder, symbol("trsm", dtype, "blas"), args, [lives.buffer])


# --- LU ----------------------------------------------------------------------------------------


def lu(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    """Factors in one matrix, pivots from 0, and the order of the rows."""
    a: Value = r.operands[0]  # type: ignore[assignment]
    out, pivots, order = outs
    *lead, rows, cols = a.shape
    k, count = min(rows, cols), prod(lead)
    if not a.size:
        result(builder, out, lambda *ix: const(0, out.dtype), "lu")
        result(builder, pivots, lambda *ix: const(0, "int32"), "lu")
        result(builder, order, lambda *ix: scalar.cast(ix[-1], "int32"), "lu")
        return
    if max(rows, cols) <= policy.UNROLLED_LU:
        unrolled_lu.lu(builder, a, outs)
        return
    own = ir_vectors.exists(a.dtype)
    factors = in_place(builder, a, out) if own else columns(builder, a)
    swaps = place(builder, pivots)
    permutation = place(builder, order)
    failed = info(builder)

    def one(t: Expr) -> list[Stmt]:
        where = nth(swaps, t, k)
        reorder = permute(where, nth(permutation, t, rows), rows, k)
        if own:
            matrix = nth(factors, t, rows * cols)
            return [dense.lu(builder, matrix, rows, cols, where), *reorder]
        getrf = call(
            builder,
            symbol("getrf", a.dtype),
            [rows, cols, nth(factors, t, rows * cols), rows, where, Ref(failed, ZERO)],
            [factors.buffer, swaps.buffer, failed],
        )
        return [
            getrf,
            loop(k, lambda i: [minus_one(swaps, scalar.add(where.index, i))], vector=True),
            *reorder,
        ]

    each(builder, count, one)
    finish(builder, pivots)
    finish(builder, order)
    if own:
        out.state = factors
        finish(builder, out)
    else:
        result(builder, out, transposed(factors, (*lead, cols, rows)), "lu")


def lu_pivots_to_permutation(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    pivots: Value = r.operands[0]  # type: ignore[assignment]
    (out,) = outs
    k, rows = pivots.shape[-1], out.shape[-1]
    given, made = builder.store(pivots), place(builder, out)
    if out.size:
        each(
            builder,
            prod(pivots.shape[:-1]),
            lambda t: permute(nth(given, t, k), nth(made, t, rows), rows, k),
        )
    finish(builder, out)


def _swap_rows(pivots: Ref, first: int, b: Ref, rows: int, cols: int, back: bool) -> Stmt:
    """Swap rows i and pivots[i] of a row-major matrix, one after the other, or backwards."""
    k = scalar.var("int64", "k")
    p = scalar.load(pivots.buffer, scalar.add(pivots.index, k), "int32")
    p = scalar.cast(scalar.sub(p, const(first, "int32")), "int64")
    j = scalar.var("int64", "j")

    def position(i: Expr) -> Expr:
        return scalar.add(b.index, scalar.add(scalar.mul(i, scalar.size(cols)), j))

    rowwise = Loop(j, scalar.size(cols), swapped(b.buffer, position(k), position(p)))
    body: list[Stmt] = [If(scalar.compare("ne", p, k), [rowwise], [])]
    return Loop(k, scalar.size(rows), body, reverse=back)


def lu_solve(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    factors, pivots, b = r.operands
    (out,) = outs
    (op,) = r.params
    n, cols = b.shape[-2:]
    if n <= policy.UNROLLED_LU and out.size:
        unrolled_lu.lu_solve(builder, factors, pivots, b, out, op == "t")
        return
    given = builder.store(pivots)  # type: ignore[arg-type]
    matrix, strides = _triangular_view(builder, factors)  # type: ignore[arg-type]
    lives = in_place(builder, b, out, Materialized(matrix.view.buffer))  # type: ignore[arg-type]
    out.state = lives
    lead = tuple(b.shape[:-2])

    def one(t: Expr) -> list[Stmt]:
        address = Ref(matrix.view.buffer, scalar.add(matrix.view.base, offset(t, lead, strides)))
        rhs = nth(lives, t, n * cols)
        swap = _swap_rows(nth(given, t, n), 0, rhs, n, cols, op == "t")
        solves = _two_triangles(builder, address, matrix, rhs, lives, (n, cols), op == "t")
        return [*solves, swap] if op == "t" else [swap, *solves]

    if out.size:
        each(builder, prod(lead), one)
    finish(builder, out)


def _two_triangles(
    builder: Generation,
    a: Ref,
    matrix: Matrices,
    b: Ref,
    lives: Materialized,
    shape: tuple[int, int],
    transposing: bool,
) -> list[Stmt]:
    """L U X = B, or its transpose, in place of B. LU lies in rows, or in columns."""
    flip = matrix.transposed
    forms = [
        _Triangle(not flip, transposing != flip, True),
        _Triangle(flip, transposing != flip, False),
    ]
    if transposing:
        forms.reverse()
    return [_trsm(builder, f, a, matrix.leading, b, lives, shape) for f in forms]


def solve(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    """Systems by LU of a copy of the matrix, in place where the right-hand side is dead."""
    a, b = r.operands
    (out,) = outs
    n, cols = b.shape[-2:]
    lead = tuple(b.shape[:-2])
    if n <= policy.UNROLLED_LU and out.size:
        unrolled_lu.solve(builder, a, b, out)  # type: ignore[arg-type]
        return
    if not out.size:
        place(builder, out)
        finish(builder, out)
        return
    own = ir_vectors.exists(a.dtype)
    copied = filled(builder, a.shape, a.dtype, a) if own else columns(builder, a)  # type: ignore
    factors: Materialized = copied
    lives = in_place(builder, b, out)  # type: ignore[arg-type]
    out.state = lives
    swaps, failed = work(builder, "int32", n), info(builder)
    form = Matrices(View(factors.buffer, factors.base, ()), not own, n)

    def one(t: Expr) -> list[Stmt]:
        address = nth(factors, t, n * n)
        rhs = nth(lives, t, n * cols)
        written = [factors.buffer, swaps.buffer, failed]
        args = [n, n, address, n, at(swaps), Ref(failed, ZERO)]
        getrf = (
            dense.lu(builder, address, n, n, at(swaps))
            if own
            else call(builder, symbol("getrf", a.dtype), args, written)
        )
        swap = _swap_rows(at(swaps), 0 if own else 1, rhs, n, cols, False)
        return [getrf, swap, *_two_triangles(builder, address, form, rhs, lives, (n, cols), False)]

    each(builder, prod(lead), one)
    finish(builder, out)


ROUTINES = {
    "cholesky": cholesky,
    "cholesky_tangent": cholesky_slope,
    "cholesky_cotangent": cholesky_slope,
    "triangular_solve": triangular_solve,
    "lu": lu,
    "lu_pivots_to_permutation": lu_pivots_to_permutation,
    "lu_solve": lu_solve,
    "solve": solve,
}
