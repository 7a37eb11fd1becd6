"""Pairs of matrix-vector products: A x and u A in one pass over A.

What bounds such products is how fast a large A comes from memory. Solvers (BiCG), normal equations
(u = A x) and gradients read it twice, once by rows and once by columns.

Source: BiCGK and AtAx of Siek, Karlin and Jessup, "Build to order linear algebra kernels", 2008.
Input: two calls of `gemv` in a block, of which one reads the rows of a matrix, the other its columns.
Output: one call of `gemv_pair` in place of the first, or of the second.
Legal when: A x does not need u A, and nothing in between makes what the call that moves reads, nor touches
what it writes.
Pays when: the matrix is large, and a few of its rows are small (`gemv_pair.pays`).
Costs: the sums of u A are added up in another order.
"""

from collections.abc import Iterable, Sequence

from fnx.core import scalar
from fnx.lowering.cpu.kernels import routine_names
from fnx.lowering.ir import traversal
from fnx.lowering.ir.expressions import depends_on
from fnx.lowering.ir.kernel import Buffer, CallLibrary, Ref, Stmt
from fnx.lowering.ir.number_formats import itemsize
from fnx.lowering.transform.statements import Statements

# Names of `kernels/gemv.py`, which most programs do not need.
_SYMBOLS = {f"fnx:fnx_gemv_{dtype}": dtype for dtype in ("float32", "float64")}


class _Product:
    """A call of gemv: an m x k matrix with contiguous rows, from its right (A x) or its left (u A)."""

    def __init__(self, call: CallLibrary):
        m, k, self.matrix, row, column, self.given, self.made = call.args
        self.right = column.attr == 1
        self.m, self.k, self.apart = (m, k, row) if self.right else (k, m, column)

    def fits(self, other: "_Product") -> bool:
        """Whether the two are of one matrix, from either side."""
        a, b = self.matrix, other.matrix
        return (
            self.right != other.right
            and (self.m, self.k, self.apart) == (other.m, other.k, other.apart)
            and a.buffer is b.buffer
            and a.index is b.index
        )


def in_one_pass(builder: Statements) -> None:
    """Make one call of each such pair."""
    _paired(builder, builder.block)


def _paired(builder: Statements, body: list[Stmt]) -> None:
    for stmt in body:
        for block in traversal.blocks(stmt):
            _paired(builder, block)
    calls = [s for s in body if isinstance(s, CallLibrary) and s.symbol in _SYMBOLS]
    found = [(s, p) for s, p in ((s, _Product(s)) for s in calls) if _is_large(s, p)]
    while found:
        first, p = found.pop(0)
        for second, q in found:
            place = _place(body, first, p, second, q) if p.fits(q) else None
            if place is not None:
                new = _call(builder, *((p, q) if p.right else (q, p)))
                body[:] = [
                    new if s is place else s for s in body if s is place or s not in (first, second)
                ]
                found.remove((second, q))
                break


def _is_large(call: CallLibrary, p: _Product) -> bool:
    from fnx.lowering.cpu.kernels import gemv_pair

    sizes = (p.m, p.k)
    known = all(e.op == "size" and e.attr > 1 for e in sizes)
    return known and gemv_pair.pays(p.m.attr, p.k.attr, itemsize(_SYMBOLS[call.symbol]))


def _place(
    body: Sequence[Stmt], first: CallLibrary, p: _Product, second: CallLibrary, q: _Product
) -> CallLibrary | None:
    """Where the two can be one call: where the first stands, where the second does, or nowhere."""
    right, left = (p, q) if p.right else (q, p)
    chained = left.given.buffer is right.made.buffer and left.given.index is right.made.index
    written = {p.made.buffer, q.made.buffer}
    read = {right.given.buffer, right.matrix.buffer}
    read |= set() if chained else {left.given.buffer}
    if len(written) < 2 or written & read or chained and q.right:
        return None
    between = body[body.index(first) + 1 : body.index(second)]
    if _moves_across(second, q, between):
        return first
    return None if chained or not _moves_across(first, p, between) else second


def _moves_across(call: CallLibrary, p: _Product, between: Iterable[Stmt]) -> bool:
    reads: set[Buffer] = {p.given.buffer, p.matrix.buffer}
    return not any(
        reads & set(traversal.all_writes(s))
        or p.made.buffer in traversal.buffers([s])
        or depends_on(traversal.expressions(call), traversal.defined(s))
        for s in between
    )


def _call(builder: Statements, right: _Product, left: _Product) -> CallLibrary:
    from fnx.lowering.cpu.kernels import gemv_pair

    dtype, m = right.made.buffer.dtype, right.m.attr
    work = builder.new_buffer(dtype, gemv_pair.work_elements(m, right.k.attr))
    run = scalar.size(gemv_pair.rows_of_run(m))
    args = [right.m, right.k, right.matrix, right.apart, right.given, right.made]
    args += [left.given, left.made, Ref(work, scalar.size(0)), run]
    written = [right.made.buffer, left.made.buffer, work]
    return CallLibrary(f"fnx:{routine_names.name('gemv_pair', dtype)}", args, written)
