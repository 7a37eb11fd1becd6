"""Array contraction: an array that lives within an iteration shrinks to a number or a row on the stack.

Source: Gao et al. 1992; scalar replacement, Allen & Kennedy 2001, ch. 8.
Input: the statements of a fused block, and a buffer whose accesses are affine in the loops inside.
Output: the statements with a variable, or with a row on the stack, instead of the buffer.
Legal when: nobody outside the block touches the buffer; each iteration writes what it reads.
Pays when: always: memory of the array's size is not touched at all.
Costs: `STACK_ROW` bytes a row on the stack, and `STACK_ROWS` of these, at most.
"""

from collections.abc import Callable

from fnx.core import policy, scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import affine, dependence, traversal
from fnx.lowering.ir.expressions import replacing
from fnx.lowering.ir.kernel import Buffer, Let, Loop, Stmt, Store
from fnx.lowering.ir.number_formats import itemsize
from fnx.lowering.transform.accesses import Access
from fnx.lowering.transform.statements import Statements


def kept_rows(
    builder: Statements,
    body: list[Stmt],
    buffer: Buffer,
    accesses: list[Access | None],
    index: list[Expr],
    rows: set[Buffer],
) -> list[Stmt]:
    """Statements with a buffer that lives within an iteration replaced by a variable or a row.

    They are those of a block that touch it; `rows` are the rows of the block, to which one is added.
    """
    low = min(a.low for a in accesses if a)
    high = max(a.high for a in accesses if a)
    loads = {e for e in traversal.nodes(body) if e.op == "load" and e.attr is buffer}
    writers = sum(isinstance(s, Store) and s.buffer is buffer for s in traversal.statements(body))
    at = [k for k, s in enumerate(body) if isinstance(s, Store) and s.buffer is buffer]
    if low == high and writers == len(at) == 1:
        before, store, after = body[: at[0]], body[at[0]], body[at[0] + 1 :]
        assert isinstance(store, Store)
        name = scalar.var(buffer.dtype, "r")
        renamed = replacing(dict.fromkeys(loads, name))
        return [
            *before,
            Let([name], [store.value]),
            *(traversal.rewritten(s, renamed) for s in after),
        ]
    size = itemsize(buffer.dtype)
    if (high - low + 1) * size > policy.STACK_ROW or len(rows) >= policy.STACK_ROWS:
        return body
    row = builder.new_stack(buffer.dtype, policy.STACK_ROW // size)
    rows.add(row)
    inner = [s.index for s in traversal.statements(body) if isinstance(s, Loop)]
    axes = {id(v): k for k, v in enumerate([*inner, *index])}

    def within(position: Expr) -> Expr:
        base, strides = affine.linear(position, axes)  # type: ignore[misc]
        found = scalar.size(dependence.terms(base)[1] - low)  # the terms are the same everywhere
        for k, v in reversed(list(enumerate(inner))):
            found = scalar.add(scalar.mul(v, scalar.size(strides.get(k, 0))), found)
        return found

    return [moved(s, buffer, row, within) for s in body]


def moved(s: Stmt, old: Buffer, new: Buffer, within: Callable[[Expr], Expr]) -> Stmt:
    """A statement that uses another buffer, at other positions."""
    loads = [e for e in traversal.nodes([s]) if e.op == "load" and e.attr is old]
    names = {e: scalar.load(new, within(e.args[0]), e.dtype) for e in loads}
    return _stored(traversal.rewritten(s, replacing(names)), old, new, within)


def _stored(s: Stmt, old: Buffer, new: Buffer, within: Callable[[Expr], Expr]) -> Stmt:
    if isinstance(s, Store) and s.buffer is old:
        return Store(new, within(s.index), s.value)
    if isinstance(s, Loop):
        s.body = [_stored(x, old, new, within) for x in s.body]
    return s
