"""Overlapped epilogues: vector loops in whole vectors, of which the last one overlaps the one before.

What remains when a loop is done eight elements at a time is done one by one: of 23 elements the last
7 take longer than the others. A loop that only stores, and reads nothing that it stores, may as well
compute a few elements twice; so may one that reads other elements of an array than it stores. One that
adds to what is there keeps, of the last vector, the elements that the one before has changed. There is
less to compile then, too: no loop for the rest.

Source: epilogues of vectorised loops (LLVM); overlapping tiles, as libraries' memcpy has them.
Input: a vectorized loop.
Output: the loop over whole vectors, and its last vector again at the end.
Legal when: computing an element twice stores the same number twice, or what it reads of what it stores is
its own place, which it then changes once.
Pays when: the loop has at least one whole vector.
Costs: up to a vector of elements computed twice; a comparison, where places are changed.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.cpu.processor.features import iteration_bytes
from fnx.lowering.ir import dependence, traversal
from fnx.lowering.ir.expressions import buffers_read, depends_on, depth, nodes, replacing
from fnx.lowering.ir.kernel import Buffer, Let, Loop, LoopKind, Stmt, Store
from fnx.lowering.ir.number_formats import itemsize

from . import vector_abi

_FUSED = ("mul", "neg")  # what mostly becomes part of a sum


class Overlapped(Loop):
    """A loop over the vectors of a row, the last of which overlaps the one before."""


def whole(loop: Loop, halves: Mapping[Expr, int], rows: bool) -> Loop:
    """A vector loop as one over vectors, if it may compute elements twice; others as they are.

    `halves` are variables that are 0 or a size: where the old half of a buffer begins. `rows`: there
    is a loop around it, which makes the rest of each row matter.
    """
    if not loop.kind.vectorized or loop.rolled or not _is_known(loop.extent):
        return loop
    if loop.extent.attr <= thresholds.UNROLLED_TAIL:
        # Unrolled before the vectoriser comes, it would not become a vector.
        return replace(loop, rolled=True) if _is_costly(loop) else loop
    if loop.carries or not all(isinstance(s, Let | Store) for s in loop.body):
        return loop
    stores = [s for s in loop.body if isinstance(s, Store)]
    exprs = [e for s in loop.body for e in traversal.expressions(s)]
    written, read = {s.buffer for s in stores}, buffers_read(exprs)
    changed: set[Buffer] | None = set()
    if written & read:
        if not rows or loop.extent.attr > thresholds.IN_PLACE_ROW:
            return loop
        changed = _changed(stores, exprs, halves)
        if changed is None:
            return loop
    lanes, longest = _lanes(exprs, loop.extent.attr)
    if not lanes or loop.extent.attr > longest:
        return loop
    if longest == inf and any(b.space == "private" for b in written | read):
        return loop  # LLVM keeps rows on the stack in registers, unless vectors overlap
    width, n = scalar.size(lanes), loop.extent
    number, lane = scalar.var("int64", "t"), scalar.var("int64", "j")
    # Computed when the program runs: folded here, they could be numbers in the code.
    last = scalar.node("sub", "int64", (n, width))
    before = scalar.node("div", "int64", (scalar.node("sub", "int64", (n, scalar.size(1))), width))
    vectors = scalar.node("add", "int64", (before, scalar.size(1)))
    start = scalar.apply("min", scalar.mul(number, width), last)
    new = replacing({loop.index: scalar.add(start, lane)})
    since = scalar.compare("ge", lane, scalar.sub(scalar.mul(number, width), start))
    body = [traversal.rewritten(s, new) for s in loop.body]
    body = _once(body, changed, since) if changed else body
    inner = Loop(lane, width, body, kind=LoopKind.VECTORIZED, rolled=True)
    return Overlapped(number, vectors, [inner], kind=LoopKind.of(parallel=loop.kind.parallel))


def _changed(
    stores: list[Store], exprs: list[Expr], halves: Mapping[Expr, int]
) -> set[Buffer] | None:
    """The buffers of which an iteration reads what it writes; None if another one may, too."""
    known: dict = {}
    found = set()
    loads = [e for e in nodes(exprs) if e.op == "load"]
    for s in stores:
        for p in [e.args[0] for e in loads if e.attr is s.buffer]:
            if dependence.terms(p) == dependence.terms(s.index):
                found.add(s.buffer)
            elif not dependence.differ(p, s.index, halves, known):
                return None
    return found


def _once(body: list[Stmt], changed: set[Buffer], first: Expr) -> list[Stmt]:
    """Statements whose stores of what depends on changed places leave those be that are not met `first`."""
    made: list[Stmt] = []
    after: list[Expr] = []  # variables of such values
    for s in body:
        values = traversal.expressions(s)
        late = [not changed.isdisjoint(buffers_read([e])) or depends_on([e], after) for e in values]
        if isinstance(s, Let):
            after += [v for v, is_late in zip(s.variables, late, strict=True) if is_late]
        elif isinstance(s, Store) and (any(late) or s.buffer in changed):
            old = scalar.load(s.buffer, s.index, s.value.dtype)
            s = Store(s.buffer, s.index, scalar.select(first, s.value, old))
        made.append(s)
    return made


def _is_known(extent: Expr) -> bool:
    return extent.op == "size"


def _is_costly(loop: Loop) -> bool:
    """Whether each iteration of a loop calls mathematical functions, and a vector has lanes for some."""
    if loop.extent.attr < thresholds.COSTLY_TAIL or any(traversal.blocks(s) for s in loop.body):
        return False
    return any(vector_abi.exists(e.op, e.dtype) for e in traversal.nodes([loop]))


def _lanes(exprs: list[Expr], extent: int) -> tuple[int, float]:
    """Elements of an iteration, 0 if it is no vector; and the longest loop that goes by them.

    A vector is one of the narrowest numbers of which a costly function is computed, or else that are
    read. Long loops of costly functions are left to LLVM, which has several vectors under way.
    """
    sizes = [itemsize(e.dtype) for e in nodes(exprs) if vector_abi.exists(e.op, e.dtype)]
    longest = thresholds.LONG_LOOP if sizes else inf
    if sizes:
        size = iteration_bytes().usual
    else:
        sizes = [itemsize(e.dtype) for e in nodes(exprs) if e.op == "load"]
        size = _iteration_bytes(exprs, extent * min(sizes, default=0))
    return (min(size // min(sizes), thresholds.UNROLLED_TAIL) if sizes else 0), longest


def _iteration_bytes(exprs: list[Expr], row: int) -> int:
    """The bytes of an iteration, if a row of results has so many."""
    sizes, found = iteration_bytes(), kind(exprs)
    if found == "waiting" and row < thresholds.WIDE_ITERATIONS * sizes.waiting:
        return sizes.usual
    return getattr(sizes, found)


def kind(exprs: list[Expr]) -> str:
    """What an iteration that computes these is like: the name of a size in `IterationSizes`."""
    loads = {e: 0 for e in nodes(exprs) if e.op == "load"}
    counted = [e for e in nodes(exprs, loads) if e.args and e.dtype != "int64"]
    work = sum([e.op not in _FUSED for e in counted])
    most = max([depth(e, loads, _FUSED) for e in exprs], default=0)
    if most >= thresholds.WAITING and work < thresholds.APART * most:
        return "waiting"
    return "crowded" if work >= thresholds.CROWDED else "usual"
