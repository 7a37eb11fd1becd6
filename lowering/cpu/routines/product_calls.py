"""Products of matrices as calls: of fnx's own kernels, or of BLAS."""

from collections.abc import Sequence
from math import prod

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.cpu.kernels import gemm, routine_names
from fnx.lowering.cpu.llvm import ir_vectors
from fnx.lowering.cpu.loader import symbols
from fnx.lowering.cpu.routines.fortran import call
from fnx.lowering.cpu.routines.product import Product, copied
from fnx.lowering.generate.affine_views import Matrices, matrices, offset, view
from fnx.lowering.generate.generation import Generation
from fnx.lowering.generate.values import Inlined, Shape, Value
from fnx.lowering.ir.kernel import CallLibrary, Ref, Stmt
from fnx.lowering.routines.batched_matrices import (
    LETTER,
    const,
    finish,
    loop,
    place,
    result,
    work,
)


def call_product(builder: Generation, p: Product, out: Value) -> None:
    """A call of BLAS for each product."""
    a = _operand(builder, p.lhs, p.dtype, p.lb, p.lf, p.lc)
    b = _operand(builder, p.rhs, p.dtype, p.rb, p.rc, p.rf)
    count, made = prod(p.batch), None
    if out.dtype == p.dtype:
        made = place(builder, out)
    else:
        made = work(builder, p.dtype, out.size)

    def one(t: Expr) -> list[Stmt]:
        def address(x: _Operand) -> Ref:
            v = x.matrices.view
            return Ref(v.buffer, scalar.add(v.base, offset(t, p.batch, x.strides)))

        start = scalar.mul(t, scalar.size(p.m * p.n))
        c = Ref(made.buffer, scalar.add(made.base, start))
        return [_product(builder, p, a.matrices, address(a), b.matrices, address(b), c)]

    if count == 1:
        builder.block += one(scalar.size(0))
    else:
        builder.emit(loop(count, one))
    if out.dtype != p.dtype:
        shape = out.shape
        result(
            builder, out, lambda *ix: scalar.cast(made.read(shape, ix), out.dtype), "dot_general"
        )
    else:
        finish(builder, out)


class _Operand:
    def __init__(self, found: Matrices, strides: Sequence[int]):
        self.matrices, self.strides = found, strides


def _operand(
    builder: Generation, h: Value, dtype: str, batch: Shape, rows: Shape, cols: Shape
) -> _Operand:
    """An operand as matrices that BLAS can read: as it lies in memory, or as a copy."""
    if h.dtype == dtype:
        v = view(builder, h)
        if v is None and not isinstance(h.state, Inlined):
            v = view(builder, Value(h.shape, h.dtype, builder.store(h)))
        found = v and matrices(v, h.shape, rows, cols)
        if found:
            return _Operand(found, [found.view.strides[k] for k in batch])
    # What lies side by side where it is made lies side by side in the copy.
    turned = bool(cols) and h.ndim - 1 in rows
    order = (*batch, *cols, *rows) if turned else (*batch, *rows, *cols)
    shape, stored = copied(builder, h, order, dtype)
    nb, middle = len(batch), len(batch) + len(cols if turned else rows)
    v = view(builder, Value(shape, dtype, stored))
    assert v is not None
    groups = range(nb, middle), range(middle, len(shape))
    found = matrices(v, shape, *(groups[::-1] if turned else groups))
    assert found is not None
    return _Operand(found, v.strides[:nb])


def _product(
    builder: Generation, p: Product, a: Matrices, x: Ref, b: Matrices, y: Ref, c: Ref
) -> Stmt:
    """C = A B in rows is C' = B' A' in columns; a vector times a matrix is gemv's."""
    m, n, k, dtype = p.m, p.n, p.k, p.dtype
    one, zero = const(1, dtype), const(0, dtype)
    letter = f"blas:{LETTER[dtype]}"
    if n == 1 and ir_vectors.exists(dtype) and (b.transposed or b.leading == 1):
        return _own_vector(m, k, a, x, y, c)
    if m == 1 and n > 1 and ir_vectors.exists(dtype) and (not a.transposed or a.leading == 1):
        return _own_vector(n, k, Matrices(b.view, not b.transposed, b.leading), y, x, c)
    if n == 1:
        shape = ["N", m, k] if a.transposed else ["T", k, m]
        step = 1 if b.transposed else b.leading
        args = [*shape, one, x, a.leading, y, step, zero, c, 1]
        return call(builder, letter + "gemv", args, [c.buffer])
    if m == 1:
        shape = ["T", k, n] if b.transposed else ["N", n, k]
        step = a.leading if a.transposed else 1
        args = [*shape, one, y, b.leading, x, step, zero, c, 1]
        return call(builder, letter + "gemv", args, [c.buffer])
    if ir_vectors.exists(dtype):
        return _own_product(builder, p, a, x, b, y, c)
    ops = ["T" if b.transposed else "N", "T" if a.transposed else "N"]
    args = [*ops, n, m, k, one, y, b.leading, x, a.leading, zero, c, n]
    return call(builder, letter + "gemm", args, [c.buffer])


def _strides(found: Matrices) -> list[Expr]:
    both = (1, found.leading) if found.transposed else (found.leading, 1)
    return [scalar.size(n) for n in both]


def _own_vector(m: int, k: int, a: Matrices, x: Ref, y: Ref, c: Ref) -> Stmt:
    """c = A y: A is m x k and begins at x."""
    name = f"fnx:{routine_names.name('gemv', c.buffer.dtype)}"
    symbols.soon(name)
    return CallLibrary(name, [scalar.size(m), scalar.size(k), x, *_strides(a), y, c], [c.buffer])


def _own_product(
    builder: Generation, p: Product, a: Matrices, x: Ref, b: Matrices, y: Ref, c: Ref
) -> Stmt:
    sizes = [scalar.size(n) for n in (p.m, p.n, p.k)]
    work, writes = c, [c.buffer]  # no work memory
    if b.transposed or not gemm.reads_in_place(p.m, p.n, p.k, p.dtype):
        space = builder.new_buffer(p.dtype, gemm.work_elements(p.n, p.k, p.dtype))
        work, writes = Ref(space, scalar.size(0)), [c.buffer, space]
    args = [*sizes, x, *_strides(a), y, *_strides(b), c, scalar.size(p.n), work]
    name = f"fnx:{routine_names.name('gemm', p.dtype)}"
    symbols.soon(name)
    return CallLibrary(name, args, writes)
