"""Software prefetching: while a row is computed, the lines of rows that follow are on their way.

A sweep over a grid reads and writes a few rows of each array at a time. Stores wait for their lines one
after the other, and what a sweep stores into the rows of a stack was in no near cache for long. The
processor looks ahead of loads by itself, but no further than a page, and not of rows whose ends are read
first, as those of periodic fields: a sweep that goes back over a stack waits for each of its rows.

Source: software prefetching, Mowry, Lam & Gupta 1992.
Input: a vector loop inside another one: a row.
Output: before it, requests for the lines that follow in memory what it writes, and a few rows ahead of
what it reads.
Legal when: always; a request changes nothing, wherever it points.
Pays when: a buffer is no smaller than `PREFETCHED_BUFFER`, and its row of a few lines fits into the nearest
cache beside others. Shallow-water sweeps whose new states go into a stack of 30 MB took a third less time;
those that go back over one of 100 MB a seventh, an upwind scheme's, over 500 MB, a quarter.
Costs: an instruction for each line.
"""

from typing import TYPE_CHECKING

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.ir import dependence, traversal
from fnx.lowering.ir.expressions import depends_on, nodes, replacing
from fnx.lowering.ir.kernel import Buffer, Let, Loop, Store
from fnx.lowering.ir.number_formats import itemsize

from . import types as lt

if TYPE_CHECKING:
    from .control_flow import Flow

_PREFETCH = "llvm.prefetch.p0"


def next_row(code: "Flow", s: Loop) -> None:
    """Ask for what follows the row of a vector loop that is about to begin."""
    if not (s.kind.vectorized and code.rows and traversal.has_known_extent(s)):
        return
    stores = _stored(s)
    loads = {b: position for b, position in _read(s).items() if b not in stores}
    _rows(code, s, stores, write=True)
    _rows(code, s, loads, write=False)


def _rows(code: "Flow", s: Loop, places: dict[Buffer, Expr], write: bool) -> None:
    """Requests for the rows of a kind, if they are neither too short nor too long."""
    extent = traversal.extent(s.extent)
    row = max([extent * itemsize(b.dtype) for b in places], default=0)
    lines = -(-row // thresholds.LINE)
    if thresholds.PREFETCHED_ROW[0] <= lines <= thresholds.PREFETCHED_ROW[1] // max(len(places), 1):
        most, size = thresholds.PREFETCHED_AHEAD
        ahead = 1 if write else max(1, min(most, size // row))
        after = replacing({s.index: scalar.size(ahead * extent)})
        _ask(code, [(b, after(position)) for b, position in places.items()], lines, write)


def _stored(s: Loop) -> dict[Buffer, Expr]:
    """Buffers that are far, and where an iteration stores into them."""
    found = {}
    inside = [v for x in traversal.statements(s.body) for v in traversal.defined(x)]
    for x in traversal.statements(s.body):
        if not isinstance(x, Store):
            continue
        far = _is_far(x.buffer) and _row_follows_row(s, x.index)
        if far and not depends_on([x.index], inside):
            found[x.buffer] = x.index
    return found


def _read(s: Loop) -> dict[Buffer, Expr]:
    """Buffers that are far, and the last place where an iteration reads them."""
    found: dict[Buffer, Expr] = {}
    known: dict[Expr, Expr] = {}
    body = list(traversal.statements(s.body))
    inside = [v for x in body for v in traversal.defined(x)]
    loads = [
        e for e in nodes([e for x in body for e in traversal.expressions(x)]) if e.op == "load"
    ]
    loads = [e for e in loads if _is_far(e.attr)]
    if loads:
        for x in body:
            if isinstance(x, Let):
                known.update(zip(x.variables, map(replacing(known), x.values), strict=True))
    in_full = replacing(known)
    for e in loads:
        position = in_full(e.args[0])
        if not _row_follows_row(s, position) or depends_on([position], inside):
            continue
        before = found.get(e.attr)
        if before is None or dependence.terms(before)[1] < dependence.terms(position)[1]:
            found[e.attr] = position
    return found


def _is_far(buffer: Buffer) -> bool:
    return buffer.size * itemsize(buffer.dtype) >= thresholds.PREFETCHED_BUFFER


def _row_follows_row(s: Loop, position: Expr) -> bool:
    """Whether the next iteration of a loop around writes what comes next in memory, or nearly so."""
    factors = dict(dependence.terms(position)[0])
    if factors.pop(s.index, 0) != 1:
        return False
    n = traversal.extent(s.extent)
    return any(n <= factor <= n + thresholds.ROW_ENDS for factor in factors.values())


def _ask(code: "Flow", rows: list[tuple[Buffer, Expr]], lines: int, write: bool) -> None:
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
        code.put(f"call void @{_PREFETCH}(ptr {place}, i32 {int(write)}, i32 3, i32 1)")
    following = code.op(f"add nuw nsw i64 {k}, 1")
    last = code.op(f"icmp eq i64 {following}, {count}")
    code.branch(last, done, body, code.module.loop(code.module.next_number(), None, 1))
    code.fill(at, [k], ["int64"], [(before, ["0"]), (body, [following])])
    code.start(done)
