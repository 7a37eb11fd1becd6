"""What an iteration keeps in arrays of its own, where all threads of a block share the iteration.

The rows of a softmax are a maximum, exponentials with their sum, and quotients: three loops, the second of
which leaves numbers for the third. One thread keeps them on its stack; the threads of a block in shared
memory, or, where rows are long, in the workspace.

Source: privatization of arrays (Allen & Kennedy 2001, ch. 5), by the memory that a block has.
"""

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import dependence, traversal
from fnx.lowering.ir.expressions import ordered, replacing
from fnx.lowering.ir.kernel import Buffer, Loop, Stmt, Store
from fnx.lowering.ir.number_formats import itemsize

from .plan import Scheduling


def private(body: list[Stmt]) -> list[Buffer]:
    """The arrays that each iteration has to itself."""
    return [b for b in traversal.buffers(body) if b.space == "private"]


def touched(buffer: Buffer, body: list[Stmt]) -> int:
    """How many elements of an array a body touches: arrays are made for rows of any length."""
    stmts = list(traversal.statements(body))
    if any(r.buffer is buffer for s in stmts for r in traversal.references(s)):
        return buffer.size
    places = [e.args[0] for e in traversal.nodes(body) if e.op == "load" and e.attr is buffer]
    places += [s.index for s in stmts if isinstance(s, Store) and s.buffer is buffer]
    counted = [s for s in stmts if isinstance(s, Loop) and s.extent.op in ("size", "const")]
    ranges = {s.index: (0, max(int(s.extent.attr) - 1, 0)) for s in counted}
    return min(buffer.size, max((_highest(e, ranges) + 1 for e in places), default=1))


def own_bytes(body: list[Stmt]) -> int:
    """Bytes of the arrays that each iteration has to itself."""
    return sum(touched(b, body) * itemsize(b.dtype) for b in private(body))


def _highest(place: Expr, ranges: dict[Expr, tuple[int, int]]) -> int:
    """The highest number that a position is."""
    parts, number = dependence.terms(place)
    ends = [(factor, ranges.get(leaf) or scalar.bounds(leaf)) for leaf, factor in parts]
    return number + sum(max(factor * low, factor * high) for factor, (low, high) in ends)


def of_blocks(
    scheduler: Scheduling, body: list[Stmt], row: Expr, count: int, group: Expr | None, groups: int
) -> list[Stmt]:
    """The body of an iteration, which is number `row` of `count`, on memory of its block, or warp."""
    left, places = scheduler.limits.shared, {}
    for b in private(body):
        size = touched(b, body)
        left -= size * groups * itemsize(b.dtype)
        if left >= 0:
            start = scalar.size(0) if group is None else scalar.mul(group, scalar.size(size))
            places[b] = Buffer(b.name, b.dtype, size * groups, "shared"), start
        else:
            start = scalar.mul(row, scalar.size(size))
            places[b] = scheduler.temporary(b.dtype, count * size), start
    return [_moved(s, places) for s in body] if places else body


def in_memory(
    scheduler: Scheduling, groups: list[list[Stmt]], row: Expr, count: int
) -> list[list[Stmt]]:
    """Parts of the body of an iteration that follow one another, with what they hand on in memory."""
    arrays = [set(private(g)) for g in groups]
    both = [b for k, found in enumerate(arrays) for b in found if any(b in x for x in arrays[:k])]
    whole = [s for g in groups for s in g]
    places: dict[Buffer, tuple[Buffer, Expr]] = {}
    for b in dict.fromkeys(both):
        size = touched(b, whole)
        places[b] = scheduler.temporary(b.dtype, count * size), scalar.mul(row, scalar.size(size))
    found, known = [], {}
    for k, g in enumerate(groups):
        new = [_moved(traversal.rewritten(s, replacing(known)), places) for s in g]
        later = [x for other in groups[k + 1 :] for x in other]
        for v in [v for s in g for v in traversal.defined(s)]:
            if _mentions(later, v):
                kept = scheduler.temporary(v.dtype, count)
                new.append(Store(kept, row, v))
                known[v] = scalar.load(kept, row, v.dtype)
        found.append(new)
    return found


def _mentions(body: list[Stmt], variable: Expr) -> bool:
    return any(e is variable for e in traversal.nodes(body))


def _moved(s: Stmt, places: dict[Buffer, tuple[Buffer, Expr]]) -> Stmt:
    """A statement with its arrays in other places."""
    anew: dict[Expr, Expr] = {}
    for e in ordered(traversal.nodes([s])):
        if e.op == "load" and e.attr in places:
            buffer, start = places[e.attr]
            at = scalar.add(start, replacing(anew)(e.args[0]))
            anew[e] = scalar.load(buffer, at, e.dtype)
    return _stored(traversal.rewritten(s, replacing(anew)), places)


def _stored(s: Stmt, places: dict[Buffer, tuple[Buffer, Expr]]) -> Stmt:
    if isinstance(s, Store) and s.buffer in places:
        buffer, start = places[s.buffer]
        return Store(buffer, scalar.add(start, s.index), s.value)
    if isinstance(s, Loop):
        s.body = [_stored(x, places) for x in s.body]
    return s
