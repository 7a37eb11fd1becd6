"""Loop fusion within an iteration of a nest: loops over the same row become one.

Forces between bodies are three loops over a row of the others: squares of distances, what these are taken
to, and sums of products with it. Where many threads share a row, each number goes through memory that they
share, and they wait for each other between the loops; in one loop it stays in a register.

Source: Allen & Kennedy 2001, ch. 6 (fusion), ch. 8 (scalar replacement, unroll-and-jam).
Input: loops of one length that follow one another in a nest.
Output: one loop; a short loop around reductions that read the row is written out, and they join it.
Legal when: the loops write nothing but rows of their iteration, at their index, and the later one reads
these there only; it needs no total of the one before.
Pays when: a row is handed on.
Costs: `ROW_RESULTS` accumulators at once, at most.
"""

from collections.abc import Iterator

from fnx.core import policy, scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import traversal
from fnx.lowering.ir.expressions import replacing
from fnx.lowering.ir.kernel import Buffer, Let, Loop, LoopKind, Nest, Stmt, Store
from fnx.lowering.transform.statements import Statements


def fuse(builder: Statements) -> None:
    """Fuse loops over rows in all nests of the program that was built."""
    for stmt in traversal.statements(builder.block):
        if isinstance(stmt, Nest) and any(b.space == "private" for b in traversal.buffers([stmt])):
            stmt.body = [_within(s) for s in stmt.body]
            _drop_unread(stmt)


def _within(s: Stmt) -> Stmt:
    if isinstance(s, Loop):
        s.body = _fused([_within(x) for x in s.body])
    return s


def _fused(body: list[Stmt]) -> list[Stmt]:
    found: list[Stmt] = []
    for s in body:
        before = found[-1] if found else None
        if isinstance(s, Loop) and isinstance(before, Loop):
            loop, *rest = _side_by_side(s, before) or [s]
            joined = _joined(before, loop)
            if joined is not None:
                found[-1:] = [joined, *rest]
                continue
        found.append(s)
    return found


# --- two loops -----------------------------------------------------------------------------------


def _joined(a: Loop, b: Stmt) -> Loop | None:
    """Two loops as one; None where that is not right, or hands nothing on."""
    if not isinstance(b, Loop) or not _is_plain(a) or not _is_plain(b):
        return None
    if a.extent.attr != b.extent.attr or _mentions(b, a.carries):
        return None
    if a.carries and b.carries and a.reassociate != b.reassociate:
        return None
    written = traversal.all_writes(a)
    handed = [x for x in written if x in traversal.buffers([b])]
    apart = not any(x in traversal.buffers([a]) for x in traversal.all_writes(b))
    if not handed or not apart or not all(_is_own(a, x) for x in written):
        return None
    if not all(x.space == "private" for x in traversal.all_writes(b)):
        return None
    b = _renamed(b, {b.index: a.index})
    if not all(e.args[0] is a.index for e in _loads(b) if e.attr in handed):
        return None
    body, known = _with_names(a.body, handed)
    b = _renamed(b, {e: known[e.attr] for e in _loads(b) if e.attr in handed})
    kind = LoopKind.of(vectorized=a.kind.vectorized and b.kind.vectorized)
    return Loop(
        a.index, a.extent, [*body, *b.body], [*a.carries, *b.carries], [*a.init, *b.init],
        [*a.yields, *b.yields], kind, b.reassociate if b.carries else a.reassociate,
    )  # fmt: skip


def _is_plain(loop: Loop) -> bool:
    known = all(type(s) in traversal.REWRITTEN for s in traversal.statements(loop.body))
    special = loop.reverse or loop.polled or loop.shown or loop.runs
    return known and loop.extent.op == "size" and loop.extent.attr > 0 and not special


