"""Packing: loops over many small problems read and write the rows of these whole, through the stack.

An element of each problem at a time, as vectors want them, is a row apart from the next one: a vector
of them is a load or a store for each. Here a vector's worth of problems is a block, whose rows are
brought into a small array on the stack, transposed, so that problems are neighbours; and its results
go the same way back.

Source: copy optimization (Lam, Rothberg & Wolf 1991); packing (Goto & van de Geijn 2008).
Input: innermost loops over problems.
Output: a loop over blocks of problems, with transposes before and after; a loop for the rest.
Legal when: problems are independent but for sums and the like; nothing is read there once it is written.
Pays when: rows of enough elements are read or written (`PACKED_READ`, `PACKED_WRITE`).
Costs: one more copy of what is read and written.
"""

from typing import TypeVar

from fnx.core import scalar
from fnx.core.fast_dataclasses import dataclass
from fnx.core.scalar import Expr
from fnx.lowering.cpu.llvm import register_transpose
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.generate.generation import Generation
from fnx.lowering.ir import affine, dependence, traversal
from fnx.lowering.ir.expressions import buffers_read, combining, depends_on, replacing
from fnx.lowering.ir.kernel import Buffer, Let, Loop, LoopKind, Ref, Stmt, Store, Transpose
from fnx.lowering.ir.number_formats import itemsize

T = TypeVar("T")


def rows(builder: Generation) -> None:
    """Rewrite the innermost loops of a program."""
    for block in _blocks(builder.block):
        k = 0
        while k < len(block):
            stmt = block[k]
            new = _staged(builder, stmt) if isinstance(stmt, Loop) else None
            if new is not None:
                block[k : k + 1] = new
            k += 1 if new is None else len(new)


def _blocks(body: list[Stmt]) -> list[list[Stmt]]:
    return [body, *(b for s in traversal.statements(body) for b in traversal.blocks(s))]


@dataclass(frozen=True)
class _Written:
    """Stores at consecutive places of a problem's row, `apart` elements from the next one's."""

    buffer: Buffer
    stores: list[Store]
    apart: int


@dataclass(frozen=True)
class _Read:
    """Loads from consecutive places of a problem's row, of which one place may have several."""

    buffer: Buffer
    loads: list[list[Expr]]
    apart: int


