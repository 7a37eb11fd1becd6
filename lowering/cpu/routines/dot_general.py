"""dot_general: small ones as loops, others by routines on whatever views of memory they can read.

Routines are fnx's own for real numbers (gemm.py, gemv.py), BLAS's for complex ones.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core import policy, recipe, scalar
from fnx.core.scalar import Expr
from fnx.lowering.cpu.llvm import ir_vectors
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.cpu.routines.product import Product, copied
from fnx.lowering.cpu.routines.product_calls import call_product
from fnx.lowering.generate.affine_views import view
from fnx.lowering.generate.generation import Generation
from fnx.lowering.generate.values import (
    Inlined,
    Materialized,
    Scalars,
    Shape,
    Value,
    static_indices,
)
from fnx.lowering.ir.kernel import Loop, LoopKind, Stmt, Store
from fnx.lowering.routines.batched_matrices import (
    LETTER,
    const,
    each_item,
    finish,
    is_complex,
    place,
    result,
    work,
)


def dot_general(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    dims, dtype = r.params
    (out,) = outs
    lhs, rhs = r.operands
    p = Product(lhs, rhs, dims, dtype)
    if not out.size:
        place(builder, out)
        finish(builder, out)
    elif not p.k:
        result(builder, out, lambda *ix: const(0, out.dtype), "dot_general")
    elif dtype not in LETTER or _is_inlined(p):
        _inline(builder, p, out)
    else:
        call_product(builder, p, out)


def _is_inlined(p: Product) -> bool:
    most = thresholds.INLINED
    if min(p.m, p.n) > 1 and (p.k <= thresholds.PRODUCT_TERMS or p.n >= thresholds.PRODUCT_ROW):
        most = _inlined_of_rows(p) if ir_vectors.exists(p.dtype) else thresholds.INLINED_ROWS
    elif (
        1 in (p.m, p.n)
        and p.k > thresholds.PRODUCT_TERMS
        and not p.batch
        and ir_vectors.exists(p.dtype)
    ):
        most = thresholds.INLINED_VECTOR
    return p.m * p.n * p.k <= most


def _inlined_of_rows(p: Product) -> int:
    lanes, masks = ir_vectors.lanes_of(p.dtype), ir_vectors.has_masks()
    short = (
        thresholds.PRODUCT_ROW <= p.n <= policy.SMALL or p.k > thresholds.PRODUCT_TERMS
    )  # others overlap their last two vectors
    if short and ir_vectors.is_ragged(p.n, p.dtype):
        return thresholds.INLINED_RAGGED
    if (
        p.k > thresholds.PRODUCT_TERMS
    ):  # sums wait in memory; what is stored under a mask is late to be read
        return (
            thresholds.INLINED_VECTOR
            if masks and p.n not in (thresholds.PRODUCT_ROW, lanes)
            else thresholds.INLINED
        )
    several = masks and p.n > lanes and p.k >= thresholds.PRODUCT_ROW and not ir_vectors.halves()
    return thresholds.INLINED_SEVERAL[p.dtype] if several else thresholds.INLINED_ROWS


# --- loops -------------------------------------------------------------------------------------


def _sum(a: Expr | None, x: Expr, y: Expr, fused: bool = True) -> Expr:
    """a + x y."""
    if x.dtype == "bool":
        both = scalar.logical_and(x, y)
        return both if a is None else scalar.node("or", "bool", (a, both))
    if a is None:
        return scalar.mul(x, y)
    if is_complex(x.dtype) or "float" not in x.dtype or not fused:
        return scalar.add(a, scalar.mul(x, y))
    return scalar.apply("fma", x, y, a)


def _inline(builder: Generation, p: Product, out: Value) -> None:
    p.lhs, p.rhs = _readable(builder, p.lhs, out), _readable(builder, p.rhs, out)
    if builder.target.is_small(out.shape) and out.size * p.k <= policy.UNROLLED_WORK:
        _unrolled(builder, p, out)
        return
    _rows_side_by_side(builder, p)
    made = place(builder, out)
    body = _short
    if p.k > thresholds.PRODUCT_TERMS:
        body = _sums_of_columns if _is_narrow(builder, p) else _long
    acc = None
    if body is _long and p.dtype != out.dtype:
        acc = work(builder, p.dtype, p.n)

    def one(index: tuple[Expr, ...]) -> list[Stmt]:
        t, i = index[: len(p.batch)], index[len(p.batch) :]

        def destination(j: Sequence[Expr]) -> Expr:
            return made.position(out.shape, (*t, *i, *j))

        return body(p, t, i, destination, made, acc)

    work_ = out.size * p.k
    parallel = acc is None and work_ >= builder.machine.parallel_work
    each_item(builder, (*p.batch, *p.left), one, "dot_general", parallel)
    finish(builder, out)


def _readable(builder: Generation, h: Value, out: Value) -> Value:
    """An operand that is cheap to read several times, by indices that are known at run time only."""
    state = h.state
    if isinstance(state, Materialized) or isinstance(state, Inlined) and state.cost <= 1:
        return h
    if isinstance(state, Scalars) and builder.target.is_small(out.shape):
        return h
    return Value(h.shape, h.dtype, builder.store(h))


def _rows_side_by_side(builder: Generation, p: Product) -> None:
    """Let the right operand be a copy whose rows are vectors, if its own are not and are read often."""
    if (
        p.m < thresholds.PRODUCT_REUSED
        or p.n < thresholds.PRODUCT_ROW
        or not ir_vectors.exists(p.dtype)
    ):
        return
    found = view(builder, p.rhs) if p.rhs.dtype == p.dtype else None
    if found is None or found.strides[p.rf[-1]] == 1:
        return
    shape, stored = copied(builder, p.rhs, (*p.rb, *p.rc, *p.rf), p.dtype)
    p.rhs = Value(shape, p.dtype, stored)
    axes = iter(range(len(shape)))
    p.rb, p.rc, p.rf = (tuple([next(axes) for _ in old]) for old in (p.rb, p.rc, p.rf))


def _element(p: Product, dtype: str) -> Callable[..., Expr]:
    """An element of the result by index, as one expression."""
    nb, nl = len(p.batch), len(p.left)

    def element(*ix: Expr) -> Expr:
        total = None
        for k in static_indices(p.inner):
            total = _sum(total, *p.term(ix[:nb], ix[nb : nb + nl], k, ix[nb + nl :]))
        assert total is not None
        return scalar.cast(total, dtype)

    return element


def elements(r: recipe.Library, outs: list[Value]) -> list[Callable[..., Expr]] | None:
    """The result by index, if its elements are short sums."""
    dims, dtype = r.params
    lhs, rhs = r.operands
    p = Product(lhs, rhs, dims, dtype)
    if not 0 < p.k <= thresholds.PRODUCT_TERMS or dtype not in LETTER:
        return None
    return [_element(p, outs[0].dtype)]


def as_sum(r: recipe.Library) -> recipe.Fold | None:
    """The same as a reduction of products, if its numbers are real."""
    dims, dtype = r.params
    lhs, rhs = r.operands
    p = Product(lhs, rhs, dims, dtype)
    if not ir_vectors.exists(dtype) or not p.k:
        return None
    b, m, n = len(p.batch), len(p.left), len(p.right)

    def term(*ix: Expr) -> tuple[Expr, ...]:
        x, y = p.term(ix[:b], ix[b : b + m], ix[b + m + n :], ix[b + m : b + m + n])
        return (scalar.mul(x, y),)

    shape = (*p.batch, *p.left, *p.right, *p.inner)
    axes = tuple(range(b + m + n, len(shape)))
    add = lambda acc, values: (scalar.add(acc[0], values[0]),)
    return recipe.Fold(shape, axes, (const(0, dtype),), term, add, reassociate=True)


def computes_matrix(r: recipe.Library) -> bool:
    """Whether a vector is multiplied with a matrix that is computed for this product alone: a sum over
    elements that are computed where they are read needs no memory for the matrix.
    """
    dims, dtype = r.params
    lhs, rhs = r.operands
    p = Product(lhs, rhs, dims, dtype)
    if 1 not in (p.m, p.n) or p.k <= thresholds.PRODUCT_TERMS or p.m * p.n == 1:
        return False
    matrix = rhs if p.m == 1 else lhs
    state = matrix.state
    alone = len(matrix.consumers) == 1 and matrix.destination is None
    return isinstance(state, Inlined) and state.cost > 0 and alone


def _unrolled(builder: Generation, p: Product, out: Value) -> None:
    element = _element(p, out.dtype)
    make = lambda: [element(*ix) for ix in static_indices(out.shape)]
    builder.settle_registers(out, builder.evaluated(make))


def _columns(right: Shape, make: Any) -> list[Stmt]:
    """Loops over the columns of a row of the result."""
    j = tuple(scalar.var("int64", "j") if n != 1 else scalar.size(0) for n in right)
    body, vector = make(j), True
    for v, n in reversed(list(zip(j, right, strict=True))):
        if n != 1:
            # Short loops would be unrolled before the vectoriser comes, which then takes the rows.
            body = [
                Loop(v, scalar.size(n), body, kind=LoopKind.of(vectorized=vector), rolled=vector)
            ]
            vector = False
    return body


def _short(
    p: Product, t: Any, i: Any, destination: Any, made: Materialized, acc: Any
) -> list[Stmt]:
    """A row of the result, each element one expression."""
    dtype = made.buffer.dtype

    def element(j: tuple[Expr, ...]) -> list[Stmt]:
        total = None
        for k in static_indices(p.inner):
            total = _sum(total, *p.term(t, i, k, j))
        assert total is not None
        return [Store(made.buffer, destination(j), scalar.cast(total, dtype))]

    return _columns(p.right, element)


def _is_narrow(builder: Generation, p: Product) -> bool:
    """Whether each column of the result is best summed up by itself: few, and not side by side."""
    if p.n > thresholds.PRODUCT_COLUMNS or p.n == 1:
        return p.n == 1
    found = view(builder, p.rhs) if p.n % policy.FEW_LANES == 0 else None
    return found is None or found.strides[p.rf[-1]] != 1


def _sums_of_columns(
    p: Product, t: Any, i: Any, destination: Any, made: Materialized, acc: Any
) -> list[Stmt]:
    """A row of the result, its elements summed up side by side."""
    k, loops = _inner(p)
    columns = static_indices(p.right)
    totals = [scalar.var(p.dtype, "a") for _ in columns]
    # Products and sums apart: the vectoriser does not split a chain of fused ones.
    terms = [p.term(t, i, k, j) for j in columns]
    step = lambda accs: [_sum(a, *xy, fused=False) for a, xy in zip(accs, terms, strict=True)]
    body = _sums(loops, totals, [const(0, p.dtype)] * p.n, step)
    for j, a in zip(columns, totals, strict=True):
        body.append(Store(made.buffer, destination(j), scalar.cast(a, made.buffer.dtype)))
    return body


def _inner(p: Product) -> tuple[tuple[Expr, ...], list[tuple[Expr, int]]]:
    """The index of a term of a sum, and the loops over terms."""
    k = tuple(scalar.var("int64", "k") if n != 1 else scalar.size(0) for n in p.inner)
    return k, [(v, n) for v, n in zip(k, p.inner, strict=True) if n != 1]


def _long(p: Product, t: Any, i: Any, destination: Any, made: Materialized, acc: Any) -> list[Stmt]:
    """A row of the result, to which multiples of rows are added."""
    dtype, zero = made.buffer.dtype, const(0, p.dtype)
    k, loops = _inner(p)

    def where(j: tuple[Expr, ...]) -> tuple[Any, Expr]:
        if acc is None:
            return made.buffer, destination(j)
        return acc.buffer, scalar.add(acc.base, scalar.linear_index(j, p.right))

    def clear(j: tuple[Expr, ...]) -> list[Stmt]:
        return [Store(*where(j), zero)]

    def add(j: tuple[Expr, ...]) -> list[Stmt]:
        buffer, position = where(j)
        before = scalar.load(buffer, position, p.dtype)
        return [Store(buffer, position, _sum(before, *p.term(t, i, k, j)))]

    body = _columns(p.right, add)
    for v, n in reversed(loops):
        body = [Loop(v, scalar.size(n), body)]
    body = [*_columns(p.right, clear), *body]
    if acc is not None:

        def copy(j: tuple[Expr, ...]) -> list[Stmt]:
            value = scalar.load(*where(j), p.dtype)
            return [Store(made.buffer, destination(j), scalar.cast(value, dtype))]

        body += _columns(p.right, copy)
    return body


def _sums(loops: list, totals: list[Expr], start: list[Expr], step: Any) -> list[Stmt]:
    """Nested loops that hand accumulators through; `totals` are the results."""
    (v, n), *rest = loops
    dtype = totals[0].dtype
    exact = "float" not in dtype and not is_complex(dtype)
    if not rest:
        return [Loop(v, scalar.size(n), [], totals, start, step(totals), reassociate=not exact)]
    inner = [scalar.var(dtype, "a") for _ in totals]
    body = _sums(rest, inner, totals, step)
    return [Loop(v, scalar.size(n), body, totals, start, inner)]


# --- routines --------------------------------------------------------------------------------------


ROUTINES = {"dot_general": dot_general}