def _is_own(loop: Loop, buffer: Buffer) -> bool:
    """Whether a loop writes a row of its iteration, once, at its index, and does not read it."""
    stores = [
        s for s in traversal.statements(loop.body) if isinstance(s, Store) and s.buffer is buffer
    ]
    once = len(stores) == 1 and stores[0] in loop.body and stores[0].index is loop.index
    return once and buffer.space == "private" and all(e.attr is not buffer for e in _loads(loop))


def _loads(s: Stmt) -> list[Expr]:
    return [e for e in traversal.nodes([s]) if e.op == "load"]


def _mentions(s: Stmt, variables: list[Expr]) -> bool:
    return bool(variables) and any(e in variables for e in traversal.nodes([s]))


def _renamed(loop: Loop, names: dict[Expr, Expr]) -> Loop:
    found = traversal.rewritten(loop, replacing(names))
    assert isinstance(found, Loop)
    return found


def _with_names(body: list[Stmt], buffers: list[Buffer]) -> tuple[list[Stmt], dict[Buffer, Expr]]:
    """Statements in which what is stored has a name, and these names."""
    found: list[Stmt] = []
    names: dict[Buffer, Expr] = {}
    for s in body:
        if isinstance(s, Store) and s.buffer in buffers:
            name = names[s.buffer] = scalar.var(s.buffer.dtype, "r")
            found.append(Let([name], [s.value]))
            s = Store(s.buffer, s.index, name)
        found.append(s)
    return found, names


def _drop_unread(nest: Nest) -> None:
    """Leave out stores to rows that nobody reads any more."""
    read = {e.attr for e in traversal.nodes([nest]) if e.op == "load"}
    for body in _blocks(nest):
        body[:] = [
            s
            for s in body
            if not (isinstance(s, Store) and s.buffer.space == "private" and s.buffer not in read)
        ]


def _blocks(s: Stmt) -> Iterator[list[Stmt]]:
    for body in traversal.blocks(s):
        yield body
        for x in body:
            yield from _blocks(x)


# --- reductions side by side ---------------------------------------------------------------------


def _side_by_side(s: Loop, before: Loop) -> list[Stmt] | None:
    """A short loop around a reduction of a row, written out: one loop with all results, then the rest."""
    if not _is_plain(s) or s.carries or s.extent.attr > policy.ROW_RESULTS or not s.body:
        return None
    inner, *rest = s.body
    if not isinstance(inner, Loop) or not inner.carries or inner.extent.attr != before.extent.attr:
        return None
    if traversal.all_writes(inner) or not all(isinstance(x, Store) for x in rest):
        return None
    stored = {x for r in rest for x in traversal.all_writes(r)}
    if any(x in stored for x in traversal.buffers([inner])):
        return None
    if any(e.attr in stored for r in rest for e in _loads(r)):
        return None
    copies = [_copied(s.body, {s.index: scalar.size(k)}) for k in range(s.extent.attr)]
    loops = [c[0] for c in copies]
    first = loops[0]
    for x in loops[1:]:
        x = _renamed(x, {x.index: first.index})
        first = Loop(
            first.index, first.extent, [*first.body, *x.body], [*first.carries, *x.carries],
            [*first.init, *x.init], [*first.yields, *x.yields], reassociate=first.reassociate,
        )  # fmt: skip
    return [first, *(x for c in copies for x in c[1:])]


def _copied(body: list[Stmt], names: dict[Expr, Expr]) -> list:
    """Statements with variables of their own."""
    for s in traversal.statements(body):
        for v in traversal.defined(s):
            names[v] = scalar.var(v.dtype, "a")
        if isinstance(s, Loop):
            names[s.index] = scalar.counter("i", traversal.extent(s.extent))
    found = [traversal.rewritten(s, replacing(names)) for s in body]
    for s in traversal.statements(found):
        if isinstance(s, Loop):
            s.index, s.carries = names[s.index], [names[v] for v in s.carries]
        elif isinstance(s, Let):
            s.variables = [names[v] for v in s.variables]
    return found


__all__ = ["fuse"]
