"""Turns: a loop of steps over rows that never meet becomes rows of steps.

Columns of a model's grid often lie along its last axis, and a sweep goes through them level by level:
each step touches every cache line of the arrays, for one number in eight, and the next step does so
again. If each outer round of the nests has elements of its own throughout the loop, all steps can be
made for one of them, while its lines are in cache, and then for the next one; by several threads too.
"""

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import walk
from fnx.lowering.ir.expressions import buffers_read, nodes, replacing
from fnx.lowering.ir.formats import itemsize
from fnx.lowering.ir.kernel import Buffer, Copy, Eval, Let, Loop, Nest, Stmt, Store

from . import fuse, views
from .rows import Loops, accesses, apart
from .storage import Storage

LINE = 64  # bytes
STEPS = 1 << 12  # rounds of a loop up to which it need not ask whether to stop
CACHE = 1 << 18  # bytes that stay in a core's own cache, beside others


def rows_of_steps(builder: Storage) -> None:
    """Turn loops of a program that gain by it."""
    _block(builder, builder.block)


def _block(builder: Storage, body: list[Stmt]) -> None:
    for k, stmt in enumerate(body):
        if isinstance(stmt, Nest):
            continue
        turned = _turned(builder, stmt) if isinstance(stmt, Loop) else None
        if turned is not None:
            body[k] = turned
            continue
        for inner in walk.blocks(stmt):
            _block(builder, inner)


def _turned(builder: Storage, loop: Loop) -> Nest | None:
    nests = [s for s in loop.body if isinstance(s, Nest)]
    if loop.carries or loop.extent.op != "size" or not 1 < loop.extent.attr <= STEPS or not nests:
        return None
    first = Loops.of(nests[0])
    if first is None:
        return None
    n = first.extents[0]
    row = scalar.counter("i", n)
    body: list[Stmt] = []
    for s in loop.body:
        part = _row(s, row, n)
        if part is None:
            return None
        body += part
    steps = Loop(loop.index, loop.extent, body, reverse=loop.reverse)
    written = walk.all_writes(steps)
    read = [e for s in body if isinstance(s, (Let, Eval)) for e in walk.expressions(s)]
    lines = _Lines(loop.index)
    lines.visit(body, 1)
    if not lines.one_by_one(n) or not buffers_read(read).isdisjoint(written):
        return None
    touched = accesses([steps], [row])
    if not all(b.space == "stack" or apart(touched[b], [n]) for b in written):
        return None
    parallel = walk.work([steps]) * n >= fuse.NEST_WORK
    name = f"{nests[0].name}_rows"
    note = " | ".join(s.note for s in nests)
    return Nest(name, [Loop(row, scalar.size(n), [steps], parallel=parallel)], note=note)


def _row(stmt: Stmt, row: Expr, n: int) -> list[Stmt] | None:
    """What a statement of a step does to one row; None if it cannot be told."""
    if isinstance(stmt, (Let, Eval)):
        return [stmt]
    if isinstance(stmt, Nest):
        loops = Loops.of(stmt)
        if loops is None or loops.extents[0] != n:
            return None
        new = replacing({loops.loops[0].index: row})
        return [walk.rewritten(s, new) for s in loops.loops[0].body]
    if isinstance(stmt, Copy) and stmt.count.op == "size" and stmt.count.attr % n == 0:
        length = stmt.count.attr // n
        k = scalar.counter("k", length)
        at = scalar.add(scalar.mul(row, scalar.size(length)), k)
        to, source = stmt.target, stmt.source
        value = scalar.load(source.buffer, scalar.add(source.index, at), source.buffer.dtype)
        store = Store(to.buffer, scalar.add(to.index, at), value)
        return [Loop(k, scalar.size(length), [store], vector=True)]
    return None


class _Lines:
    """The cache lines that a step touches at a stride, of which the next step reads the neighbours."""

    def __init__(self, step: Expr):
        self.step = step
        self.apart = self.together = 0  # accesses at a stride, and others
        self.touched: dict[Buffer, int] = {}

    def visit(self, body: list[Stmt], rounds: int) -> None:
        for s in body:
            if isinstance(s, Loop):
                times = rounds * walk.extent(s.extent)
                if all(isinstance(x, Store) for x in s.body):
                    self._loop(s, times)
                else:
                    self.visit(s.body, times)

    def _loop(self, loop: Loop, times: int) -> None:
        axes = {id(loop.index): 0, id(self.step): 1}
        places = [(s.buffer, s.index) for s in loop.body if isinstance(s, Store)]
        loads = nodes(e for s in loop.body for e in walk.expressions(s))
        places += [(e.attr, e.args[0]) for e in loads if e.op == "load"]
        for buffer, position in places:
            found, size = views.linear(position, axes), itemsize(buffer.dtype)
            across, along = (abs(found[1].get(k, 0)) * size for k in (0, 1)) if found else (0, 0)
            if across >= LINE > along > 0:
                self.apart += 1
                self.touched[buffer] = max(self.touched.get(buffer, 0), times)
            elif across:
                self.together += 1

    def one_by_one(self, n: int) -> bool:
        """Whether lines stay in cache from step to step for one of `n` rows, but not for all."""
        size = LINE * sum(self.touched.values())
        return 2 * self.apart > self.together and size <= CACHE < size * n


__all__ = ["rows_of_steps"]
