"""Factorizations by LAPACK, one matrix of a stack after the other.

LAPACK's matrices are column-major. Where a factorization does not care (cholesky, triangular
systems), the routine is told that it sees transposed matrices; else it works on transposed copies,
so that results are those of the primitives' `impl`, down to the signs of vectors.
"""

from typing import TYPE_CHECKING, Any

from fnx.core import recipe, scalar
from fnx.core.scalar import Expr

from . import small
from .kernel import Copy, Fill, If, Let, Loop, Ref, Stmt, Store
from .stacks import (
    LETTER,
    REAL,
    Asked,
    at,
    call,
    columns,
    const,
    each,
    fill_if,
    finish,
    in_place,
    info,
    is_complex,
    loop,
    nan,
    not_zero,
    nth,
    place,
    prod,
    result,
    transposed,
    work,
)
from .values import Handle, Stored
from .views import Matrices, View, matrices, offset, view

if TYPE_CHECKING:
    from .build import Builder

ZERO = scalar.size(0)


def _symbol(name: str, dtype: str, kind: str = "lapack") -> str:
    return f"{kind}:{LETTER[dtype]}{name}"


def _first(stored: Stored) -> Ref:
    return at(stored)


# --- cholesky -------------------------------------------------------------------------------------------


def cholesky(builder: "Builder", r: recipe.Library, outs: list[Handle]) -> None:
    a: Handle = r.operands[0]  # type: ignore[assignment]
    (out,) = outs
    n = a.shape[-1]
    if n <= small.UNROLLED and out.size:
        small.cholesky(builder, a, out)
        return
    lives = in_place(builder, a, out)
    out.state = lives
    failed = info(builder)

    def one(t: Expr) -> list[Stmt]:
        matrix = nth(lives, t, n * n)
        # What is lower in rows is upper in columns.
        potrf = call(
            builder,
            _symbol("potrf", a.dtype),
            ["U", n, matrix, n, Ref(failed, ZERO)],
            [lives.buffer, failed],
        )
        bad = not_zero(failed, ZERO)

        def clear(i: Expr) -> list[Stmt]:
            row = scalar.add(matrix.index, scalar.mul(i, scalar.size(n)))
            more = scalar.add(i, scalar.size(1))
            rest = Ref(lives.buffer, scalar.add(row, more))
            zeros = Fill(rest, scalar.sub(scalar.size(n), more), const(0, a.dtype))
            nans = Fill(Ref(lives.buffer, row), more, nan(a.dtype))
            return [zeros, If(bad, [nans], [])]

        return [potrf, loop(n, clear)]

    if n:
        each(builder, prod(a.shape[:-2]), one)
    finish(builder, out)


# --- triangular systems -----------------------------------------------------------------------------------


def _triangular_view(builder: "Builder", a: Handle) -> tuple[Matrices, list[int]]:
    """Triangular matrices as a library reads them, and the strides of the stack."""
    lead = a.ndim - 2
    v = view(builder, a)
    found = v and matrices(v, a.shape, (lead,), (lead + 1,))
    if not found:
        v = view(builder, Handle(a.shape, a.dtype, builder.store(a)))
        assert v is not None
        found = matrices(v, a.shape, (lead,), (lead + 1,))
    assert found
    return found, list(found.view.strides[:lead])


def triangular_solve(builder: "Builder", r: recipe.Library, outs: list[Handle]) -> None:
    a, b = r.operands
    (out,) = outs
    left, lower, transposing, conjugating, unit = r.params
    if not is_complex(b.dtype):
        conjugating = False
    n = a.shape[-1]
    if n <= small.UNROLLED and out.size:
        small.triangular_solve(builder, r.params, a, b, out)
        return
    if conjugating and not transposing:
        plain = a
        stored = work(builder, a.dtype, prod(a.shape))
        a = Handle(a.shape, a.dtype)
        a.target = stored
        builder.join(a, lambda *ix: scalar.apply("conj", plain(*ix)), "conj")
    matrix, strides = _triangular_view(builder, a)  # type: ignore[arg-type]
    lives = in_place(builder, b, out, Stored(matrix.view.buffer))  # type: ignore[arg-type]
    out.state = lives
    lead = tuple(a.shape[:-2])
    form = _Triangle(lower != matrix.transposed, transposing != matrix.transposed, unit)
    form.conjugated = conjugating and transposing
    if form.conjugated and matrix.transposed:  # conj(A^T) of a transposed one: no such option
        again = Handle(a.shape, a.dtype, builder.store(a))
        v = view(builder, again)
        assert v is not None
        matrix, strides = _rows(v, again), list(v.strides[: len(lead)])
        form = _Triangle(lower, transposing, unit)
        form.conjugated = True

    def one(t: Expr) -> list[Stmt]:
        address = Ref(matrix.view.buffer, scalar.add(matrix.view.base, offset(t, lead, strides)))
        rhs = nth(lives, t, prod(b.shape[-2:]))
        return [_trsm(builder, form, address, matrix.leading, rhs, lives, b.shape[-2:], left)]

    if out.size:
        each(builder, prod(lead), one)
    finish(builder, out)


