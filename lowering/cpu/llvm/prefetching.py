"""Software prefetching: while a row is computed, the lines of the next one, for stores, are on their way.

A sweep over a grid reads and writes a few rows of each array at a time. The processor looks ahead of
loads by itself; but stores wait for their lines one after the other, and what a sweep stores into the
rows of a stack was in no near cache for long.

Source: software prefetching, Mowry, Lam & Gupta 1992.
Input: a vector loop inside another one: a row.
Output: before it, requests for the lines that follow in memory what it writes.
Legal when: always; a request changes nothing, wherever it points.
Pays when: a buffer is no smaller than `PREFETCHED_BUFFER`, and its row of a few lines fits into the nearest
cache beside others. Shallow-water sweeps whose new states go into a stack of 30 MB took a third less time.
Costs: an instruction for each line.
"""

from typing import TYPE_CHECKING

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.ir import dependence, traversal
from fnx.lowering.ir.expressions import depends_on, replacing
from fnx.lowering.ir.kernel import Buffer, Loop, Store
from fnx.lowering.ir.number_formats import itemsize

from . import types as lt

if TYPE_CHECKING:
    from .control_flow import Flow

_PREFETCH = "llvm.prefetch.p0"


def next_row(code: "Flow", s: Loop) -> None:
    """Ask for what follows the row of a vector loop that is about to begin."""
    if not (s.kind.vectorized and code.rows and traversal.has_known_extent(s)):
        return
    stores = _far(s)
    extent = traversal.extent(s.extent)
    lines = max([-(-extent * itemsize(b.dtype) // 64) for b in stores], default=0)
    if thresholds.PREFETCHED_ROW[0] <= lines <= thresholds.PREFETCHED_ROW[1] // max(len(stores), 1):
        after = replacing({s.index: s.extent})
        _ask(code, [(b, after(position)) for b, position in stores.items()], lines)


def _far(s: Loop) -> dict[Buffer, Expr]:
    """Buffers that are far, and where an iteration stores into them."""
    found = {}
    inside = [v for x in traversal.statements(s.body) for v in traversal.defined(x)]
    for x in traversal.statements(s.body):
        if not isinstance(x, Store):
            continue
        far = x.buffer.size * itemsize(x.buffer.dtype) >= thresholds.PREFETCHED_BUFFER
        if far and _row_follows_row(s, x.index) and not depends_on([x.index], inside):
            found[x.buffer] = x.index
    return found


def _row_follows_row(s: Loop, position: Expr) -> bool:
    """Whether the next iteration of a loop around writes what comes next in memory, or nearly so."""
    factors = dict(dependence.terms(position)[0])
    if factors.pop(s.index, 0) != 1:
        return False
    n = traversal.extent(s.extent)
    return any(n <= factor <= n + thresholds.ROW_ENDS for factor in factors.values())


def _ask(code: "Flow", rows: list[tuple[Buffer, Expr]], lines: int) -> None:
    """A loop over lines of the nearest cache."""
    starts = []
    for buffer, position in rows:
        place = f"ptr {code.pointer(buffer)}, i64 {code.value(position)}"
        starts.append(code.op(f"getelementptr {lt.element(buffer.dtype)}, {place}"))
    code.module.declare(_PREFETCH, f"declare void @{_PREFETCH}(ptr, i32, i32, i32)")
    count = code.value(scalar.size(lines))
    before, body, done = code.block, code.label(), code.label()
    code.jump(body)
    code.start(body)
    (k,), at = code.phis(["int64"])
    offset = code.op(f"shl i64 {k}, 6")
    for start in starts:
        place = code.op(f"getelementptr i8, ptr {start}, i64 {offset}")
        code.put(f"call void @{_PREFETCH}(ptr {place}, i32 1, i32 3, i32 1)")
    following = code.op(f"add nuw nsw i64 {k}, 1")
    last = code.op(f"icmp eq i64 {following}, {count}")
    code.branch(last, done, body, code.module.loop(code.module.next_number(), None, 1))
    code.fill(at, [k], ["int64"], [(before, ["0"]), (body, [following])])
    code.start(done)
