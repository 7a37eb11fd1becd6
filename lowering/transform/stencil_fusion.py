"""Fusion of stencils strip by strip: nests that hand on arrays are made for a strip, one after the other.

A stencil stores what several of its neighbours read: fluxes between cells, slopes. Where the shifts are
along one axis, what lies elsewhere along others never meets: these are independent axes. The nests run
one after the other for a strip of columns, and then together, layer by layer (`sliding_window.py`), so
that what they hand on is a few rows rather than arrays of the grid's size.

Source: stages computed at an outer loop's level (Halide's compute_at); strip mining and interchange,
Allen & Kennedy 2001, ch. 9.
Input: nests that a block begins with, or that follow one another.
Output: a loop over strips with all of them inside; nests for what is left at the sides of the grid.
Legal when: columns keep to themselves in all of them (`independent_axes.py`).
Pays when: sliding windows can be kept of what is handed on, and vectors stay whole.
Costs: code, of at most `STENCIL_NESTS` nests.
"""

from collections.abc import Iterator

from fnx.core import policy
from fnx.core.scalar import Expr
from fnx.lowering.ir import dependence, traversal
from fnx.lowering.ir.kernel import Buffer, Loop, Nest, Stmt
from fnx.lowering.ir.number_formats import itemsize
from fnx.lowering.transform.statements import Statements

from . import loop_fusion, sliding_window, strip_mining
from .independent_axes import IndependentColumns, chain, extents


def of_stencils(builder: Statements) -> None:
    """Turn nests of a program that gain by it."""
    uses = loop_fusion.uses(builder.block)
    _block(builder, builder.block, uses, {})


def _block(
    builder: Statements, body: list[Stmt], uses: dict[Buffer, int], known: dict[Expr, int]
) -> None:
    k = 0
    while k < len(body):
        stmt = body[k]
        if isinstance(stmt, Nest):
            found = _slab(builder, body, k, uses, known)
            if found is not None:
                stop, new = found
                body[k:stop] = new
                k += len(new) - 1
        else:
            inside = known | dependence.halves(stmt) if isinstance(stmt, Loop) else known
            for inner in traversal.blocks(stmt):
                _block(builder, inner, uses, inside)
        k += 1


def _slab(
    builder: Statements, body: list[Stmt], k: int, uses: dict[Buffer, int], known: dict[Expr, int]
) -> tuple[int, list[Stmt]] | None:
    """The nests from `k` on, strip by strip, in the way that keeps the most near: to where, and by what."""
    nests = list(_nests(body[k : k + policy.STENCIL_NESTS]))
    handed = [b for b in traversal.all_writes(nests[0]) if 1 < uses[b] <= policy.STENCIL_NESTS]
    if (
        sum(b.size * itemsize(b.dtype) for b in handed) * policy.STENCIL_NESTS
        < builder.machine.streamed_bytes
    ):
        return None
    best: tuple[int, _Sequence] | None = None
    for n, skipped in _ways(builder, nests[0]):
        found = _Sequence(IndependentColumns(builder, (n,), skipped), known, nests, uses)
        least = max(builder.machine.streamed_bytes, best[0] if best else 0)
        if found.columns.least == 1 and found.gain > least:
            best = found.gain, found
    if best is None:
        return None
    found = best[1]
    notes = list(builder.notes)
    new = strip_mining.made(builder, found.columns, list(found.nests), [], found.width()) or []
    made = [s for s in traversal.statements(new) if isinstance(s, Nest)]
    if made and all([sliding_window.roll_nest(builder, nest, found.after) for nest in made]):
        return k + len(found.nests), new
    builder.notes = notes
    return None


def _nests(body: list[Stmt]) -> Iterator[Nest]:
    """The nests that a block begins with."""
    for s in body:
        if not isinstance(s, Nest):
            return
        yield s


def _ways(builder: Statements, nest: Nest) -> Iterator[tuple[int, int]]:
    """Loops of a nest that may be columns: how many, and how many other ways to see them come before."""
    loops, _ = chain(builder.plain.get(nest, nest.body)[0])
    sizes = extents(loops)
    for k, n in enumerate(sizes):
        if n >= policy.STENCIL_STRIPS and not loops[k].kind.vectorized:
            yield n, sum([1 + (size > n) for size in sizes[:k] if size % n == 0])


class _Sequence:
    """Nests, from the first on, in which columns keep to themselves, and arrays that they alone touch."""

    def __init__(
        self,
        columns: IndependentColumns,
        known: dict[Expr, int],
        nests: list[Nest],
        uses: dict[Buffer, int],
    ):
        self.columns = columns
        columns.halves |= known
        self.nests: list[Nest] = []
        count: dict[Buffer, int] = {}
        least: list[int] = []
        for nest in nests:
            self.columns.least = 1
            if not self.columns.join(nest):
                break
            self.nests.append(nest)
            least.append(self.columns.least)
            for b in traversal.buffers(nest.body):
                count[b] = count.get(b, 0) + 1
        mine = [b for b in self.columns.strides if b.space == "global" and count[b] == uses[b]]
        self.private = [b for b in mine if count[b] > 1]
        self.after = uses | dict.fromkeys(self.private, 1)  # when the nests are one
        while self.nests and not any(
            b in self.private for b in traversal.buffers(self.nests[-1].body)
        ):
            self.nests.pop()
        self.gain = sum(b.size * itemsize(b.dtype) for b in self.private)
        # Around the inside lie thin sides; their loops may be short.
        work = [traversal.work(nest.body) for nest in self.nests]
        much = [
            n for n, w in zip(least, work, strict=False) if w * policy.STENCIL_SIDE_PART > sum(work)
        ]
        self.columns.least = max(much, default=1)

    def width(self) -> int:
        """How many columns make a strip: long runs of memory, but strips enough for threads."""
        n = self.columns.axes[-1]
        most = max(1, min(policy.STENCIL_COLUMNS, self.columns.count // policy.STENCIL_STRIPS))
        whole = [w for w in range(1, most + 1) if n % w == 0]
        return whole[-1] if 2 * whole[-1] > most else most