def _rows(v: View, h: Any) -> Matrices:
    found = matrices(v, h.shape, (h.ndim - 2,), (h.ndim - 1,))
    assert found is not None
    return found


class _Triangle:
    """A triangular factor as it lies in rows: which half, what is done to it first."""

    def __init__(self, lower: bool, transposing: bool, unit: bool):
        self.lower, self.transposing, self.unit = lower, transposing, unit
        self.conjugated = False


def _trsm(
    builder: "Builder",
    f: _Triangle,
    a: Ref,
    leading: int,
    b: Ref,
    lives: Stored,
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
        return call(builder, _symbol("trsv", dtype, "blas"), args, [lives.buffer])
    op = "N" if not f.transposing else "C" if f.conjugated else "T"
    side = "R" if left else "L"
    args = [side, half, op, unit, cols, rows, const(1, dtype), a, leading, b, cols]
    return call(builder, _symbol("trsm", dtype, "blas"), args, [lives.buffer])


# --- LU ---------------------------------------------------------------------------------------------------


def lu(builder: "Builder", r: recipe.Library, outs: list[Handle]) -> None:
    a: Handle = r.operands[0]  # type: ignore[assignment]
    out, pivots, order = outs
    *lead, rows, cols = a.shape
    k, count = min(rows, cols), prod(lead)
    if not a.size:
        result(builder, out, lambda *ix: const(0, out.dtype), "lu")
        result(builder, pivots, lambda *ix: const(0, "int32"), "lu")
        result(builder, order, lambda *ix: scalar.cast(ix[-1], "int32"), "lu")
        return
    if max(rows, cols) <= small.LOOPS:
        small.lu(builder, a, outs)
        return
    factors = columns(builder, a)
    swaps = place(builder, pivots)
    permutation = place(builder, order)
    failed = info(builder)

    def one(t: Expr) -> list[Stmt]:
        where = nth(swaps, t, k)
        getrf = call(
            builder,
            _symbol("getrf", a.dtype),
            [rows, cols, nth(factors, t, rows * cols), rows, where, Ref(failed, ZERO)],
            [factors.buffer, swaps.buffer, failed],
        )
        return [
            getrf,
            loop(k, lambda i: [_minus_one(swaps, scalar.add(where.index, i))], vector=True),
            *permute(where, nth(permutation, t, rows), rows, k),
        ]

    each(builder, count, one)
    finish(builder, pivots)
    finish(builder, order)
    shape = (*lead, cols, rows)
    result(builder, out, transposed(factors, shape), "lu")


def _minus_one(stored: Stored, index: Expr) -> Stmt:
    value = scalar.load(stored.buffer, index, "int32")
    return Store(stored.buffer, index, scalar.sub(value, const(1, "int32")))


def permute(pivots: Ref, order: Ref, rows: int, k: int) -> list[Stmt]:
    """The permutation that swaps of rows make, for pivots from 0."""
    kind = order.buffer.dtype

    def start(i: Expr) -> list[Stmt]:
        return [Store(order.buffer, scalar.add(order.index, i), scalar.cast(i, kind))]

    def swap(i: Expr) -> list[Stmt]:
        p = scalar.load(pivots.buffer, scalar.add(pivots.index, i), pivots.buffer.dtype)
        one = scalar.add(order.index, i)
        other = scalar.add(order.index, scalar.cast(p, "int64"))
        return small.swapped(order.buffer, one, other)

    return [loop(rows, start), loop(k, swap)]


def lu_pivots_to_permutation(
    builder: "Builder", r: recipe.Library, outs: list[Handle]
) -> None:
    pivots: Handle = r.operands[0]  # type: ignore[assignment]
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

    rowwise = Loop(j, scalar.size(cols), small.swapped(b.buffer, position(k), position(p)))
    body: list[Stmt] = [If(scalar.compare("ne", p, k), [rowwise], [])]
    return Loop(k, scalar.size(rows), body, reverse=back)


def lu_solve(builder: "Builder", r: recipe.Library, outs: list[Handle]) -> None:
    factors, pivots, b = r.operands
    (out,) = outs
    (op,) = r.params
    n, cols = b.shape[-2:]
    given = builder.store(pivots)  # type: ignore[arg-type]
    matrix, strides = _triangular_view(builder, factors)  # type: ignore[arg-type]
    lives = in_place(builder, b, out, Stored(matrix.view.buffer))  # type: ignore[arg-type]
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
    builder: "Builder",
    a: Ref,
    matrix: Matrices,
    b: Ref,
    lives: Stored,
    shape: tuple[int, int],
    transposing: bool,
) -> list[Stmt]:
    """L U X = B, or its transpose, in place of B. LU lies in rows, or in columns."""
    flip = matrix.transposed
    forms = [_Triangle(not flip, transposing != flip, True), _Triangle(flip, transposing != flip, False)]
    if transposing:
        forms.reverse()
    return [_trsm(builder, f, a, matrix.leading, b, lives, shape) for f in forms]


