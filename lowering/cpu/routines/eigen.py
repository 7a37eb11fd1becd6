"""QR, SVD, eigenvalues and Schur forms by LAPACK, one matrix of a stack after the other.

The routines work on transposed copies, so that results are those of the primitives' `impl`, down to
the signs of vectors. Where one fails, its matrix's results are nan.
"""

from math import prod
from typing import Any

from fnx.core import recipe, scalar
from fnx.core.scalar import Expr
from fnx.lowering.cpu.routines.fortran import Asked, call
from fnx.lowering.generate.generation import Generation
from fnx.lowering.generate.values import Materialized, Value
from fnx.lowering.ir.kernel import Buffer, Copy, Fill, If, Loop, Ref, Stmt
from fnx.lowering.routines.batched_matrices import (
    REAL,
    at,
    columns,
    const,
    each,
    fill_if,
    finish,
    info,
    is_complex,
    loop,
    minus_one,
    not_zero,
    nth,
    place,
    result,
    symbol,
    transposed,
    work,
)

ZERO = scalar.size(0)


# --- QR ----------------------------------------------------------------------------------------


def qr(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    """Householder reflections by LAPACK, matrix by matrix; Q is made of them where it is read."""
    a: Value = r.operands[0]  # type: ignore[assignment]
    full, pivoting = r.params
    q, upper = outs[:2]
    *lead, rows, cols = a.shape
    dtype, k = a.dtype, min(rows, cols)
    if not a.size:
        _empty_qr(builder, outs)
        return
    wide = rows if full else k  # columns of Q
    factors, tau, failed = columns(builder, a), work(builder, dtype, k), info(builder)
    vectors = work(builder, dtype, prod(lead) * wide * rows)
    order = place(builder, outs[2]) if pivoting else None
    norms = work(builder, REAL.get(dtype, dtype), 2 * cols)
    wants_q = bool(q.consumers)

    def one(t: Expr) -> list[Stmt]:
        matrix, columns_of_q = nth(factors, t, rows * cols), nth(vectors, t, rows * wide)
        written = [factors.buffer, tau.buffer, failed]
        head: list[Any] = [rows, cols, matrix, rows]
        tail: list[Any] = [at(tau), Asked(dtype), Ref(failed, ZERO)]
        body: list[Stmt] = []
        if order is not None:
            jpvt = nth(order, t, cols)
            body.append(Fill(jpvt, scalar.size(cols), const(0, "int32")))
            if is_complex(dtype):
                tail.insert(2, at(norms))
                written.append(norms.buffer)
            args = [*head, jpvt, *tail]
            body.append(call(builder, symbol("geqp3", dtype), args, [*written, order.buffer]))
            body.append(loop(cols, lambda i: [minus_one(order, scalar.add(jpvt.index, i))]))
        else:
            body.append(call(builder, symbol("geqrf", dtype), [*head, *tail], written))
        if wants_q:
            body.append(Copy(columns_of_q, matrix, scalar.size(rows * min(wide, cols))))
            name = "ungqr" if is_complex(dtype) else "orgqr"
            args = [rows, wide, k, columns_of_q, rows, *tail[:2], Ref(failed, ZERO)]
            body.append(call(builder, symbol(name, dtype), args, [vectors.buffer, failed]))
        return body

    each(builder, prod(lead), one)
    result(builder, q, transposed(vectors, (*lead, wide, rows)), "qr")
    lower = transposed(factors, (*lead, cols, rows))

    def triangle(*ix: Expr) -> Expr:
        return scalar.select(scalar.compare("ge", ix[-1], ix[-2]), lower(*ix), const(0, dtype))

    result(builder, upper, triangle, "qr")
    if pivoting:
        finish(builder, outs[2])


def identity(dtype: str) -> Any:
    """The elements of an identity matrix."""

    def fn(*ix: Expr) -> Expr:
        return scalar.select(scalar.compare("eq", ix[-1], ix[-2]), const(1, dtype), const(0, dtype))

    return fn


def _empty_qr(builder: Generation, outs: list[Value]) -> None:
    result(builder, outs[0], identity(outs[0].dtype), "qr")
    result(builder, outs[1], lambda *ix: const(0, outs[1].dtype), "qr")
    if len(outs) > 2:
        result(builder, outs[2], lambda *ix: scalar.cast(ix[-1], "int32"), "qr")


# --- SVD ---------------------------------------------------------------------------------------


def svd(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    """Divide and conquer (gesdd) by LAPACK, matrix by matrix."""
    a: Value = r.operands[0]  # type: ignore[assignment]
    full, vectors = r.params
    *lead, rows, cols = a.shape
    dtype, real, k, big = a.dtype, REAL.get(a.dtype, a.dtype), min(rows, cols), max(rows, cols)
    if not a.size:
        place(builder, outs[0])
        finish(builder, outs[0])
        for out in outs[1:]:
            result(builder, out, identity(dtype), "svd")
        return
    ku, kv = (rows, cols) if full else (k, k)
    matrices_, values, failed = columns(builder, a), place(builder, outs[0]), info(builder)
    u = work(builder, dtype, prod(lead) * rows * ku if vectors else 1)
    v = work(builder, dtype, prod(lead) * kv * cols if vectors else 1)
    integers = work(builder, "int32", 8 * k)
    reals = work(builder, real, max(7 * k, 5 * k * k + 7 * k, 2 * big * k + 2 * k * k + k))
    letter = ("A" if full else "S") if vectors else "N"

    def one(t: Expr) -> list[Stmt]:
        s = nth(values, t, k)
        left, right = (nth(u, t, rows * ku), nth(v, t, kv * cols)) if vectors else (at(u), at(v))
        args = [letter, rows, cols, nth(matrices_, t, rows * cols), rows, s, left, rows, right]
        args += [kv if vectors else 1, Asked(dtype)]
        args += [at(reals)] if is_complex(dtype) else []
        args += [at(integers), Ref(failed, ZERO)]
        written = [matrices_, values, u, v, integers] + ([reals] if is_complex(dtype) else [])
        gesdd = call(builder, symbol("gesdd", dtype), args, [*[w.buffer for w in written], failed])
        fills = [(s, k)] + ([(left, rows * ku), (right, kv * cols)] if vectors else [])
        return [gesdd, fill_if(not_zero(failed, ZERO), *fills)]

    each(builder, prod(lead), one)
    finish(builder, outs[0])
    if vectors:
        result(builder, outs[1], transposed(u, (*lead, ku, rows)), "svd")
        result(builder, outs[2], transposed(v, (*lead, cols, kv)), "svd")


# --- eigenvalues -------------------------------------------------------------------------------


def eigh(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    """Divide and conquer by LAPACK, matrix by matrix; vectors where they are read."""
    a: Value = r.operands[0]  # type: ignore[assignment]
    (lower,) = r.params
    vectors, values = outs
    *lead, n, _ = a.shape
    dtype, real = a.dtype, REAL.get(a.dtype, a.dtype)
    w = place(builder, values)
    if not a.size:
        place(builder, vectors)
        finish(builder, vectors)
        finish(builder, values)
        return
    matrix, failed = columns(builder, a), info(builder)
    job = "V" if vectors.consumers else "N"

    def one(t: Expr) -> list[Stmt]:
        here, found = nth(matrix, t, n * n), nth(w, t, n)
        asked = [Asked(dtype), *([Asked(real)] if is_complex(dtype) else []), Asked("int32")]
        name = "heevd" if is_complex(dtype) else "syevd"
        args = [job, "L" if lower else "U", n, here, n, found, *asked, Ref(failed, ZERO)]
        written = [matrix.buffer, w.buffer, failed]
        return [
            call(builder, symbol(name, dtype), args, written),
            fill_if(not_zero(failed, ZERO), (here, n * n), (found, n)),
        ]

    each(builder, prod(lead), one)
    finish(builder, values)
    result(builder, vectors, transposed(matrix, (*lead, n, n)), "eigh")


def _all_finite(stored: Materialized, start: Expr, size: int) -> tuple[Stmt, Expr]:
    """A loop over elements, and its result: whether all are finite."""
    good, i = scalar.var("bool", "f"), scalar.var("int64", "i")
    x = scalar.load(stored.buffer, scalar.add(start, i), stored.buffer.dtype)
    parts = [scalar.apply(p, x) for p in ("real", "imag")] if is_complex(x.dtype) else [x]
    now = good
    for p in parts:
        now = scalar.logical_and(now, scalar.apply("is_finite", p))
    start_value = scalar.const(True, "bool")
    return Loop(i, scalar.size(size), [], [good], [start_value], [now]), good


def _if_finite(good: Expr, call_: Stmt, failed: Buffer, fills: list[tuple[Ref, int]]) -> If:
    """A call for a matrix of finite numbers; else, and where the call fails, results are nan."""
    checked = fill_if(not_zero(failed, ZERO), *fills)
    return If(good, [call_, checked], checked.then)


def eig(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    """Eigenvalues and the eigenvectors asked for, by LAPACK (geev), matrix by matrix."""
    a: Value = r.operands[0]  # type: ignore[assignment]
    left, right = r.params
    *lead, n, _ = a.shape
    dtype, count = a.dtype, prod(lead)
    if not a.size:
        for out in outs:
            place(builder, out)
            finish(builder, out)
        return
    matrix, failed = columns(builder, a), info(builder)
    complex_ = is_complex(dtype)
    w = [work(builder, dtype, count * n) for _ in range(1 if complex_ else 2)]
    sides = [work(builder, dtype, count * n * n if wanted else 1) for wanted in (left, right)]
    reals = work(builder, REAL.get(dtype, dtype), 2 * n)

    def one(t: Expr) -> list[Stmt]:
        here = nth(matrix, t, n * n)
        check, good = _all_finite(matrix, here.index, n * n)
        found = [nth(x, t, n) for x in w]
        vectors = [
            nth(s, t, n * n) if wanted else at(s)
            for s, wanted in zip(sides, (left, right), strict=True)
        ]
        args: list[Any] = ["V" if left else "N", "V" if right else "N", n, here, n, *found]
        args += [vectors[0], n, vectors[1], n, Asked(dtype)]
        args += [at(reals), Ref(failed, ZERO)] if complex_ else [Ref(failed, ZERO)]
        written = [matrix, *w, *sides, *([reals] if complex_ else [])]
        geev = call(builder, symbol("geev", dtype), args, [*[x.buffer for x in written], failed])
        fills = [(x, n) for x in found]
        fills += [(v, n * n) for v, wanted in zip(vectors, (left, right), strict=True) if wanted]
        return [check, _if_finite(good, geev, failed, fills)]

    each(builder, count, one)
    _eig_results(builder, outs, w, [s for s, x in zip(sides, (left, right), strict=True) if x])


def _eig_results(
    builder: Generation, outs: list[Value], w: list[Materialized], sides: list[Materialized]
) -> None:
    """Complex numbers of the real pairs of which LAPACK gives the parts."""
    values, *vectors = outs
    shape = values.shape
    n = shape[-1]
    if len(w) == 1:
        result(builder, values, lambda *ix: w[0].read(shape, ix), "eig")
        for out, s in zip(vectors, sides, strict=True):
            result(builder, out, transposed(s, out.shape), "eig")
        return

    def value(*ix: Expr) -> Expr:
        return scalar.apply("complex", *[x.read(shape, ix) for x in w])

    result(builder, values, value, "eig")
    last = scalar.size(n - 1)

    def first_of_pair(lead: tuple[Expr, ...], j: Expr) -> Expr:
        zero = const(0, w[1].buffer.dtype)
        following = scalar.clamp(ZERO, scalar.add(j, scalar.size(1)), last)
        here = scalar.compare("gt", w[1].read(shape, (*lead, j)), zero)
        after = scalar.compare("lt", w[1].read(shape, (*lead, following)), zero)
        after = scalar.logical_and(after, scalar.compare("lt", j, last))
        return scalar.node("or", "bool", (here, after))

    def vector(s: Materialized, out: Value) -> Any:
        element = transposed(s, out.shape)

        def fn(*ix: Expr) -> Expr:
            *lead, i, j = ix
            before = scalar.clamp(ZERO, scalar.sub(j, scalar.size(1)), last)
            after = scalar.clamp(ZERO, scalar.add(j, scalar.size(1)), last)
            first = first_of_pair(tuple(lead), j)
            second = first_of_pair(tuple(lead), before)
            second = scalar.logical_and(second, scalar.compare("gt", j, ZERO))
            here = element(*lead, i, j)
            zero = const(0, here.dtype)
            re = scalar.select(first, here, scalar.select(second, element(*lead, i, before), here))
            minus = scalar.apply("neg", here)
            im = scalar.select(second, minus, zero)
            im = scalar.select(first, element(*lead, i, after), im)
            return scalar.apply("complex", re, im)

        return fn

    for out, s in zip(vectors, sides, strict=True):
        result(builder, out, vector(s, out), "eig")


def schur(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    """Schur forms by LAPACK (gees), matrix by matrix."""
    a: Value = r.operands[0]  # type: ignore[assignment]
    (wants_vectors,) = r.params
    *lead, n, _ = a.shape
    dtype, count, complex_ = a.dtype, prod(lead), is_complex(a.dtype)
    if not a.size:
        for out in outs:
            place(builder, out)
            finish(builder, out)
        return
    matrix, failed, ignored = columns(builder, a), info(builder), work(builder, "int32", n)
    w = [work(builder, dtype, n) for _ in range(1 if complex_ else 2)]
    z = work(builder, dtype, count * n * n if wants_vectors else 1)
    reals, sdim = work(builder, REAL.get(dtype, dtype), n), work(builder, "int32", 1)

    def one(t: Expr) -> list[Stmt]:
        here = nth(matrix, t, n * n)
        check, good = _all_finite(matrix, here.index, n * n)
        vectors = nth(z, t, n * n) if wants_vectors else at(z)
        args: list[Any] = ["V" if wants_vectors else "N", "N", at(ignored), n, here, n, at(sdim)]
        args += [*[at(x) for x in w], vectors, n, Asked(dtype)]
        args += [at(reals)] if complex_ else []
        args += [at(ignored), Ref(failed, ZERO)]
        written = [matrix, sdim, *w, z, ignored, *([reals] if complex_ else [])]
        gees = call(builder, symbol("gees", dtype), args, [*[x.buffer for x in written], failed])
        fills = [(here, n * n)] + ([(vectors, n * n)] if wants_vectors else [])
        return [check, _if_finite(good, gees, failed, fills)]

    each(builder, count, one)
    for out, s in zip(outs, (matrix, z), strict=False):
        result(builder, out, transposed(s, (*lead, n, n)), "schur")


ROUTINES = {
    "qr": qr,
    "svd": svd,
    "eigh": eigh,
    "eig": eig,
    "schur": schur,
}
