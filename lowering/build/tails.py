"""Tails: vector loops in whole vectors, of which the last one overlaps the one before.

What remains when a loop is done eight elements at a time is done one by one, and takes as long as
many vectors if a function of it is costly: of 38 elements the last 6. A loop that only stores, and
reads nothing that it stores, may as well compute a few elements twice.
"""

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.emit import vector_names
from fnx.lowering.ir import walk
from fnx.lowering.ir.expressions import loaded, nodes, replacing
from fnx.lowering.ir.formats import itemsize
from fnx.lowering.ir.kernel import Loop, Nest, Stmt, Store

from . import fuse

LONG = 1 << 12  # elements from which on it does not matter


def overlap(block: list[Stmt]) -> None:
    """Rewrite the vector loops of costly functions in all nests of a program."""
    for stmt in walk.statements(block):
        if isinstance(stmt, Nest):
            for outer in walk.statements([stmt]):
                for body in walk.blocks(outer):
                    body[:] = [_whole(s) if isinstance(s, Loop) else s for s in body]


def _whole(loop: Loop) -> Loop:
    if not loop.vector or loop.carries or loop.unroll or not _is_known(loop.extent):
        return loop
    stores = [s for s in loop.body if isinstance(s, Store)]
    if len(stores) != len(loop.body):
        return loop
    exprs = [e for s in stores for e in (s.index, s.value)]
    written = {s.buffer for s in stores}
    if not written.isdisjoint(loaded(exprs, set())):
        return loop
    lanes = _lanes(exprs)
    if not lanes or not max(lanes, fuse.SMALL) < loop.extent.attr <= LONG:
        return loop
    width, n = scalar.const(lanes, "int64"), loop.extent.attr
    number, lane = scalar.var("int64", "t"), scalar.var("int64", "j")
    start = scalar.apply("min", scalar.mul(number, width), scalar.size(n - lanes))
    new = replacing({loop.index: scalar.add(start, lane)})
    body = [walk.rewritten(s, new) for s in stores]
    # Unrolled before the vectoriser comes, it would not become a vector.
    inner = Loop(lane, width, body, vector=True, unroll=1)
    return Loop(number, scalar.size(-(-n // lanes)), [inner], parallel=loop.parallel)


def _is_known(extent: Expr) -> bool:
    return extent.op == "size"


def _lanes(exprs: list[Expr]) -> int:
    """Elements of a vector of the narrowest numbers of which a costly function is computed; or 0."""
    sizes = [itemsize(e.dtype) for e in nodes(exprs) if vector_names.exists(e.op, e.dtype)]
    return fuse.VECTOR // min(sizes) if sizes else 0