def solve(builder: "Builder", r: recipe.Library, outs: list[Handle]) -> None:
    a, b = r.operands
    (out,) = outs
    n, cols = b.shape[-2:]
    lead = tuple(b.shape[:-2])
    if n <= small.LOOPS and out.size:
        small.solve(builder, a, b, out)  # type: ignore[arg-type]
        return
    if not out.size:
        place(builder, out)
        finish(builder, out)
        return
    factors = columns(builder, a)  # type: ignore[arg-type]
    lives = in_place(builder, b, out)  # type: ignore[arg-type]
    out.state = lives
    swaps, failed = work(builder, "int32", n), info(builder)
    v = View(factors.buffer, factors.base, ())
    form = Matrices(v, True, n)

    def one(t: Expr) -> list[Stmt]:
        address = nth(factors, t, n * n)
        rhs = nth(lives, t, n * cols)
        getrf = call(
            builder,
            _symbol("getrf", a.dtype),
            [n, n, address, n, _first(swaps), Ref(failed, ZERO)],
            [factors.buffer, swaps.buffer, failed],
        )
        swap = _swap_rows(_first(swaps), 1, rhs, n, cols, False)
        return [getrf, swap, *_two_triangles(builder, address, form, rhs, lives, (n, cols), False)]

    each(builder, prod(lead), one)
    finish(builder, out)


# --- QR ---------------------------------------------------------------------------------------------------


def qr(builder: "Builder", r: recipe.Library, outs: list[Handle]) -> None:
    a: Handle = r.operands[0]  # type: ignore[assignment]
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
        tail: list[Any] = [_first(tau), Asked(dtype), Ref(failed, ZERO)]
        body: list[Stmt] = []
        if order is not None:
            jpvt = nth(order, t, cols)
            body.append(Fill(jpvt, scalar.size(cols), const(0, "int32")))
            if is_complex(dtype):
                tail.insert(2, _first(norms))
                written.append(norms.buffer)
            args = [*head, jpvt, *tail]
            body.append(call(builder, _symbol("geqp3", dtype), args, [*written, order.buffer]))
            body.append(loop(cols, lambda i: [_minus_one(order, scalar.add(jpvt.index, i))]))
        else:
            body.append(call(builder, _symbol("geqrf", dtype), [*head, *tail], written))
        if wants_q:
            body.append(Copy(columns_of_q, matrix, scalar.size(rows * min(wide, cols))))
            name = "ungqr" if is_complex(dtype) else "orgqr"
            args = [rows, wide, k, columns_of_q, rows, *tail[:2], Ref(failed, ZERO)]
            body.append(call(builder, _symbol(name, dtype), args, [vectors.buffer, failed]))
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


def _empty_qr(builder: "Builder", outs: list[Handle]) -> None:
    result(builder, outs[0], identity(outs[0].dtype), "qr")
    result(builder, outs[1], lambda *ix: const(0, outs[1].dtype), "qr")
    if len(outs) > 2:
        result(builder, outs[2], lambda *ix: scalar.cast(ix[-1], "int32"), "qr")


