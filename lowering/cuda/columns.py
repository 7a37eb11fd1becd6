"""Loops over members of an ensemble become one thread a member, with all steps of a loop inside.

What is stepped for all members at a time streams through memory once a step, and is a launch each. Where
no member reads what is another's, each thread makes all steps of its own. What a member alone reads and
writes at one place stays in a register meanwhile.

Source: loop interchange (Allen & Kennedy 2001, ch. 5), scalar replacement (ch. 8).
Legal when: no dependence crosses members (`transform/independent_axes.py`).
Pays when: there are enough members to be threads.
"""

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import traversal
from fnx.lowering.ir.expressions import depends_on, replacing
from fnx.lowering.ir.kernel import Buffer, Eval, Let, Loop, Stmt, Store
from fnx.lowering.transform import strip_mining
from fnx.lowering.transform.independent_axes import IndependentColumns
from fnx.lowering.transform.statements import Statements


def of_threads(builder: Statements) -> None:
    """Turn the loops of a program whose steps are of independent members."""
    strip_mining.rebuild(builder, builder.block, _by_members)


def _by_members(
    builder: Statements, columns: IndependentColumns, stmts: list[Stmt], private: list[Buffer]
) -> list[Stmt]:
    """Statements of all members, each member's by itself."""
    nests = strip_mining.in_parts(builder, columns, stmts, _short(builder, columns, private), 1)
    for nest in nests:
        nest.body = _without_short_loops(nest.body)
        _in_registers(nest.body)
    return list(nests)


def _short(builder: Statements, columns: IndependentColumns, private: list[Buffer]) -> list[Buffer]:
    """Arrays of which a member has one element: they are registers. Longer ones stay in memory."""
    return [b for b in private if b.size == columns.count]


def _without_short_loops(body: list[Stmt]) -> list[Stmt]:
    """The same with the bodies of loops that run once in their place."""
    found: list[Stmt] = []
    for s in body:
        if not isinstance(s, Loop):
            found.append(s)
        elif s.extent.op in ("size", "const") and s.extent.attr == 1 and not s.carries:
            anew = replacing({s.index: scalar.size(0)})
            found += _without_short_loops([traversal.rewritten(x, anew) for x in s.body])
        else:
            s.body = _without_short_loops(s.body)
            found.append(s)
    return found


def _in_registers(body: list[Stmt]) -> None:
    """Carry what a loop reads and writes at one place alone, from the innermost loop outwards."""
    for s in [x for x in body if isinstance(x, Loop)]:
        _in_registers(s.body)
        after = body.index(s) + 1
        body[after:after] = [_carried(s, buffer, place) for buffer, place in _places(s)]


def _places(loop: Loop) -> list[tuple[Buffer, Expr]]:
    """The buffers that a loop stores to at one place, which it does not choose."""
    if loop.extent.op not in ("size", "const") or not all(
        type(s) in (Store, Let, Eval) for s in loop.body
    ):
        return []
    found: dict[Buffer, set[Expr]] = {}
    for s in loop.body:
        if isinstance(s, Store):
            found.setdefault(s.buffer, set()).add(s.index)
    for e in [*traversal.nodes(loop.body), *traversal.nodes([Eval(list(loop.yields))])]:
        if e.op == "load" and e.attr in found:
            found[e.attr].add(e.args[0])
    own = [loop.index, *loop.carries, *(v for s in loop.body for v in traversal.defined(s))]
    return [(b, p) for b, (p, *more) in found.items() if not more and not depends_on([p], own)]


def _carried(loop: Loop, buffer: Buffer, place: Expr) -> Store:
    """Make a carry of an element; the statement that stores it after the loop."""
    carry = scalar.var(buffer.dtype, "s")
    load = scalar.load(buffer, place, buffer.dtype)
    now, body = carry, []
    for s in loop.body:
        new = traversal.rewritten(s, replacing({load: now}))
        if isinstance(new, Store) and new.buffer is buffer:
            now = scalar.var(buffer.dtype, "s")
            new = Let([now], [new.value])
        body.append(new)
    loop.yields = [replacing({load: now})(e) for e in loop.yields] + [now]
    loop.carries, loop.init, loop.body = [*loop.carries, carry], [*loop.init, load], body
    return Store(buffer, place, carry)
