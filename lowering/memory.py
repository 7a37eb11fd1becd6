"""Memory: one workspace a program, in which buffers with disjoint lifetimes share bytes."""

from fnx.core.scalar import Expr
from fnx.lowering.kernel import (
    Buffer,
    CallHost,
    CallLibrary,
    Copy,
    Eval,
    Fill,
    If,
    Let,
    Loop,
    Nest,
    Ref,
    Stmt,
    Store,
    While,
)
from fnx.lowering.values import buffers_read

ALIGN = 64
ITEMSIZE = {"bool": 1, "bfloat16": 2, "complex64": 8, "complex128": 16}


def itemsize(dtype: str) -> int:
    """Bytes of an element in memory."""
    if dtype in ITEMSIZE:
        return ITEMSIZE[dtype]
    return int(dtype.lstrip("abcdefghijklmnopqrstuvwxyz")) // 8


def plan(body: list[Stmt], buffers: list[Buffer]) -> int:
    """Give each workspace buffer its place; the bytes of the workspace."""
    lives = _lifetimes(body)
    placed: list[tuple[int, int, int, int]] = []  # offset, bytes, first, last
    total = 0
    order = [b for b in buffers if b.space == "workspace" and b in lives]
    for b in sorted(order, key=lambda b: -b.size * itemsize(b.dtype)):
        size = -(-b.size * itemsize(b.dtype) // ALIGN) * ALIGN
        first, last = lives[b]
        busy = sorted((o, s) for o, s, f, l in placed if not (l < first or last < f))
        offset = 0
        for o, s in busy:
            if offset + size <= o:
                break
            offset = max(offset, o + s)
        b.place = offset
        placed.append((offset, size, first, last))
        total = max(total, offset + size)
    return total


def _lifetimes(body: list[Stmt]) -> dict[Buffer, tuple[int, int]]:
    """First and last statement, in program order, that touch each buffer.

    A buffer that is known only inside a loop lives within a round, since its first touch there
    writes it. One that is also known before or after the loop lives through all of it.
    """
    lives: dict[Buffer, tuple[int, int]] = {}
    loops: list[tuple[int, int]] = []  # inner ones before those around them
    clock = 0

    def touch(found: set[Buffer]) -> None:
        for b in found:
            first, _ = lives.get(b, (clock, clock))
            lives[b] = (first, clock)

    def walk(stmts: list[Stmt]) -> None:
        nonlocal clock
        for s in stmts:
            clock += 1
            start = clock
            touch(touched(s))
            for block in inner_blocks(s):
                walk(block)
            clock += 1
            touch(touched(s))
            if isinstance(s, (Loop, While)):
                loops.append((start, clock))

    walk(body)
    for start, end in loops:
        for b, (first, last) in lives.items():
            if first < start <= last <= end or start <= first <= end < last:
                lives[b] = (min(first, start), max(last, end))
    return lives


def inner_blocks(s: Stmt) -> list[list[Stmt]]:
    match s:
        case Loop() | Nest():
            return [s.body]
        case While():
            return [s.before, s.body]
        case If():
            return [s.then, s.orelse]
    return []


def touched(s: Stmt) -> set[Buffer]:
    """The buffers that a statement itself reads or writes, not those of its blocks."""
    exprs: list[Expr] = []
    found: set[Buffer] = set()
    match s:
        case Eval():
            exprs = s.exprs
        case Let():
            exprs = s.values
        case Store():
            exprs, found = [s.index, s.value], {s.buffer}
        case Copy():
            found = {s.target.buffer, s.source.buffer}
            exprs = [s.target.index, s.source.index]
        case Fill():
            exprs, found = [s.value, s.target.index], {s.target.buffer}
        case Loop():
            exprs = [s.extent, *s.init, *s.yields]
        case While():
            exprs = [s.cond, *s.init, *s.yields]
        case If():
            exprs = [s.cond, *s.on_true, *s.on_false]
        case CallLibrary():
            found = {a.buffer for a in s.args if isinstance(a, Ref)} | set(s.writes)
            exprs = [a for a in s.args if isinstance(a, Expr)]
            exprs += [a.index for a in s.args if isinstance(a, Ref)]
        case CallHost():
            found = {ref.buffer for ref, _, _ in [*s.inputs, *s.outputs]}
            exprs = [ref.index for ref, _, _ in [*s.inputs, *s.outputs]]
    return found | buffers_read(exprs)