# --- SVD --------------------------------------------------------------------------------------------------


def svd(builder: "Builder", r: recipe.Library, outs: list[Handle]) -> None:
    a: Handle = r.operands[0]  # type: ignore[assignment]
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
        gesdd = call(
            builder, _symbol("gesdd", dtype), args, [*[w.buffer for w in written], failed]
        )
        fills = [(s, k)] + ([(left, rows * ku), (right, kv * cols)] if vectors else [])
        return [gesdd, fill_if(not_zero(failed, ZERO), *fills)]

    each(builder, prod(lead), one)
    finish(builder, outs[0])
    if vectors:
        result(builder, outs[1], transposed(u, (*lead, ku, rows)), "svd")
        result(builder, outs[2], transposed(v, (*lead, cols, kv)), "svd")


# --- eigenvalues ------------------------------------------------------------------------------------------


def eigh(builder: "Builder", r: recipe.Library, outs: list[Handle]) -> None:
    a: Handle = r.operands[0]  # type: ignore[assignment]
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
            call(builder, _symbol(name, dtype), args, written),
            fill_if(not_zero(failed, ZERO), (here, n * n), (found, n)),
        ]

    each(builder, prod(lead), one)
    finish(builder, values)
    result(builder, vectors, transposed(matrix, (*lead, n, n)), "eigh")


def _all_finite(stored: Stored, start: Expr, size: int) -> tuple[Stmt, Expr]:
    """A loop over elements, and its result: whether all are finite."""
    good, i = scalar.var("bool", "f"), scalar.var("int64", "i")
    x = scalar.load(stored.buffer, scalar.add(start, i), stored.buffer.dtype)
    parts = [scalar.apply(p, x) for p in ("real", "imag")] if is_complex(x.dtype) else [x]
    now = good
    for p in parts:
        now = scalar.logical_and(now, scalar.apply("is_finite", p))
    start_value = scalar.const(True, "bool")
    return Loop(i, scalar.size(size), [], [good], [start_value], [now]), good


def eig(builder: "Builder", r: recipe.Library, outs: list[Handle]) -> None:
    a: Handle = r.operands[0]  # type: ignore[assignment]
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
    sides = [
        work(builder, dtype, count * n * n if wanted else 1) for wanted in (left, right)
    ]
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
        geev = call(builder, _symbol("geev", dtype), args, [*[x.buffer for x in written], failed])
        fills = [(x, n) for x in found]
        fills += [(v, n * n) for v, wanted in zip(vectors, (left, right), strict=True) if wanted]
        nans = fill_if(scalar.const(True, "bool"), *fills).then
        return [check, If(good, [geev, fill_if(not_zero(failed, ZERO), *fills)], nans)]

    each(builder, count, one)
    _eig_results(builder, outs, w, [s for s, x in zip(sides, (left, right), strict=True) if x])


def _eig_results(
    builder: "Builder", outs: list[Handle], w: list[Stored], sides: list[Stored]
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

    def vector(s: Stored, out: Handle) -> Any:
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


def schur(builder: "Builder", r: recipe.Library, outs: list[Handle]) -> None:
    a: Handle = r.operands[0]  # type: ignore[assignment]
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
        gees = call(builder, _symbol("gees", dtype), args, [*[x.buffer for x in written], failed])
        fills = [(here, n * n)] + ([(vectors, n * n)] if wants_vectors else [])
        nans = fill_if(scalar.const(True, "bool"), *fills).then
        return [check, If(good, [gees, fill_if(not_zero(failed, ZERO), *fills)], nans)]

    each(builder, count, one)
    for out, s in zip(outs, (matrix, z), strict=False):
        result(builder, out, transposed(s, (*lead, n, n)), "schur")


# --- tridiagonal systems ------------------------------------------------------------------------------------


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
    "cholesky": cholesky,
    "lu_pivots_to_permutation": lu_pivots_to_permutation,
    "triangular_solve": triangular_solve,
    "lu": lu,
    "lu_solve": lu_solve,
    "solve": solve,
    "qr": qr,
    "svd": svd,
    "eigh": eigh,
    "eig": eig,
    "schur": schur,
    "tridiagonal_solve": tridiagonal_solve,
}