def _staged(builder: Generation, loop: Loop) -> list[Stmt] | None:
    """The loop by blocks of problems, if it reads or writes rows."""
    if not _is_plain(loop):
        return None
    written, read = _rows_written(loop), _rows_read(loop)
    dtypes = {row.buffer.dtype for row in (*written, *read)}
    width = max([register_transpose.VECTOR // itemsize(t) for t in dtypes], default=0)
    n = loop.extent.attr
    if not 0 < width <= n:
        return None
    exprs = [e for s in loop.body for e in traversal.expressions(s)]
    again = not loop.carries and traversal.all_writes(loop).keys().isdisjoint(buffers_read(exprs))
    count = -(-n // width) if again else n // width
    block = scalar.counter("b", count)
    start = scalar.mul(block, scalar.const(width, "int64"))
    if again:  # the last block overlaps the one before
        start = scalar.apply("min", start, scalar.size(n - width))
    totals = _Totals(builder, loop, width)
    body = _block(builder, loop, start, width, written, read, totals)
    whole = Loop(block, scalar.size(count), body, kind=LoopKind.of(parallel=loop.kind.parallel))
    if again:
        return [whole]
    rest = scalar.counter("i", width)
    new = replacing({loop.index: scalar.add(scalar.size(n - n % width), rest)})
    last = Loop(
        rest, scalar.size(n % width), [traversal.rewritten(s, new) for s in loop.body],
        loop.carries, totals.names, [new(e) for e in loop.yields],
    )  # fmt: skip
    return [*totals.before(), whole, *totals.after(), last]


def _is_plain(loop: Loop) -> bool:
    """Whether problems are independent, but for sums and the like, and how many they are is known."""
    if not (loop.kind.vectorized or not loop.body) or loop.reverse or loop.polled:
        return False
    plain = all(type(s) in (Store, Let) for s in loop.body)
    if not plain or loop.extent.op not in ("size", "const"):
        return False
    return not loop.carries or (loop.reassociate and None not in _combined(loop))


_NEUTRAL = {"add": 0, "mul": 1}


def _combined(loop: Loop) -> list[str | None]:
    """The operation by which each carry is combined with what does not depend on it."""
    found: list[str | None] = []
    for carry, total in zip(loop.carries, loop.yields, strict=True):
        ops = {"add" if e.op == "fma" else e.op for e in combining([carry], [total]) - {carry}}
        others = [c for c in loop.carries if c is not carry]
        alone = (
            not depends_on([total], others)
            and register_transpose.can(carry.dtype)
            and len(ops) == 1
        )
        (op,) = ops if alone else (None,)
        found.append(op if op in ("add", "mul", "min", "max") else None)
    return found


class _Totals:
    """What a loop sums up, in an array with a part for each problem of a block."""

    def __init__(self, builder: Generation, loop: Loop, width: int):
        self.loop, self.width = loop, width
        self.operations = _combined(loop)
        self.parts = [builder.new_stack(c.dtype, width) for c in loop.carries]
        self.names = [scalar.var(c.dtype, "a") for c in loop.carries]  # of the totals of all blocks

    def before(self) -> list[Stmt]:
        """No total yet."""
        lane = scalar.counter("l", self.width)
        starts = [
            scalar.const(_NEUTRAL[op], part.dtype) if op in _NEUTRAL else init
            for op, part, init in zip(self.operations, self.parts, self.loop.init, strict=True)
        ]
        stores = [Store(part, lane, e) for part, e in zip(self.parts, starts, strict=True)]
        return [Loop(lane, scalar.const(self.width, "int64"), stores, kind=LoopKind.VECTORIZED)]

    def loads(self, lane: Expr) -> list[Expr]:
        return [scalar.load(part, lane, part.dtype) for part in self.parts]

    def after(self) -> list[Stmt]:
        """The totals of the problems are combined."""
        lane = scalar.counter("l", self.width)
        pairs = zip(self.operations, self.names, self.loads(lane), strict=True)
        yields = [scalar.apply(op, *pair) for op, *pair in pairs]
        width = scalar.const(self.width, "int64")
        init = self.loop.init
        return [
            Loop(
                lane,
                width,
                [],
                self.names,
                init,
                yields,
                reassociate=True,
                kind=LoopKind.VECTORIZED,
            )
        ]


def _block(
    builder: Generation,
    loop: Loop,
    start: Expr,
    width: int,
    written: list[_Written],
    read: list[_Read],
    totals: _Totals,
) -> list[Stmt]:
    """A block of problems: its rows are read, it is computed, its rows are written."""
    lane, first = scalar.counter("l", width), replacing({loop.index: start})
    side = scalar.const(width, "int64")

    def stack(dtype: str, count: int) -> tuple[Ref, list[Expr]]:
        """An array in which problems are neighbours, and the place of each element of this problem."""
        buffer = builder.new_stack(dtype, width * count)
        places = [scalar.add(scalar.const(k * width, "int64"), lane) for k in range(count)]
        return Ref(buffer, scalar.size(0)), places

    names, before, after = {loop.index: scalar.add(start, lane)}, [], []
    names |= zip(loop.carries, totals.loads(lane), strict=True)
    for row in read:
        destination, places = stack(row.buffer.dtype, len(row.loads))
        for place, loads in zip(places, row.loads, strict=True):
            staged = scalar.load(destination.buffer, place, destination.buffer.dtype)
            names |= dict.fromkeys(loads, staged)
        source = Ref(row.buffer, first(row.loads[0][0].args[0]))
        apart = side, scalar.const(row.apart, "int64")
        before.append(Transpose(destination, source, len(row.loads), width, apart))
    here = replacing(names)
    body = {s: traversal.rewritten(s, here) for s in loop.body}
    for out in written:
        source, places = stack(out.buffer.dtype, len(out.stores))
        for place, s in zip(places, out.stores, strict=True):
            body[s] = Store(source.buffer, place, here(s.value))
        destination = Ref(out.buffer, first(out.stores[0].index))
        apart = scalar.const(out.apart, "int64"), side
        after.append(Transpose(destination, source, width, len(out.stores), apart))
    sums = [Store(part, lane, here(e)) for part, e in zip(totals.parts, loop.yields, strict=True)]
    # Unrolled before the vectoriser comes, the lanes would not become vectors.
    return [
        *before,
        Loop(lane, side, [*body.values(), *sums], kind=LoopKind.VECTORIZED, rolled=True),
        *after,
    ]


def _read_late(loop: Loop) -> set[Buffer]:
    """The buffers that an iteration reads after it has begun to write them."""
    late: set[Buffer] = set()
    written: set[Buffer] = set()
    for s in loop.body:
        late |= buffers_read(traversal.expressions(s)) & written
        written.update(traversal.writes(s))
    return late | buffers_read(loop.yields) & written


def _rows_written(loop: Loop) -> list[_Written]:
    """The rows that a loop writes, and does not read once it has begun to."""
    axes, known = {id(loop.index): 0}, {}
    matrices: dict[Buffer, dict[tuple, dict[int, Store]]] = {}
    spoilt = _read_late(loop)
    for s in loop.body:
        if not isinstance(s, Store) or not register_transpose.can(s.buffer.dtype):
            continue
        base, parts = affine.linear(s.index, axes, known) or (s.index, {})
        leaves, number = dependence.terms(base)
        matrix = matrices.setdefault(s.buffer, {}).setdefault((parts.get(0, 0), leaves), {})
        if number in matrix:
            spoilt.add(s.buffer)
        matrix[number] = s
    found = []
    for buffer, kinds in matrices.items():
        ((apart, _), matrix), *others = kinds.items()
        if apart < thresholds.PACKED_WRITE or others or buffer in spoilt:
            continue
        if apart > max(matrix) - min(matrix):
            found += [_Written(buffer, run, apart) for run in _runs(matrix)]
    return found


def _rows_read(loop: Loop) -> list[_Read]:
    """The rows that a loop reads, not after it has begun to write there."""
    axes, known = {id(loop.index): 0}, {}
    late = _read_late(loop)
    matrices: dict[tuple, dict[int, list[Expr]]] = {}
    for e in traversal.nodes([loop]):
        if e.op != "load" or e.attr in late or not register_transpose.can(e.attr.dtype):
            continue
        base, parts = affine.linear(e.args[0], axes, known) or (e, {})
        if parts.get(0, 0) < thresholds.PACKED_READ:
            continue
        leaves, number = dependence.terms(base)
        matrix = matrices.setdefault((e.attr, parts[0], leaves), {})
        matrix.setdefault(number, []).append(e)
    return [
        _Read(buffer, run, apart)
        for (buffer, apart, _), matrix in matrices.items()
        for run in _runs(matrix)
    ]


def _runs(matrix: dict[int, T]) -> list[list[T]]:
    """What is at consecutive places, if it is enough for a vector."""
    runs: list[list[T]] = []
    before = None
    for place in sorted(matrix):
        if place - 1 != before:
            runs.append([])
        runs[-1].append(matrix[place])
        before = place
    return [run for run in runs if len(run) >= thresholds.PACKED_ROW]


__all__ = ["rows"]
