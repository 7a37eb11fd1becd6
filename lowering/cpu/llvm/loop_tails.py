"""Overlapped epilogues: vector loops in whole vectors, of which the last one overlaps the one before.

What remains when a loop is done eight elements at a time is done one by one: of 23 elements the last
7 take longer than the others. A loop that only stores, and reads nothing that it stores, may as well
compute a few elements twice; so may one that reads other elements of an array than it stores. There
is less to compile then, too: no loop for the rest.

Source: epilogues of vectorised loops (LLVM); overlapping tiles, as libraries' memcpy has them.
Input: a vectorized loop.
Output: the loop over whole vectors, and its last vector again at the end.
Legal when: computing an element twice stores the same number twice.
Pays when: the loop has at least one whole vector.
Costs: up to a vector of elements computed twice.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.cpu.processor.features import iteration_bytes
from fnx.lowering.ir import dependence, traversal
from fnx.lowering.ir.expressions import buffers_read, depth, nodes, replacing
from fnx.lowering.ir.kernel import Let, Loop, LoopKind, Store
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
    if written & read:
        if (
            not rows
            or loop.extent.attr > thresholds.IN_PLACE_ROW
            and any([e.op == "select" for e in nodes(exprs)])
            or not _reads_elsewhere(stores, exprs, halves)
        ):
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
    early = _early(loop, stores, lanes, halves)
    start = scalar.mul(number, width)
    if early is not None:
        n = scalar.node("add", "int64", (n, scalar.size(early)))
        start = scalar.node("sub", "int64", (start, scalar.size(early)))
    before = scalar.node("div", "int64", (scalar.node("sub", "int64", (n, scalar.size(1))), width))
    vectors = scalar.node("add", "int64", (before, scalar.size(1)))
    start = scalar.apply("min", start, last)
    if early is not None:
        start = scalar.apply("max", start, scalar.size(0))
    new = replacing({loop.index: scalar.add(start, lane)})
    body = [traversal.rewritten(s, new) for s in loop.body]
    inner = Loop(lane, width, body, kind=LoopKind.VECTORIZED, rolled=True)
    return Overlapped(number, vectors, [inner], kind=LoopKind.of(parallel=loop.kind.parallel))


def _early(loop: Loop, stores: list[Store], lanes: int, halves: Mapping[Expr, int]) -> int | None:
    """How many elements the first vector would lie before its row, if those after it are to store lines.

    A row that begins behind a boundary begins within a line: each of its vectors would store into two.
    None where rows begin with their arrays, or stores differ.
    """
    places = [dependence.terms(s.index) for s in stores]
    if not all([number for _, number in places]):
        return None
    line = min([lanes, *(thresholds.LINE // itemsize(s.buffer.dtype) for s in stores)])
    factors = [f for own, _ in places for f in own if f != (loop.index, 1)]
    whole = not any([halves.get(leaf, 1) * factor % line for leaf, factor in factors])
    ahead = {number % line for _, number in places}
    return ahead.pop() if whole and len(ahead) == 1 else 0


def _reads_elsewhere(stores: list[Store], exprs: list[Expr], halves: Mapping[Expr, int]) -> bool:
    """Whether no iteration reads what it writes; in a vector loop no other iteration does."""
    known: dict = {}
    loads = [e for e in nodes(exprs) if e.op == "load"]
    pairs = [(s.index, e.args[0]) for s in stores for e in loads if s.buffer is e.attr]
    return all([dependence.differ(*pair, halves, known) for pair in pairs])


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
